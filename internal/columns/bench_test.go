package columns_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/columns"
)

// benchRecord is n rows of a number, a decimal and a short text, a tenth of them null.
func benchRecord(n int) arrow.Record {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "price", Type: &arrow.Decimal128Type{Precision: 18, Scale: 2}, Nullable: true},
		{Name: "place", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	r := rand.New(rand.NewPCG(1, 2))
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for range n {
		if r.IntN(10) == 0 {
			for i := range schema.NumFields() {
				b.Field(i).AppendNull()
			}
			continue
		}
		b.Field(0).(*array.Int64Builder).Append(r.Int64())
		if err := b.Field(1).AppendValueFromString("12.34"); err != nil {
			panic(err)
		}
		b.Field(2).(*array.StringBuilder).Append("somewhere"[:1+r.IntN(8)])
	}
	return b.NewRecord()
}

// BenchmarkConcat splices two records in runs, as a merge with updates of some keys does.
func BenchmarkConcat(b *testing.B) {
	old, fresh := benchRecord(64<<10), benchRecord(64<<10)
	defer old.Release()
	defer fresh.Release()
	for name, length := range map[string]int{"runs of 1": 1, "runs of 100": 100, "runs of 10000": 10_000} {
		b.Run(name, func(b *testing.B) {
			var runs []columns.Run
			for from := 0; from+length <= 64<<10; from += length {
				source := old
				if len(runs)%2 == 1 {
					source = fresh
				}
				runs = append(runs, columns.Run{Source: source, From: from, N: length})
			}
			for b.Loop() {
				rec, err := columns.Concat(memory.DefaultAllocator, old.Schema(), runs)
				if err != nil {
					b.Fatal(err)
				}
				rec.Release()
			}
			b.ReportMetric(float64(len(runs)*length)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkTake(b *testing.B) {
	rec := benchRecord(64 << 10)
	defer rec.Release()
	indices := make([]int32, rec.NumRows())
	for i, j := range rand.New(rand.NewPCG(1, 2)).Perm(len(indices)) {
		indices[i] = int32(j)
	}
	for b.Loop() {
		taken, err := columns.Take(context.Background(), memory.DefaultAllocator, rec, indices)
		if err != nil {
			b.Fatal(err)
		}
		taken.Release()
	}
	b.ReportMetric(float64(len(indices))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
