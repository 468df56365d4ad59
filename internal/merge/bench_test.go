package merge

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/objstore"
	"tidemark/internal/rowkey"
	"tidemark/internal/schema"
	"tidemark/internal/table"
)

// measure runs a merge again and again over the same sealed generations: each run works on a store of its own that
// starts as a copy of w's, so that only the merge is timed.
func (w *world) measure(b *testing.B, rows int64, shards ...string) {
	b.Helper()
	deps := w.deps()
	deps.Mem = memory.NewGoAllocator()
	var out Outcome
	var cpu time.Duration
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		deps.Store = w.copyStore()
		runtime.GC()
		before := cpuTime(b)
		b.StartTimer()
		var err error
		if out, err = Run(w.ctx, deps, w.request(shards...)); err != nil || len(out.Failures) > 0 {
			b.Fatalf("%v %+v", err, out.Failures)
		}
		cpu += cpuTime(b) - before
	}
	b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(out.BytesOut), "bytes-out")
	b.ReportMetric(float64(len(out.Commits)), "commits")
}

// cpuTime is the processor time that this process has used, which is what a busy machine still measures right.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (w *world) copyStore() objstore.Store {
	to := objstore.NewMemory(w.clock)
	for info, err := range objstore.ListAll(w.ctx, w.store, "") {
		if err != nil {
			w.t.Fatal(err)
		}
		body, _, err := w.store.Get(w.ctx, info.Key)
		if err != nil {
			w.t.Fatal(err)
		}
		if r := to.PutIfAbsent(w.ctx, info.Key, body); r.Err != nil {
			w.t.Fatal(r.Err)
		}
	}
	return to
}

func BenchmarkAppendFlights(b *testing.B) {
	w := newWorld(b, table.CreateOptions{Schema: schemaOf(flightsSchema)})
	g := 0
	shards := []string{"a", "b", "c", "d"}
	w.flights(10_000, func(rec arrow.Record) {
		w.sealRecord(shards[g%4], rec)
		g++
	})
	w.measure(b, 3_000_000, shards...)
}

var ordersSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "at", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}},
	{Name: "customer", Type: arrow.BinaryTypes.String},
	{Name: "state", Type: arrow.BinaryTypes.String},
	{Name: "amount", Type: arrow.PrimitiveTypes.Float64},
	{Name: "items", Type: arrow.PrimitiveTypes.Int32},
}, nil)

// orders builds rows for ids, which must be in order; with operations it is a generation's record, 5 % of it deletes.
func orders(mem memory.Allocator, random *rand.Rand, ids []int64, operations bool) arrow.Record {
	s := ordersSchema
	if operations {
		s = arrow.NewSchema(append(slices.Clone(s.Fields()), arrow.Field{Name: schema.OpColumn, Type: arrow.BinaryTypes.String, Nullable: true}), nil)
	}
	b := array.NewRecordBuilder(mem, s)
	defer b.Release()
	states := []string{"new", "paid", "packed", "sent", "returned"}
	for _, id := range ids {
		b.Field(0).(*array.Int64Builder).Append(id)
		b.Field(1).(*array.TimestampBuilder).Append(arrow.Timestamp(1_700_000_000_000_000 + random.Int64N(1e13)))
		b.Field(2).(*array.StringBuilder).Append(fmt.Sprintf("customer-%07d", random.IntN(1_000_000)))
		b.Field(3).(*array.StringBuilder).Append(states[random.IntN(len(states))])
		b.Field(4).(*array.Float64Builder).Append(float64(random.IntN(1_000_000)) / 100)
		b.Field(5).(*array.Int32Builder).Append(int32(random.IntN(20)))
		if operations {
			if random.IntN(20) == 0 {
				b.Field(6).(*array.StringBuilder).Append("d")
			} else {
				b.Field(6).AppendNull()
			}
		}
	}
	return b.NewRecord()
}

// BenchmarkUpsert merges updates of 1 % and of 20 % of two million rows, all over the keys or in a twentieth of them. Rows
// per second are those of the table after the merge.
func BenchmarkUpsert(b *testing.B) {
	const rows = 2_000_000
	for _, c := range []struct {
		name      string
		updates   int
		from, key int64
	}{
		{"1%-random", rows / 100, 0, rows},
		{"20%-random", rows / 5, 0, rows},
		{"1%-clustered", rows / 100, rows / 2, rows / 20},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b, table.CreateOptions{Schema: schemaOf(ordersSchema), Key: []string{"id"}, Buckets: 2})
			random := rand.New(rand.NewPCG(1, 2))
			seal := func(ids []int64, operations bool) {
				slices.Sort(ids)
				byBucket := map[int][]int64{}
				for _, id := range ids {
					bucket := bucketOfID(id, w.table.Buckets)
					byBucket[bucket] = append(byBucket[bucket], id)
				}
				for bucket, ids := range byBucket {
					rec := orders(w.mem, random, ids, operations)
					w.sealRecord(rowkey.BucketShard(bucket), rec)
					rec.Release()
				}
			}
			for from := int64(0); from < rows; from += 500_000 {
				var ids []int64
				for id := from; id < from+500_000; id++ {
					ids = append(ids, id)
				}
				seal(ids, false)
			}
			w.merge(w.buckets()...)
			for range 4 {
				var ids []int64
				for range c.updates / 4 {
					ids = append(ids, c.from+random.Int64N(c.key))
				}
				seal(ids, true)
			}
			w.measure(b, rows, w.buckets()...)
		})
	}
}

func bucketOfID(id int64, buckets int) int {
	var key [8]byte
	for i := range key {
		key[i] = byte(uint64(id) ^ 1<<63>>(8*(7-i)))
	}
	return rowkey.Bucket(key[:], buckets)
}
