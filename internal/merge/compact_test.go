package merge

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/table"
	"tidemark/test/readers"
)

// addBase commits small base files as another engine's append does, one per slice of rows, in one commit.
func (w *world) addBase(files ...[]row) {
	w.t.Helper()
	in := w.intent()
	for _, rows := range files {
		rec := record(w.mem, rows, false)
		var body bytes.Buffer
		pw, err := parquetfile.NewWriter(&body, rec.Schema(), parquetfile.WriterOptions{Mem: w.mem})
		if err != nil {
			w.t.Fatal(err)
		}
		if err := pw.Write(rec); err != nil {
			w.t.Fatal(err)
		}
		summary, err := pw.Close()
		if err != nil {
			w.t.Fatal(err)
		}
		rec.Release()
		w.runs++
		path := fmt.Sprintf("part-foreign-%06d.parquet", w.runs)
		w.put(tableName+"/"+path, body.Bytes())
		in.Adds = append(in.Adds, deltalog.Add{
			Path: path, Size: summary.Bytes, DataChange: true, Stats: summary.Stats.JSON(), ModificationTime: int64(w.runs),
			PartitionValues: map[string]string{},
		})
	}
	w.commit(in)
}

func (w *world) intent() deltalog.Intent {
	t := w.load()
	return deltalog.Intent{TableID: t.ID, Read: t.Snapshot, Info: deltalog.CommitInfo{Operation: "WRITE", ExecutionID: fmt.Sprintf("foreign-%d", w.runs)}}
}

func (w *world) commit(in deltalog.Intent) {
	w.t.Helper()
	if _, err := w.load().Log.Commit(w.ctx, in); err != nil {
		w.t.Fatal(err)
	}
}

// removeBase removes base files as another engine's delete does.
func (w *world) removeBase(paths ...string) {
	w.t.Helper()
	in := w.intent()
	for _, path := range paths {
		in.Removes = append(in.Removes, deltalog.Remove{Path: path, DataChange: true})
	}
	w.commit(in)
}

func (w *world) compactRequest() CompactRequest {
	w.runs++
	return CompactRequest{Table: tableName, Execution: fmt.Sprintf("%08d", w.runs), Budget: 256 << 20}
}

