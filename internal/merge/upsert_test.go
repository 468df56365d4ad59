package merge

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"pgregory.net/rapid"

	"tidemark/internal/deltalog"
)

// expectSortedBase fails unless every base file is sorted by key, holds keys of its bucket only, within the exact
// range it is tagged with, and no two files of a bucket overlap.
func (w *world) expectSortedBase() {
	w.t.Helper()
	t := w.load()
	bases, err := basesOf(t.Snapshot)
	if err != nil {
		w.t.Fatal(err)
	}
	keys := map[string][][]byte{}
	w.baseRecords(t, func(add deltalog.Add, rec arrow.Record) {
		for _, r := range rowsOf(rec) {
			keys[add.Path] = append(keys[add.Path], bytes.Clone(keyOf(r.key)))
		}
	})
	for bucket, files := range bases {
		for _, f := range files {
			k := keys[f.add.Path]
			if !slices.IsSortedFunc(k, bytes.Compare) || len(k) == 0 {
				w.t.Fatalf("%s of %s is not sorted, or empty", f.add.Path, bucket)
			}
			if !bytes.Equal(k[0], f.min) || !bytes.Equal(k[len(k)-1], f.max) {
				w.t.Fatalf("%s holds keys %q to %q and is tagged %q to %q", f.add.Path, k[0], k[len(k)-1], f.min, f.max)
			}
		}
	}
}

func TestUpsertKeepsTheNewestVersionOfEachKey(t *testing.T) {
	w := newWorld(t, upsertTable(2, true))
	m := model{}
	for g := range int64(5) {
		var rows []row
		for i := range 20 {
			rows = append(rows, row{key: fmt.Sprintf("k%02d", (i*7+int(g)*3)%25), seq: (g * 3) % 4, value: g*100 + int64(i), remove: i%6 == 5})
		}
		w.upsert(rows...)
		m.apply(rows, true)
		if g%2 == 1 {
			w.merge(w.buckets()...)
			w.expect(m.rows())
			w.expectSortedBase()
		}
	}
	w.merge(w.buckets()...)
	w.expect(m.rows())
	w.expectSortedBase()
	w.expectNoStrayFiles()
}

func TestDeletingAllRowsOfAFileRemovesIt(t *testing.T) {
	w := newWorld(t, upsertTable(1, false))
	w.upsert(row{key: "a"}, row{key: "b"})
	w.merge(w.buckets()...)
	w.upsert(row{key: "a", remove: true}, row{key: "b", remove: true}, row{key: "never there", remove: true})
	out := w.merge(w.buckets()...)
	if len(w.liveFiles()) != 0 || out.FilesGone != 1 || out.FilesAdded != 0 {
		t.Fatalf("files %v, outcome %+v", w.liveFiles(), out)
	}
}

// The same history gives the same rows however its generations are cut, and however they are cut into merges.
func TestUpsertEqualsAMapForEveryCut(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o := upsertTable(rapid.IntRange(1, 2).Draw(r, "buckets"), rapid.Bool().Draw(r, "sequence"))
		// A tiny target makes every record a file, so that bases have many files.
		if rapid.Bool().Draw(r, "tiny files") {
			o.Properties = map[string]string{"delta.targetFileSize": "1"}
		}
		w := newWorld(t, o)
		// So does a tiny row group within a file, most of which are then copied as they are.
		if rapid.Bool().Draw(r, "tiny row groups") {
			w.rowGroupBytes = 1
		}
		m := model{}
		for range rapid.IntRange(1, 6).Draw(r, "generations") {
			rows := drawRows(r, "rows")
			w.upsert(rows...)
			m.apply(rows, o.Sequence != "")
			if rapid.Bool().Draw(r, "merge") {
				w.merge(w.buckets()...)
			}
		}
		w.merge(w.buckets()...)
		w.expect(m.rows())
		w.expectSortedBase()
		w.expectNoStrayFiles()
		if w.mem.CurrentAlloc() != 0 {
			r.Fatalf("%d bytes of Arrow memory are left", w.mem.CurrentAlloc())
		}
	})
}

func TestOnlyFilesWhoseKeyRangeIsTouchedAreRewritten(t *testing.T) {
	// A tiny target ends a file after every record, and makes no file small enough to be absorbed.
	o := upsertTable(1, false)
	o.Properties = map[string]string{"delta.targetFileSize": "1"}
	w := newWorld(t, o)
	var rows []row
	for i := range 3 * batchRowsMax {
		rows = append(rows, row{key: fmt.Sprintf("%06d", i), value: int64(i)})
	}
	w.upsert(rows...)
	w.merge(w.buckets()...)
	before := w.liveFiles()
	if len(before) < 3 {
		t.Fatalf("files %v", before)
	}
	bases, err := basesOf(w.load().Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	middle := bases[w.buckets()[0]][1]
	key := string(middle.min[:6])
	w.upsert(row{key: key, value: -1})
	out := w.merge(w.buckets()...)
	after := w.liveFiles()
	kept := 0
	for _, f := range before {
		if slices.Contains(after, f) {
			kept++
		} else if f != middle.add.Path {
			t.Errorf("%s was rewritten, although no key of it changed", f)
		}
	}
	if kept != len(before)-1 || out.FilesGone != 1 {
		t.Fatalf("kept %d of %d files, removed %d", kept, len(before), out.FilesGone)
	}
	w.expectSortedBase()
}
