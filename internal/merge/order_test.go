package merge

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"

	"tidemark/internal/schema"
)

// row is one version of a key in a test.
type row struct {
	key    string
	seq    int64
	value  int64
	remove bool
}

var testSchema = arrow.NewSchema([]arrow.Field{
	{Name: "key", Type: arrow.BinaryTypes.String},
	{Name: "seq", Type: arrow.PrimitiveTypes.Int64},
	{Name: "value", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
}, nil)

var testGenerationSchema = arrow.NewSchema(append(testSchema.Fields(),
	arrow.Field{Name: schema.OpColumn, Type: arrow.BinaryTypes.String, Nullable: true}), nil)

// record builds a record of rows; a generation's has the _op column.
func record(mem memory.Allocator, rows []row, generation bool) arrow.Record {
	s := testSchema
	if generation {
		s = testGenerationSchema
	}
	b := array.NewRecordBuilder(mem, s)
	defer b.Release()
	for _, r := range rows {
		b.Field(0).(*array.StringBuilder).Append(r.key)
		b.Field(1).(*array.Int64Builder).Append(r.seq)
		if r.remove {
			b.Field(2).AppendNull()
		} else {
			b.Field(2).(*array.Int64Builder).Append(r.value)
		}
		if generation {
			if r.remove {
				b.Field(3).(*array.StringBuilder).Append("d")
			} else {
				b.Field(3).AppendNull()
			}
		}
	}
	return b.NewRecord()
}

// rowsOf reads a record back.
func rowsOf(rec arrow.Record) (out []row) {
	for i := range int(rec.NumRows()) {
		out = append(out, row{
			key: rec.Column(0).(*array.String).Value(i), seq: rec.Column(1).(*array.Int64).Value(i),
			value: rec.Column(2).(*array.Int64).Value(i),
		})
	}
	return out
}

// model is a table as a plain map.
type model map[string]row

func (m model) apply(rows []row, sequence bool) {
	for _, r := range rows {
		old, ok := m[r.key]
		if ok && sequence && r.seq < old.seq {
			continue
		}
		if r.remove {
			delete(m, r.key)
		} else {
			m[r.key] = r
		}
	}
}

func (m model) rows() (out []row) {
	for _, r := range m {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b row) int { return cmp.Compare(a.key, b.key) })
	return out
}

// sortedByKey is rows as a writer seals them: stably sorted by key.
func sortedByKey(rows []row) []row {
	out := slices.Clone(rows)
	slices.SortStableFunc(out, func(a, b row) int { return cmp.Compare(a.key, b.key) })
	return out
}

// testRun is a run over rows in batches of the sizes that cut gives.
func testRun(t interface{ Fatal(...any) }, s shape, arrival int, rows []row, cut func(left int) int) *run {
	b, err := newBlocks(s)
	if err != nil {
		t.Fatal(err)
	}
	return &run{arrival: arrival, next: func(ctx context.Context) (*block, error) {
		if len(rows) == 0 {
			return nil, io.EOF
		}
		n := cut(len(rows))
		rec := record(s.mem, rows[:n], arrival > 0)
		defer rec.Release()
		rows = rows[n:]
		return b.of(ctx, rec)
	}}
}

func testShape(mem memory.Allocator, sequence bool) shape {
	s := shape{mem: mem, arrow: testSchema, key: []string{"key"}}
	if sequence {
		s.sequence = "seq"
	}
	return s
}

// gathered collects what a merger emits.
type gathered struct {
	rows []row
	err  error
	last []byte
}

func (g *gathered) take(_ context.Context, s sorted) error {
	defer s.rows.Release()
	if g.last != nil && bytes.Compare(s.min, g.last) <= 0 {
		g.err = fmt.Errorf("a record starts at key %q, not above %q", s.min, g.last)
	}
	g.last = bytes.Clone(s.max)
	g.rows = append(g.rows, rowsOf(s.rows)...)
	return g.err
}

func drawRows(t *rapid.T, label string) []row {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) row {
		return row{
			key:    rapid.StringMatching(`[ab]{0,3}|longer than eight bytes [abc]`).Draw(t, "key"),
			seq:    rapid.Int64Range(0, 4).Draw(t, "seq"),
			value:  rapid.Int64Range(0, 1000).Draw(t, "value"),
			remove: rapid.IntRange(0, 3).Draw(t, "op") == 0,
		}
	}), 0, 30).Draw(t, label)
}

