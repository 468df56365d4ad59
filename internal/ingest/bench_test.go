package ingest

import (
	"context"
	"io"
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/table"
)

// BenchmarkRead reads each of the real inputs as records, typing pass included.
func BenchmarkRead(b *testing.B) {
	for _, name := range []string{"flights-3m.parquet", "zipcodes.csv", "birdstrikes.csv", "movies.json"} {
		b.Run(name, func(b *testing.B) {
			path := real(b, name)
			var rows, bytes int64
			for b.Loop() {
				src, err := Open(context.Background(), Options{Sanitize: true}, File(path))
				if err != nil {
					b.Fatal(err)
				}
				for {
					rec, err := src.Next(context.Background())
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					rows += rec.NumRows()
					rec.Release()
				}
				_, bytes = src.Progress()
				if err := src.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(bytes)
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkLoadFlights is the append ingest of the issue: 300 generations of 10,000 rows over 4 shards, into memory.
func BenchmarkLoadFlights(b *testing.B) {
	path := real(b, "flights-3m.parquet")
	var rows int64
	for b.Loop() {
		src, err := Open(context.Background(), Options{}, File(path))
		if err != nil {
			b.Fatal(err)
		}
		columns, err := schema.FromArrow(src.Schema())
		if err != nil {
			b.Fatal(err)
		}
		store := objstore.NewMemory(clock.System())
		t, err := table.Create(context.Background(), store, "flights", table.CreateOptions{Schema: columns}, table.Deps{Clock: clock.System(), Random: random.Seeded(1)})
		if err != nil {
			b.Fatal(err)
		}
		p := place{t: b, store: store, table: t}
		report, err := Load(context.Background(), p.deps("bench"), src, Plan{Table: t, Shards: 4, RowsPerGeneration: 10_000})
		if err != nil || report.Generations != 300 {
			b.Fatalf("%d generations, %v", report.Generations, err)
		}
		rows += report.Rows
		if err := src.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}
