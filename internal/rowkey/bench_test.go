package rowkey_test

import (
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/rowkey"
)

// benchRecord is n rows in random order with a wide number and two short texts.
func benchRecord(n int) arrow.Record {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "origin", Type: arrow.BinaryTypes.String},
		{Name: "destination", Type: arrow.BinaryTypes.String},
	}, nil)
	r := rand.New(rand.NewPCG(1, 2))
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	airport := func() string {
		return string([]byte{'A' + byte(r.IntN(6)), 'A' + byte(r.IntN(6)), 'A' + byte(r.IntN(6))})
	}
	for range n {
		b.Field(0).(*array.Int64Builder).Append(r.Int64N(10_000_000))
		b.Field(1).(*array.StringBuilder).Append(airport())
		b.Field(2).(*array.StringBuilder).Append(airport())
	}
	return b.NewRecord()
}

func benchKeys(b *testing.B, run func(b *testing.B, e *rowkey.Encoder, rec arrow.Record)) {
	rec := benchRecord(100_000)
	defer rec.Release()
	for name, columns := range map[string][]string{"number": {"id"}, "texts": {"origin", "destination"}} {
		b.Run(name, func(b *testing.B) {
			e, err := rowkey.NewEncoder(rec.Schema(), columns)
			if err != nil {
				b.Fatal(err)
			}
			run(b, e, rec)
			b.ReportMetric(float64(rec.NumRows())*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	benchKeys(b, func(b *testing.B, e *rowkey.Encoder, rec arrow.Record) {
		var keys rowkey.Keys
		for b.Loop() {
			if err := e.Encode(rec, &keys); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSort(b *testing.B) {
	benchKeys(b, func(b *testing.B, e *rowkey.Encoder, rec arrow.Record) {
		var keys rowkey.Keys
		if err := e.Encode(rec, &keys); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			rowkey.SortStable(&keys)
		}
	})
}