func TestMergingSortedRunsGivesWhatAMapGives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		defer mem.AssertSize(t, 0)
		ctx := context.Background()
		sequence := rapid.Bool().Draw(t, "sequence")
		s := testShape(mem, sequence)
		cut := func(left int) int { return rapid.IntRange(1, min(left, 6)).Draw(t, "batch") }

		want := model{}
		base := model{}
		base.apply(drawRows(t, "base"), sequence)
		var g gathered
		c := &collector{shape: s, held: rapid.Int64Range(0, 2000).Draw(t, "held"), give: g.take}
		m := &merger{out: c}
		defer m.close()
		add := func(r *run) {
			if err := m.add(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
		want.apply(base.rows(), sequence)
		add(testRun(t, s, 0, base.rows(), cut))
		for n := range rapid.IntRange(0, 5).Draw(t, "generations") {
			rows := drawRows(t, "generation")
			want.apply(rows, sequence)
			add(testRun(t, s, n+1, sortedByKey(rows), cut))
		}
		// A bound somewhere in between must not change anything.
		if bound := rapid.StringMatching(`[ab]{0,3}`).Draw(t, "bound"); bound != "" {
			b, err := newBlocks(s)
			if err != nil {
				t.Fatal(err)
			}
			rec := record(mem, []row{{key: bound}}, false)
			defer rec.Release()
			block, err := b.of(ctx, rec)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.mergeBelow(ctx, block.keys.At(0)); err != nil {
				t.Fatal(err)
			}
			if first := m.first(); first != nil && bytes.Compare(first, block.keys.At(0)) < 0 {
				t.Fatalf("key %q is left below the bound", first)
			}
			block.release()
		}
		if err := m.mergeBelow(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.flush(ctx); err != nil {
			t.Fatal(err)
		}
		if got, want := g.rows, want.rows(); !slices.Equal(got, want) {
			t.Fatalf("merged\n%v\nwant\n%v", got, want)
		}
	})
}

func TestAnUnsortedRunIsRefused(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	for _, batch := range []int{1, 2} {
		r := testRun(t, testShape(mem, false), 1, []row{{key: "b"}, {key: "a"}}, func(left int) int { return min(left, batch) })
		m := &merger{out: &collector{shape: testShape(mem, false), give: new(gathered).take}}
		err := m.add(context.Background(), r)
		if err == nil {
			err = m.mergeBelow(context.Background(), nil)
		}
		if _, ok := err.(*unsortedError); !ok {
			t.Fatalf("batches of %d: %v", batch, err)
		}
		m.out.(*collector).drop()
		m.close()
	}
}

func TestGallopFindsTheFirstRowNotBelowTheBound(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 70).Draw(t, "rows")
		var rows []row
		for i := range n {
			rows = append(rows, row{key: fmt.Sprintf("%03d", 2*i)})
		}
		r := testRun(t, testShape(mem, false), 0, rows, func(left int) int { return left })
		if _, err := r.load(context.Background()); err != nil {
			t.Fatal(err)
		}
		defer r.block.release()
		at := rapid.IntRange(0, n-1).Draw(t, "at")
		r.stand(at)
		bound := rapid.IntRange(2*at, 2*n).Draw(t, "bound")
		s := testShape(mem, false)
		b, err := newBlocks(s)
		if err != nil {
			t.Fatal(err)
		}
		rec := record(mem, []row{{key: fmt.Sprintf("%03d", bound)}}, false)
		defer rec.Release()
		block, err := b.of(context.Background(), rec)
		if err != nil {
			t.Fatal(err)
		}
		defer block.release()
		want := min((bound+1)/2, n) - at
		if got := r.gallop(block.keys.At(0), n-at); got != want {
			t.Fatalf("%d rows from %d of %d are below %d, want %d", got, at, n, bound, want)
		}
	})
}

// Comparing keys, galloping and putting runs in their places is done for every row of a merge: it allocates nothing.
func TestOrderingAllocatesNothingPerRow(t *testing.T) {
	mem := memory.NewGoAllocator()
	s := testShape(mem, false)
	runs := make([]*run, 2)
	for i := range runs {
		var rows []row
		for n := range 4096 {
			rows = append(rows, row{key: fmt.Sprintf("a key with a long head %05d", 2*n+i)})
		}
		runs[i] = testRun(t, s, i, rows, func(left int) int { return left })
		if _, err := runs[i].load(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer runs[i].block.release()
	}
	at := 0
	if n := testing.AllocsPerRun(1000, func() {
		runs[0].stand(at % 4000)
		runs[1].stand(at % 4000)
		if !runs[0].before(runs[1]) || runs[0].gallop(runs[1].key, 64) != 1 {
			t.Fatal("the runs do not alternate")
		}
		at++
	}); n != 0 {
		t.Errorf("%v allocations per row", n)
	}
}