// compact compacts once and expects no failure.
func (w *world) compact() Outcome {
	w.t.Helper()
	out, err := Compact(w.ctx, w.deps(), w.compactRequest())
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// compacting runs a compaction of which each put into the log first calls before, with its number from 0.
func (w *world) compacting(before func(n int)) (Outcome, error) {
	d, n := w.deps(), 0
	d.Store = &gate{w.store, func() {
		before(n)
		n++
	}}
	return Compact(w.ctx, d, w.compactRequest())
}

func smallFiles(from, n int) (files [][]row, all []row) {
	for i := range n {
		r := row{key: fmt.Sprintf("k%06d", from+i), seq: int64(i), value: int64(from + i)}
		files, all = append(files, []row{r}), append(all, r)
	}
	return files, all
}

func TestThousandsOfSmallFilesBecomeAFewWithTheSameRowsAndAreThenLeftAlone(t *testing.T) {
	w := newWorld(t, appendTable())
	files, want := smallFiles(0, 9000)
	w.addBase(files...)
	var outs []Outcome
	for {
		out := w.compact()
		outs = append(outs, out)
		if !out.More {
			break
		}
	}
	w.expect(want)
	w.expectNoStrayFiles()
	// 4,096 files are the most that one bin takes, 8,192 the most of one execution.
	if live := w.liveFiles(); len(live) != 1 || len(outs) != 2 || outs[0].FilesGone != 8192 || outs[0].FilesAdded != 2 {
		t.Fatalf("%d files are left after %+v", len(live), outs)
	}
	for add := range w.load().Snapshot.Files() {
		if rows, known := add.Rows(); !known || rows == 0 || add.DataChange {
			t.Errorf("%s: %d rows, change of data %v", add.Path, rows, add.DataChange)
		}
	}
	version := w.load().Snapshot.Version
	for range 3 {
		if out := w.compact(); len(out.Commits) != 0 || out.More {
			t.Fatalf("again: %+v", out)
		}
	}
	if now := w.load().Snapshot.Version; now != version || len(w.liveFiles()) != 1 {
		t.Fatalf("version %d became %d, files %v", version, now, w.liveFiles())
	}
	w.expect(want)
}

func TestACompactionChangesNoMarkAndNoData(t *testing.T) {
	w := newWorld(t, appendTable())
	for g := range 4 {
		w.seal("a", row{key: fmt.Sprint(g)})
		w.merge("a")
	}
	before := w.load()
	out := w.compact()
	after := w.load()
	if after.Mark("a") != 4 || after.Snapshot.FileCount() != 1 || len(out.Commits) != 1 {
		t.Fatalf("mark %d, %d files, %+v", after.Mark("a"), after.Snapshot.FileCount(), out)
	}
	commits, err := after.Log.Since(w.ctx, before.Snapshot.Version)
	if err != nil || len(commits) != 1 {
		t.Fatal(commits, err)
	}
	if c := commits[0]; len(c.Txns) != 0 || c.Info.Operation != "OPTIMIZE" || c.Adds[0].DataChange || len(c.Removes) != 4 || c.Removes[0].DataChange {
		t.Errorf("%+v", c)
	}
}

func TestAMergeAndAForeignAppendDuringACompactionLoseNothing(t *testing.T) {
	w := newWorld(t, appendTable())
	files, want := smallFiles(0, 20)
	w.addBase(files...)
	more := []row{{key: "merged"}, {key: "appended"}}
	out, err := w.compacting(func(n int) {
		if n == 0 {
			w.seal("a", more[0])
			w.merge("a")
			w.addBase(more[1:])
		}
	})
	if err != nil || len(out.Commits) != 1 || out.FilesGone != 20 {
		t.Fatal(out, err)
	}
	w.expect(append(want, more...))
	w.expectNoStrayFiles()
	if n := len(w.liveFiles()); n != 3 {
		t.Errorf("%d files", n)
	}
}

func TestWhatAForeignDeleteRemovesDuringACompactionStaysRemovedAndTheOtherBinsAreCommitted(t *testing.T) {
	o := appendTable()
	o.Properties = map[string]string{"delta.targetFileSize": "20kb"} // several bins
	w := newWorld(t, o)
	files, want := smallFiles(0, 200)
	w.addBase(files...)
	victim := w.liveFiles()[0]
	out, err := w.compacting(func(n int) {
		if n == 0 {
			w.removeBase(victim)
		}
	})
	if err != nil || len(out.Commits) != 1 {
		t.Fatal(out, err)
	}
	w.expect(want[1:])
	w.expectNoStrayFiles()
	if out.FilesAdded < 2 || out.FilesGone >= 200 {
		t.Errorf("one bin should be given up, and the others not: %+v", out)
	}
	// What was given up is compacted the next time.
	for len(w.compact().Commits) > 0 {
	}
	w.expect(want[1:])
}

func TestACompactionThatIsAlwaysOvertakenGivesUpAndLeavesNothingBehind(t *testing.T) {
	w := newWorld(t, appendTable())
	files, want := smallFiles(0, 200)
	w.addBase(files...)
	out, err := w.compacting(func(int) {
		w.removeBase(w.liveFiles()[0])
		want = want[1:]
	})
	if ClassOf(err) != Retryable || CodeOf(err) != CodeConflict || len(out.Commits) != 0 {
		t.Fatal(out, err)
	}
	w.expect(want)
	w.expectNoStrayFiles()
}

func TestAChangedSchemaMakesACompactionBeginAgain(t *testing.T) {
	w := newWorld(t, appendTable())
	files, want := smallFiles(0, 10)
	w.addBase(files...)
	out, err := w.compacting(func(n int) {
		if n > 0 {
			return
		}
		in := w.intent()
		metadata := in.Read.Metadata
		metadata.SchemaString = strings.Replace(metadata.SchemaString, `"fields":[`, `"fields":[{"name":"new","type":"string","nullable":true,"metadata":{}},`, 1)
		in.Metadata = &metadata
		w.commit(in)
	})
	if err != nil || len(out.Commits) != 1 {
		t.Fatal(out, err)
	}
	w.expectNoStrayFiles()
	if rows, _ := firstFile(w).Rows(); rows != int64(len(want)) || !strings.Contains(firstFile(w).Stats, `"new"`) {
		t.Errorf("the file was written for the schema before: %s", firstFile(w).Stats)
	}
}

func firstFile(w *world) deltalog.Add {
	for add := range w.load().Snapshot.Files() {
		return add
	}
	w.t.Fatal("no file")
	return deltalog.Add{}
}

func TestADamagedBaseFileKeepsItsBinAsItIsAndIsNamed(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"a flipped bit": func(b []byte) []byte { b[len(b)/4] ^= 0x55; return b },
		"cut short":     func(b []byte) []byte { return b[:len(b)-7] },
		"no bytes":      func([]byte) []byte { return nil },
		"not parquet":   func(b []byte) []byte { return []byte(strings.Repeat("x", len(b))) },
	} {
		t.Run(name, func(t *testing.T) {
			o := appendTable()
			o.Properties = map[string]string{"delta.targetFileSize": "20kb"}
			w := newWorld(t, o)
			files, _ := smallFiles(0, 200)
			w.addBase(files...)
			victim := firstFile(w).Path
			w.change(tableName+"/"+victim, damage)
			out, err := Compact(w.ctx, w.deps(), w.compactRequest())
			if ClassOf(err) != Data || CodeOf(err) != CodeBaseDamaged || !strings.Contains(err.Error(), victim) {
				t.Fatalf("%v", err)
			}
			if len(out.Commits) != 1 || out.FilesAdded < 2 {
				t.Errorf("the other bins are fine: %+v", out)
			}
			if _, live := w.load().Snapshot.File(victim); !live {
				t.Error("the damaged file was removed from the table")
			}
			w.expectNoStrayFiles()
		})
	}
	t.Run("gone", func(t *testing.T) {
		w := newWorld(t, appendTable())
		files, _ := smallFiles(0, 5)
		w.addBase(files...)
		victim := firstFile(w).Path
		if err := w.store.Delete(w.ctx, tableName+"/"+victim); err != nil {
			t.Fatal(err)
		}
		if _, err := Compact(w.ctx, w.deps(), w.compactRequest()); ClassOf(err) != Data || !strings.Contains(err.Error(), victim) {
			t.Fatal(err)
		}
	})
	t.Run("replaced by one of other rows", func(t *testing.T) {
		w := newWorld(t, appendTable())
		w.addBase([]row{{key: "a"}}, []row{{key: "b"}, {key: "c"}})
		paths := w.liveFiles()
		body, _, err := w.store.Get(w.ctx, tableName+"/"+paths[0])
		if err != nil {
			t.Fatal(err)
		}
		in := w.intent()
		add := firstFile(w)
		add.Path, add.Stats = "part-foreign-wrong.parquet", strings.Replace(add.Stats, `"numRecords":1`, `"numRecords":7`, 1)
		w.put(tableName+"/"+add.Path, body)
		in.Adds = []deltalog.Add{add}
		w.commit(in)
		if _, err := Compact(w.ctx, w.deps(), w.compactRequest()); ClassOf(err) != Data || !strings.Contains(err.Error(), "the log says 7") {
			t.Fatal(err)
		}
	})
}

