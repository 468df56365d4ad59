package parquetfile_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/parquetfile"
)

// flights are rows like those of the flights data set: a time, two small integers, two airports.
func flights(n int) arrow.Record {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "date", Type: &arrow.TimestampType{Unit: arrow.Microsecond}, Nullable: true},
		{Name: "delay", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "distance", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "origin", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "destination", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	airports := make([]string, 250)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range airports {
		airports[i] = string([]byte{'A' + byte(r.IntN(26)), 'A' + byte(r.IntN(26)), 'A' + byte(r.IntN(26))})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for range n {
		b.Field(0).(*array.TimestampBuilder).Append(arrow.Timestamp(978307200_000000 + r.Int64N(8_000_000)*60_000000))
		b.Field(1).(*array.Int64Builder).Append(r.Int64N(200) - 30)
		b.Field(2).(*array.Int64Builder).Append(r.Int64N(2500))
		b.Field(3).(*array.StringBuilder).Append(airports[r.IntN(len(airports))])
		b.Field(4).(*array.StringBuilder).Append(airports[r.IntN(len(airports))])
	}
	return b.NewRecord()
}

func encode(tb testing.TB, rec arrow.Record) ([]byte, parquetfile.Summary) {
	tb.Helper()
	var buf bytes.Buffer
	w, err := parquetfile.NewWriter(&buf, rec.Schema(), parquetfile.WriterOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	defer w.Abort()
	if err := w.Write(rec); err != nil {
		tb.Fatal(err)
	}
	summary, err := w.Close()
	if err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes(), summary
}

func BenchmarkEncodeFlights(b *testing.B) {
	rec := flights(100_000)
	defer rec.Release()
	size := 0
	for b.Loop() {
		body, _ := encode(b, rec)
		size = len(body)
	}
	b.ReportMetric(float64(rec.NumRows())*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(size)/float64(rec.NumRows()), "bytes/row")
}

func BenchmarkDecodeFlights(b *testing.B) {
	rec := flights(100_000)
	defer rec.Release()
	body, summary := encode(b, rec)
	store := put(b, body)
	for b.Loop() {
		r, err := parquetfile.OpenReader(context.Background(), store, "f", parquetfile.ReaderOptions{XXH3: summary.XXH3})
		if err != nil {
			b.Fatal(err)
		}
		records, err := readAll(context.Background(), r)
		if err != nil {
			b.Fatal(err)
		}
		release(records)
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(rec.NumRows())*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
