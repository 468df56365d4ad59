package writer

import (
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/table"
)

// BenchmarkSeal appends and seals a generation of ten thousand rows.
func BenchmarkSeal(b *testing.B) {
	b.Run("append", func(b *testing.B) {
		s := objstore.NewMemory(clock.System())
		createTable(b, s, "events", eventsSchema, table.CreateOptions{})
		benchmarkSeal(b, mustClaim(b, Config{OnBacklog: Refuse, MaxPending: 4096}, Deps{Store: s}), false)
	})
	b.Run("upsert", func(b *testing.B) {
		_, d, _ := states(b, 1)
		benchmarkSeal(b, mustClaim(b, Config{Table: "states", Shard: "bucket-0000", MaxPending: 4096}, d), true)
	})
}

func benchmarkSeal(b *testing.B, w *Writer, upsert bool) {
	const rows = 10_000
	r := ids(b, 1, rows)
	if upsert {
		r = manyStates(b, 0, rows)
	}
	for b.Loop() {
		mustAppend(b, w, r)
		mustSeal(b, w)
	}
	b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
}