// fragments makes an upsert table whose only bucket has n small files that no merge will absorb by itself: each is what a
// delete of nearly everything has left.
func (w *world) fragments(n int) (want []row) {
	w.t.Helper()
	for i := range n {
		w.upsert(row{key: fmt.Sprintf("k%06d", i), value: int64(i)})
		w.merge(w.buckets()...)
		want = append(want, row{key: fmt.Sprintf("k%06d", i), value: int64(i)})
	}
	w.split(want)
	return want
}

// split replaces the files of the bucket by one per row, as merges with a tiny target size would have written them.
func (w *world) split(rows []row) {
	w.t.Helper()
	in := w.intent()
	in.Upsert, in.Buckets = true, w.buckets()
	for f := range in.Read.Files() {
		in.Removes = append(in.Removes, deltalog.Remove{Path: f.Path})
	}
	in.Info.ExecutionID = "split"
	for i, r := range rows {
		rec := record(w.mem, []row{r}, false)
		var body bytes.Buffer
		pw, err := parquetfile.NewWriter(&body, rec.Schema(), parquetfile.WriterOptions{Mem: w.mem})
		if err != nil {
			w.t.Fatal(err)
		}
		if err := pw.Write(rec); err != nil {
			w.t.Fatal(err)
		}
		rec.Release()
		summary, err := pw.Close()
		if err != nil {
			w.t.Fatal(err)
		}
		key := base64.StdEncoding.EncodeToString(keyOf(r.key))
		path := fmt.Sprintf("part-split-%d.parquet", i)
		w.put(tableName+"/"+path, body.Bytes())
		in.Adds = append(in.Adds, deltalog.Add{Path: path, Size: summary.Bytes, Stats: summary.Stats.JSON(), PartitionValues: map[string]string{},
			Tags: map[string]string{deltalog.TagBucket: w.bucketOf(r.key), deltalog.TagKeyMin: key, deltalog.TagKeyMax: key}})
	}
	w.commit(in)
}

