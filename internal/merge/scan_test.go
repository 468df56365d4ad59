package merge

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"pgregory.net/rapid"

	"tidemark/internal/table"
)

// scan reads the table as rows, in the order they come.
func (w *world) scan(o ScanOptions) (rows []row) {
	w.t.Helper()
	_, records, err := Scan(w.ctx, w.deps(), tableName, o)
	if err != nil {
		w.t.Fatal(err)
	}
	for rec, err := range records {
		if err != nil {
			w.t.Fatal(err)
		}
		rows = append(rows, rowsOf(rec)...)
	}
	return rows
}

func TestAFreshScanOfAnAppendTableAddsWhatIsNotMerged(t *testing.T) {
	w := newWorld(t, appendTable())
	w.seal("a", row{key: "1"}, row{key: "2"})
	w.merge("a")
	w.seal("a", row{key: "3"})
	w.seal("a")
	w.seal("b", row{key: "4"})
	if got := w.scan(ScanOptions{}); !slices.Equal(got, []row{{key: "1"}, {key: "2"}}) {
		t.Fatalf("base %v", got)
	}
	if got := w.scan(ScanOptions{Fresh: true}); !slices.Equal(got, []row{{key: "1"}, {key: "2"}, {key: "3"}, {key: "4"}}) {
		t.Fatalf("fresh %v", got)
	}
}

// A fresh scan shows what a merge would make of the table, whatever has been merged already.
func TestAFreshScanOfAnUpsertTableEqualsAMap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o := upsertTable(rapid.IntRange(1, 2).Draw(r, "buckets"), rapid.Bool().Draw(r, "sequence"))
		w := newWorld(t, o)
		m, merged := model{}, model{}
		for range rapid.IntRange(1, 5).Draw(r, "generations") {
			rows := drawRows(r, "rows")
			w.upsert(rows...)
			m.apply(rows, o.Sequence != "")
			if rapid.IntRange(0, 2).Draw(r, "merge") == 0 {
				w.merge(w.buckets()...)
				merged = model{}
				merged.apply(m.rows(), false)
			}
		}
		for fresh, want := range map[bool]model{true: m, false: merged} {
			got := w.scan(ScanOptions{Fresh: fresh})
			sortRows(got)
			if !slices.Equal(got, want.rows()) {
				r.Fatalf("fresh %t: %v, want %v", fresh, got, want.rows())
			}
		}
		if w.mem.CurrentAlloc() != 0 {
			r.Fatalf("%d bytes of Arrow memory are left", w.mem.CurrentAlloc())
		}
	})
}

func TestAScanReadsSomeColumnsInTheOrderAskedFor(t *testing.T) {
	for name, o := range map[string]table.CreateOptions{"append": evolvingTable(), "upsert": evolvingTable("key")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, o)
			shard := "bucket-0000"
			w.sealJSON(shard, []arrow.Field{fieldKey, fieldInt}, `[{"key":"1","n":1}]`)
			w.merge(shard)
			// The column is younger than the file just written, and one generation more waits to be merged.
			w.sealJSON(shard, []arrow.Field{fieldKey, fieldInt, fieldAdded}, `[{"key":"2","n":2,"added":"x"}]`)
			w.merge(shard)
			w.sealJSON(shard, []arrow.Field{fieldKey, fieldInt}, `[{"key":"3","n":3}]`)
			for _, fresh := range []bool{false, true} {
				s, records, err := Scan(w.ctx, w.deps(), tableName, ScanOptions{Fresh: fresh, Columns: []string{"added", "n"}})
				if err != nil {
					t.Fatal(err)
				}
				if s.NumFields() != 2 || s.Field(0).Name != "added" {
					t.Fatalf("schema %s", s)
				}
				var got []string
				for rec, err := range records {
					if err != nil {
						t.Fatal(err)
					}
					for i := range int(rec.NumRows()) {
						got = append(got, rec.Column(1).ValueStr(i)+rec.Column(0).ValueStr(i))
					}
				}
				slices.Sort(got)
				want := []string{"1(null)", "2x", "3(null)"}
				if !fresh {
					want = want[:2]
				}
				if !slices.Equal(got, want) {
					t.Fatalf("fresh %t: %v, want %v", fresh, got, want)
				}
			}
			_, _, err := Scan(w.ctx, w.deps(), tableName, ScanOptions{Columns: []string{"nope"}})
			if err == nil || !strings.Contains(err.Error(), `no column "nope"; the columns are key, n, added`) {
				t.Fatal(err)
			}
		})
	}
}

func TestAScanCanBeLeftAtAnyRow(t *testing.T) {
	for name, o := range map[string]table.CreateOptions{"append": appendTable(), "upsert": upsertTable(1, false)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, o)
			for g := range 10 {
				rec := record(w.mem, []row{{key: fmt.Sprint(g)}}, w.table.Mode == table.Upsert)
				w.sealRecord("bucket-0000", rec)
				rec.Release()
				if g == 4 {
					w.merge("bucket-0000")
				}
			}
			_, records, err := Scan(w.ctx, w.deps(), tableName, ScanOptions{Fresh: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range records {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
		})
	}
}

func TestADamagedFileEndsAScanWithItsName(t *testing.T) {
	for name, o := range map[string]table.CreateOptions{"append": appendTable(), "upsert": upsertTable(1, false)} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, o)
			rec := record(w.mem, []row{{key: "x"}}, w.table.Mode == table.Upsert)
			defer rec.Release()
			w.sealRecord("bucket-0000", rec)
			file := w.generationFile("bucket-0000", 1)
			w.change(file, func(b []byte) []byte { b[10] ^= 1; return b })
			_, records, err := Scan(w.ctx, w.deps(), tableName, ScanOptions{Fresh: true})
			if err != nil {
				t.Fatal(err)
			}
			var last error
			for _, err := range records {
				last = err
			}
			var e *Error
			if !errors.As(last, &e) || e.Code != CodeDamaged || !strings.Contains(last.Error(), file) {
				t.Fatal(last)
			}
		})
	}
}
