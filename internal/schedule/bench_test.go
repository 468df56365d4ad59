package schedule

import (
	"fmt"
	"testing"
)

// One planner pass. The time per shard must not grow with the number of shards.
func BenchmarkDecide(b *testing.B) {
	for _, shards := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint(shards), func(b *testing.B) {
			in := Input{NowMS: drawnNow, Table: "t", Policy: DefaultPolicy()}
			for i := range shards {
				in.Shards = append(in.Shards, Shard{Name: fmt.Sprint("shard-", i), Group: i % GroupCount, Known: true,
					Gens: uint64(i % 3), Bytes: int64(i), OldestMS: drawnNow - int64(i%100_000), Exact: true, Revision: int64(i)})
			}
			b.ReportAllocs()
			for b.Loop() {
				Decide(in)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(shards), "ns/shard")
		})
	}
}