func TestNeighboursOfABucketAreJoinedInTheirOrder(t *testing.T) {
	w := newWorld(t, upsertTable(2, true))
	want := w.fragments(40)
	out := w.compact()
	if len(out.Commits) != 1 || len(w.liveFiles()) != 2 {
		t.Fatalf("%+v, %v", out, w.liveFiles())
	}
	w.expectSortedBase()
	w.expect(want)
	w.expectNoStrayFiles()
	if out := w.compact(); len(out.Commits) != 0 {
		t.Errorf("again: %+v", out)
	}
	// And merges go on from there.
	w.upsert(row{key: "k000007", seq: 1, value: 99}, row{key: "k000008", seq: 1, remove: true})
	w.merge(w.buckets()...)
	want[7].seq, want[7].value = 1, 99
	w.expect(slices.Delete(want, 8, 9))
	w.expectSortedBase()
}

func TestABucketWithSomethingPendingIsLeftToItsMerges(t *testing.T) {
	w := newWorld(t, upsertTable(2, false))
	want := w.fragments(40)
	w.upsert(row{key: "k000007", value: 99})
	if out := w.compact(); len(out.Commits) != 1 || len(out.bucketsOf(w)) != 1 || out.bucketsOf(w)[0] == w.bucketOf("k000007") {
		t.Fatalf("%+v", out)
	}
	w.merge(w.buckets()...)
	want[7].value = 99
	w.expect(want)
	w.expectSortedBase()

	// Sealed while the compaction was at it: what it has written of that bucket is given up before the commit.
	w = newWorld(t, upsertTable(1, false))
	want = w.fragments(20)
	d := w.deps()
	var once sync.Once
	d.Store = &uploads{w.store, func() { once.Do(func() { w.upsert(row{key: "k000003", value: 33}) }) }}
	if out, err := Compact(w.ctx, d, w.compactRequest()); err != nil || len(out.Commits) != 0 {
		t.Fatal(out, err)
	}
	w.expectNoStrayFiles()
	w.merge(w.buckets()...)
	want[3].value = 33
	w.expect(want)
}

// bucketsOf are the buckets of the files that a compaction committed.
func (o Outcome) bucketsOf(w *world) (buckets []string) {
	commits, err := w.load().Log.Since(w.ctx, o.Commits[0]-1)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, add := range commits[0].Adds {
		buckets = append(buckets, add.Tags[deltalog.TagBucket])
	}
	return buckets
}

// uploads is a store that calls begun before each upload.
type uploads struct {
	objstore.Store
	begun func()
}

func (u *uploads) Create(ctx context.Context, key string) (objstore.Upload, error) {
	u.begun()
	return u.Store.Create(ctx, key)
}

