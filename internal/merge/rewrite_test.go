package merge

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"pgregory.net/rapid"

	"tidemark/internal/deltalog"
	"tidemark/internal/parquetfile"
	"tidemark/internal/table"
)

// grouped is a world whose base is one file of row groups of rows rows each, with keys k000000, k000010, …
func grouped(t testing.TB, o table.CreateOptions, groups, rows int) (*world, model, deltalog.Add) {
	t.Helper()
	w := newWorld(t, o)
	w.rowGroupBytes = 1
	m := model{}
	for g := range groups {
		var batch []row
		for i := range rows {
			n := g*rows + i
			batch = append(batch, row{key: fmt.Sprintf("k%06d", 10*n), value: int64(n)})
		}
		// Sealed one by one and merged as one run of each, they come to the writer as records of their own.
		w.upsert(batch...)
		m.apply(batch, false)
		w.merge(w.buckets()...)
	}
	return w, m, w.onlyFile()
}

func (w *world) onlyFile() (only deltalog.Add) {
	w.t.Helper()
	n := 0
	for add := range w.load().Snapshot.Files() {
		only = add
		n++
	}
	if n != 1 {
		w.t.Fatalf("%d files", n)
	}
	return only
}

func (w *world) groupsOf(add deltalog.Add) []parquetfile.RowGroup {
	w.t.Helper()
	r, err := parquetfile.OpenReader(w.ctx, w.store, tableName+"/"+add.Path, parquetfile.ReaderOptions{Size: add.Size})
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	return r.RowGroups()
}

// spoil overwrites pages of a file, so that they cannot be decoded: all that begin between two offsets.
func (w *world) spoil(add deltalog.Add, from, to int64) {
	w.t.Helper()
	key := tableName + "/" + add.Path
	body, _, err := w.store.Get(w.ctx, key)
	if err != nil {
		w.t.Fatal(err)
	}
	body = bytes.Clone(body)
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd} // of zstd
	for at := from; at < to; at++ {
		if bytes.HasPrefix(body[at:], frame) {
			body[at] ^= 0xff
		}
	}
	if err := w.store.Delete(w.ctx, key); err != nil {
		w.t.Fatal(err)
	}
	w.put(key, body)
}

// A row group that cannot be decoded goes through a merge unharmed if, and only if, no key of it changes.
func TestUntouchedRowGroupsAreNotDecoded(t *testing.T) {
	for _, c := range []struct {
		key     string
		touched int // the row group; -1 if the key lies between two
	}{
		{"k000000", 0}, {"k000455", 2}, {"k000395", -1}, {"k000990", 4}, {"k000995", -1}, {"a", -1},
	} {
		for spoilt := range 5 {
			w, _, file := grouped(t, upsertTable(1, false), 5, 20)
			groups := w.groupsOf(file)
			if len(groups) != 5 || string(groups[1].First) != string(keyOf("k000200")) {
				t.Fatalf("row groups %v", groups)
			}
			from := int64(4)
			for _, g := range groups[:spoilt] {
				from += g.Bytes
			}
			w.spoil(file, from, from+groups[spoilt].Bytes)
			w.upsert(row{key: c.key, value: -1})
			out, err := Run(w.ctx, w.deps(), w.request(w.buckets()...))
			if err != nil {
				t.Fatal(err)
			}
			if decoded := len(out.Failures) > 0; decoded != (spoilt == c.touched) {
				t.Errorf("a change of %s: row group %d was decoded: %v (%+v)", c.key, spoilt, decoded, out.Failures)
			}
		}
	}
}

// Whatever is copied, the table has the rows that a map has, and files keep their index and order.
func TestCopiedRowGroupsKeepTheRowsAndTheOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w, m, _ := grouped(t, upsertTable(1, false), 4, 5)
		for range rapid.IntRange(1, 3).Draw(r, "merges") {
			var rows []row
			for range rapid.IntRange(1, 3).Draw(r, "rows") {
				rows = append(rows, row{
					key:    fmt.Sprintf("k%06d", rapid.IntRange(0, 210).Draw(r, "key")),
					value:  -rapid.Int64Range(1, 1000).Draw(r, "value"),
					remove: rapid.IntRange(0, 3).Draw(r, "op") == 0,
				})
			}
			w.upsert(rows...)
			m.apply(rows, false)
			w.merge(w.buckets()...)
			w.expect(m.rows())
			w.expectSortedBase()
			for add := range w.load().Snapshot.Files() {
				for _, g := range w.groupsOf(add) {
					if g.First == nil {
						r.Fatalf("%s has no index", add.Path)
					}
				}
			}
		}
	})
}

// A small row group is taken up by rows that are written right before it, and copied if there are none.
func TestSmallRowGroupsAreTakenUp(t *testing.T) {
	w, m, file := grouped(t, upsertTable(1, false), 5, 20)
	w.rowGroupBytes = 0
	rows := []row{{key: "k000000", value: -1}}
	w.upsert(rows...)
	m.apply(rows, false)
	w.merge(w.buckets()...)
	w.expect(m.rows())
	if before, after := len(w.groupsOf(file)), len(w.groupsOf(w.onlyFile())); before != 5 || after != 1 {
		t.Errorf("%d row groups became %d", before, after)
	}
}

// A row group of the columns that a table had before cannot be copied among those that it has now.
func TestRowGroupsOfAnOlderSchemaAreDecoded(t *testing.T) {
	w := newWorld(t, evolvingTable("key"))
	w.rowGroupBytes = 1
	bucket := w.buckets()[0]
	for _, rows := range []string{`[{"key":"a","n":1}]`, `[{"key":"b","n":2}]`} {
		w.sealJSON(bucket, []arrow.Field{fieldKey, fieldInt}, rows)
		w.merge(bucket)
	}
	if groups := w.groupsOf(w.onlyFile()); len(groups) != 2 {
		t.Fatalf("row groups %v", groups)
	}
	w.sealJSON(bucket, []arrow.Field{fieldKey, fieldLong, fieldAdded}, `[{"key":"a","n":20000000000,"added":"x"}]`)
	w.merge(bucket)
	if have := w.json(); have != `[{"added":"x","key":"a","n":20000000000},{"added":null,"key":"b","n":2}]` {
		t.Fatalf("rows %s", have)
	}
}
