package demo

import (
	"maps"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/rowkey"
)

// generate makes rows rows in batches and hands them to see.
func generate(t testing.TB, seed uint64, writer, writers, rows, batch int, see func(events, states arrow.Record)) *Generator {
	t.Helper()
	g, err := NewGenerator(memory.DefaultAllocator, seed, writer, writers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Release)
	for made := 0; made < rows; {
		events, states, err := g.Next(min(batch, rows-made))
		if err != nil {
			t.Fatal(err)
		}
		n := int(events.NumRows() + states.NumRows())
		if n == 0 {
			break
		}
		made += n
		see(events, states)
		events.Release()
		states.Release()
	}
	return g
}

func TestASeedAlwaysGivesTheSameRows(t *testing.T) {
	run := func(seed uint64, batch int) (Sum, Sum) {
		g := generate(t, seed, 1, 4, 30_000, batch, func(_, _ arrow.Record) {})
		return g.Expected()
	}
	events, states := run(7, 5000)
	if e, s := run(7, 5000); e != events || s != states {
		t.Errorf("the same seed gave %v and %v, then %v and %v", events, states, e, s)
	}
	if e, _ := run(8, 5000); e == events {
		t.Error("another seed gave the same rows")
	}
}

// TestTheExpectationIsWhatTheTablesEndUpHolding replays all versions into a map, as a plain reading of the rules of an
// upsert table, and sums what is left.
func TestTheExpectationIsWhatTheTablesEndUpHolding(t *testing.T) {
	type row struct {
		sequence arrow.Timestamp
		rec      arrow.Record
	}
	table := map[int64]row{}
	var events Sum
	ids, deletes, late := map[int64]bool{}, 0, 0
	const writer, writers = 2, 4
	encoder, err := rowkey.NewEncoder(StateSchema, []string{"order_id"})
	if err != nil {
		t.Fatal(err)
	}
	g := generate(t, 42, writer, writers, 60_000, 4096, func(e, s arrow.Record) {
		sum, err := Checksum(e)
		if err != nil {
			t.Fatal(err)
		}
		events = events.Plus(sum)
		for _, id := range e.Column(0).(*array.Int64).Int64Values() {
			if ids[id] {
				t.Fatalf("event %d is there twice", id)
			}
			ids[id] = true
		}
		var keys rowkey.Keys
		plain := array.NewRecord(StateSchema, s.Columns()[:s.NumCols()-1], s.NumRows())
		if err := encoder.Encode(plain, &keys); err != nil {
			t.Fatal(err)
		}
		ops := s.Column(int(s.NumCols()) - 1).(*array.String)
		for i := range int(s.NumRows()) {
			if rowkey.Bucket(keys.At(i), writers) != writer {
				t.Fatal("an order of another writer's bucket")
			}
			id, sequence := s.Column(0).(*array.Int64).Value(i), s.Column(1).(*array.Timestamp).Value(i)
			old, exists := table[id]
			switch {
			case exists && sequence < old.sequence:
				late++
			case ops.Value(i) == "d":
				deletes++
				delete(table, id)
			default:
				table[id] = row{sequence, s.NewSlice(int64(i), int64(i+1))}
			}
		}
	})
	var states Sum
	for _, id := range slices.Sorted(maps.Keys(table)) {
		sum, err := Checksum(table[id].rec)
		if err != nil {
			t.Fatal(err)
		}
		states = states.Plus(sum)
	}
	if e, s := g.Expected(); e != events || s != states {
		t.Errorf("expected %v and %v, got %v and %v", e, s, events, states)
	}
	if deletes < 100 || late < 100 || len(table) < 1000 {
		t.Errorf("dull data: %d deletes, %d late versions, %d orders left", deletes, late, len(table))
	}
}

func TestWritersShareNoOrderAndNoEvent(t *testing.T) {
	orders, events := map[int64]int{}, map[int64]int{}
	for writer := range 3 {
		generate(t, 1, writer, 3, 9000, 3000, func(e, s arrow.Record) {
			for column, seen := range map[arrow.Array]map[int64]int{s.Column(0): orders, e.Column(0): events} {
				for _, id := range column.(*array.Int64).Int64Values() {
					if by, ok := seen[id]; ok && by != writer {
						t.Fatalf("%d is of writer %d and of writer %d", id, by, writer)
					}
					seen[id] = writer
				}
			}
		})
	}
}

func TestChecksumIgnoresOrderAndCutsButNotValues(t *testing.T) {
	generate(t, 3, 0, 1, 2000, 2000, func(rec, _ arrow.Record) {
		whole, err := Checksum(rec)
		if err != nil {
			t.Fatal(err)
		}
		var parts Sum
		for from := rec.NumRows(); from > 0; from -= 100 {
			part := rec.NewSlice(max(0, from-100), from)
			sum, err := Checksum(part)
			if err != nil {
				t.Fatal(err)
			}
			parts = parts.Plus(sum)
			part.Release()
		}
		if parts != whole {
			t.Errorf("in parts %v, whole %v", parts, whole)
		}
		fields, columns := slices.Clone(rec.Schema().Fields()), slices.Clone(rec.Columns())
		slices.Reverse(fields)
		slices.Reverse(columns)
		turned := array.NewRecord(arrow.NewSchema(fields, nil), columns, rec.NumRows())
		if sum, err := Checksum(turned); err != nil || sum != whole {
			t.Errorf("with columns in another order %v (%v)", sum, err)
		}
		columns[0], columns[1] = columns[1], columns[0] // two string columns change places
		swapped := array.NewRecord(arrow.NewSchema(fields, nil), columns, rec.NumRows())
		if sum, err := Checksum(swapped); err != nil || sum.Hash == whole.Hash {
			t.Errorf("swapped columns were not noticed (%v)", err)
		}
	})
}

func BenchmarkGenerator(b *testing.B) {
	var rows int64
	g, err := NewGenerator(memory.DefaultAllocator, 1, 0, 4)
	if err != nil {
		b.Fatal(err)
	}
	defer g.Release()
	b.ReportAllocs()
	for b.Loop() {
		events, states, err := g.Next(10_000)
		if err != nil {
			b.Fatal(err)
		}
		rows += events.NumRows() + states.NumRows()
		events.Release()
		states.Release()
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}