func TestAMergeThatCommitsToABucketFirstMakesACompactionOfItVoidAndNotTheOtherWay(t *testing.T) {
	w := newWorld(t, upsertTable(1, false))
	want := w.fragments(20)
	out, err := w.compacting(func(n int) {
		if n == 0 {
			w.upsert(row{key: "k000003", value: 33})
			w.merge(w.buckets()...)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want[3].value = 33
	w.expect(want)
	w.expectSortedBase()
	w.expectNoStrayFiles()
	if len(out.Commits) > 1 {
		t.Errorf("%+v", out)
	}
}

func TestAnUnsortedOrMistaggedFileOfABucketIsNotCompacted(t *testing.T) {
	w := newWorld(t, upsertTable(1, false))
	w.fragments(5)
	// The first file is replaced by one whose key lies elsewhere.
	paths := w.liveFiles()
	body, _, err := w.store.Get(w.ctx, tableName+"/"+paths[4])
	if err != nil {
		t.Fatal(err)
	}
	w.change(tableName+"/"+paths[0], func([]byte) []byte { return body })
	if _, err := Compact(w.ctx, w.deps(), w.compactRequest()); ClassOf(err) != Data || !strings.Contains(err.Error(), "outside the range") {
		t.Fatal(err)
	}
	if len(w.liveFiles()) != 5 {
		t.Error(w.liveFiles())
	}
}

func TestACompactionStaysWithinItsBudget(t *testing.T) {
	w := newWorld(t, table.CreateOptions{Schema: schemaOf(testSchema)})
	var files [][]row
	for i := range 60 {
		var rows []row
		for j := range 3000 {
			rows = append(rows, row{key: fmt.Sprintf("%06d-%032x", j, i*7919+j), seq: int64(j), value: int64(i)})
		}
		files = append(files, rows)
	}
	w.addBase(files...)
	const budget = 48 << 20
	p := &peakAllocator{Allocator: w.mem}
	d, req := w.deps(), w.compactRequest()
	d.Mem, req.Budget = p, budget
	out, err := Compact(w.ctx, d, req)
	if err != nil || len(w.liveFiles()) != 1 {
		t.Fatal(out, err)
	}
	if peak := p.peak.Load(); peak > budget || p.now.Load() != 0 {
		t.Errorf("%d MiB at most, %d bytes left", peak>>20, p.now.Load())
	}
}

// Other engines see the rows of a table that was compacted as they saw them before: of an append table into which another
// engine has written too, of a partitioned one, and of an upsert table.
func TestACompactedTableIsReadByOthersWithTheRowsItHad(t *testing.T) {
	tables := map[string]func(t *testing.T) (w *world, dir string, columns []string){
		"append": func(t *testing.T) (*world, string, []string) {
			w, dir := newLocalWorld(t, appendTable())
			files, _ := smallFiles(0, 5)
			w.addBase(files...)
			for g := range 5 {
				w.seal("a", row{key: fmt.Sprint("merged-", g), seq: int64(g), value: int64(-g)})
				w.merge("a")
			}
			return w, dir, []string{"key", "seq", "value"}
		},
		"partitioned": func(t *testing.T) (*world, string, []string) {
			o := parsedSchema(t, `name string, day date, id long`)
			o.PartitionBy = []string{"name", "day"}
			w, dir := newLocalWorld(t, o)
			for i := range 4 {
				rec := fromJSON(w, fmt.Sprintf(`[{"name":"a b/c","day":"2024-02-29","id":%d},{"name":null,"day":"0001-01-01","id":%d},{"name":"100%%","day":null,"id":%d}]`, 3*i, 3*i+1, 3*i+2))
				w.sealRecord("a", rec)
				rec.Release()
				w.merge("a")
			}
			return w, dir, []string{"name", "day", "id"}
		},
		"upsert": func(t *testing.T) (*world, string, []string) {
			w, dir := newLocalWorld(t, upsertTable(2, false))
			w.fragments(10)
			return w, dir, []string{"key", "seq", "value"}
		},
	}
	for name, fill := range tables {
		t.Run(name, func(t *testing.T) {
			w, dir, columns := fill(t)
			read := append([]string{"testdata/partitions.py", "read", dir}, columns...)
			var before, after map[string][][]any
			readers.Run(t, &before, read...)
			was := len(w.liveFiles())
			out := w.compact()
			if is := len(w.liveFiles()); out.FilesGone != was || is >= was || is > 3 {
				t.Fatalf("%d files became %d: %+v", was, is, out)
			}
			readers.Run(t, &after, read...)
			if len(before) != 2 || len(before["DuckDB"]) < 10 {
				t.Fatalf("before, they see %v", before)
			}
			for reader, rows := range after {
				if got, want := fmt.Sprint(rows), fmt.Sprint(before["DuckDB"]); got != want {
					t.Errorf("%s sees\n%s, and DuckDB saw\n%s", reader, got, want)
				}
			}
		})
	}
}
