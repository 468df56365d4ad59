package columns_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"

	"tidemark/internal/columns"
	"tidemark/internal/columns/columnstest"
)

// sameRows compares rows one by one, as text.
func sameRows(t interface{ Fatalf(string, ...any) }, got arrow.Record, want []string) {
	if rows := columnstest.Rows(got); !slices.Equal(rows, want) {
		t.Fatalf("got  %s\nwant %s", rows, want)
	}
}

func TestConcatIsTheRowsOfItsRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
		defer mem.AssertSize(t, 0)
		schema := columnstest.Schema(t, 3)
		sources := make([]arrow.Record, rapid.IntRange(1, 3).Draw(t, "sources"))
		rows := make([][]string, len(sources))
		for i := range sources {
			sources[i] = columnstest.Record(t, mem, schema, rapid.IntRange(0, 20).Draw(t, "rows"))
			defer sources[i].Release()
			rows[i] = columnstest.Rows(sources[i])
		}
		var runs []columns.Run
		var want []string
		for range rapid.IntRange(0, 8).Draw(t, "runs") {
			s := rapid.IntRange(0, len(sources)-1).Draw(t, "source")
			from := rapid.IntRange(0, len(rows[s])).Draw(t, "from")
			n := rapid.IntRange(0, len(rows[s])-from).Draw(t, "n")
			runs = append(runs, columns.Run{Source: sources[s], From: from, N: n})
			want = append(want, rows[s][from:from+n]...)
		}
		got, err := columns.Concat(mem, schema, runs)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Release()
		sameRows(t, got, want)
	})
}

func TestTakeIsTheRowsAtItsIndices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
		defer mem.AssertSize(t, 0)
		schema := columnstest.Schema(t, 3)
		rec := columnstest.Record(t, mem, schema, rapid.IntRange(1, 20).Draw(t, "rows"))
		defer rec.Release()
		indices := rapid.SliceOf(rapid.Int32Range(0, int32(rec.NumRows())-1)).Draw(t, "indices")
		var want []string
		rows := columnstest.Rows(rec)
		for _, i := range indices {
			want = append(want, rows[i])
		}
		got, err := columns.Take(context.Background(), mem, rec, indices)
		if err != nil {
			t.Fatal(err)
		}
		defer got.Release()
		sameRows(t, got, want)
	})
}

func TestSizeOfARecordIsTheSumOfItsParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := columnstest.Schema(t, 3)
		rec := columnstest.Record(t, memory.DefaultAllocator, schema, rapid.IntRange(0, 64).Draw(t, "rows"))
		defer rec.Release()
		n := int(rec.NumRows())
		cut := rapid.IntRange(0, n).Draw(t, "cut")
		whole, parts := columns.Size(rec, 0, n), columns.Size(rec, 0, cut)+columns.Size(rec, cut, n-cut)
		// Bitmaps round up to bytes: a byte or two per array and side.
		if parts < whole || parts > whole+200 {
			t.Fatalf("%d bytes, its parts %d", whole, parts)
		}
	})
}

func TestANullListHidesNoElementsAfterConcat(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	b := array.NewListBuilder(mem, arrow.PrimitiveTypes.Int32)
	defer b.Release()
	for range 2 {
		b.Append(true)
		b.ValueBuilder().(*array.Int32Builder).AppendValues([]int32{1, 2}, nil)
	}
	lists := b.NewListArray()
	defer lists.Release()
	hidden := array.NewData(lists.DataType(), 2, []*memory.Buffer{memory.NewBufferBytes([]byte{0b10}), lists.Data().Buffers()[1]},
		lists.Data().Children(), 1, 0)
	defer hidden.Release()
	arr := array.MakeFromData(hidden)
	defer arr.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "l", Type: lists.DataType(), Nullable: true}}, nil)
	rec := array.NewRecord(schema, []arrow.Array{arr}, 2)
	defer rec.Release()
	got, err := columns.Concat(mem, schema, []columns.Run{{Source: rec, N: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer got.Release()
	if list := got.Column(0).(*array.List); list.ListValues().Len() != 2 || !list.IsNull(0) || list.ValueStr(1) != "[1,2]" {
		t.Fatalf("%s over %s", list, list.ListValues())
	}
}

// shared is a record whose text column is one value of size bytes; many runs of it ask for much without holding much.
func shared(mem memory.Allocator, size int) arrow.Record {
	b := array.NewStringBuilder(mem)
	defer b.Release()
	b.Append(string(make([]byte, size)))
	arr := b.NewArray()
	defer arr.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	return array.NewRecord(schema, []arrow.Array{arr}, 1)
}

func TestTextBeyondTwoGiBIsRefusedBeforeItIsBuilt(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	rec := shared(mem, 1<<20)
	defer rec.Release()
	runs := make([]columns.Run, 2048)
	for i := range runs {
		runs[i] = columns.Run{Source: rec, N: 1}
	}
	if _, err := columns.Concat(mem, rec.Schema(), runs); !errors.Is(err, columns.ErrTooLarge) {
		t.Fatalf("2 GiB of text: %v", err)
	}
	if _, err := columns.Take(context.Background(), mem, rec, make([]int32, 2048)); !errors.Is(err, columns.ErrTooLarge) {
		t.Fatalf("2 GiB of text: %v", err)
	}
}

func TestRunsAndIndicesOutsideTheRecordAreRefused(t *testing.T) {
	rec := shared(memory.DefaultAllocator, 1)
	defer rec.Release()
	for _, run := range []columns.Run{{rec, 0, 2}, {rec, 1, 1}, {rec, -1, 1}, {rec, 0, -1}} {
		if _, err := columns.Concat(memory.DefaultAllocator, rec.Schema(), []columns.Run{run}); err == nil {
			t.Fatalf("took run %d+%d of one row", run.From, run.N)
		}
	}
	for _, i := range []int32{-1, 1} {
		if _, err := columns.Take(context.Background(), memory.DefaultAllocator, rec, []int32{i}); err == nil {
			t.Fatalf("took row %d of one", i)
		}
	}
	other := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.Binary}}, nil)
	if _, err := columns.Concat(memory.DefaultAllocator, other, []columns.Run{{rec, 0, 1}}); err == nil {
		t.Fatal("took text as binary")
	}
}
