package merge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/rowkey"
	"tidemark/internal/table"
)

// peakAllocator remembers the most bytes that were allocated at once.
type peakAllocator struct {
	memory.Allocator
	now, peak atomic.Int64
}

func (p *peakAllocator) count(n int) {
	now := p.now.Add(int64(n))
	for {
		peak := p.peak.Load()
		if now <= peak || p.peak.CompareAndSwap(peak, now) {
			return
		}
	}
}

func (p *peakAllocator) Allocate(size int) []byte {
	p.count(size)
	return p.Allocator.Allocate(size)
}

func (p *peakAllocator) Reallocate(size int, b []byte) []byte {
	p.count(size - len(b))
	return p.Allocator.Reallocate(size, b)
}

func (p *peakAllocator) Free(b []byte) {
	p.count(-len(b))
	p.Allocator.Free(b)
}

// mergeWithin merges with a budget, in as many executions as it takes, and returns the most Arrow memory any of them
// held and the number of commits.
func (w *world) mergeWithin(budget int64, shards ...string) (peak int64, commits int) {
	w.t.Helper()
	for {
		p := &peakAllocator{Allocator: memory.NewGoAllocator()}
		d, req := w.deps(), w.request(shards...)
		d.Mem, req.Budget = p, budget
		out, err := Run(w.ctx, d, req)
		if err != nil || len(out.Failures) > 0 {
			w.t.Fatalf("%v %+v", err, out.Failures)
		}
		if p.now.Load() != 0 {
			w.t.Fatalf("%d bytes are left", p.now.Load())
		}
		peak, commits = max(peak, p.peak.Load()), commits+len(out.Commits)
		if !slices.ContainsFunc(out.Merged, func(m ShardMerged) bool { return m.Remaining > 0 }) {
			return peak, commits
		}
	}
}

func TestMemoryStaysWithinTheBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("writes some hundred megabytes; not with -short")
	}
	const rows = 100_000
	for _, mode := range []table.Mode{table.Append, table.Upsert} {
		for _, budget := range []int64{64 << 20, 256 << 20} {
			t.Run(fmt.Sprintf("%s with %d MiB", mode, budget>>20), func(t *testing.T) {
				o := table.CreateOptions{Schema: schemaOf(ordersSchema), Mode: mode}
				if mode == table.Upsert {
					o.Key, o.Buckets = []string{"id"}, 2
				}
				w := newWorld(t, o)
				random := rand.New(rand.NewPCG(1, 2))
				want := map[int64]bool{}
				for g := range 10 {
					byBucket := map[int][]int64{}
					for range rows {
						id := random.Int64N(4 * rows)
						want[id] = true
						b := bucketOfID(id, 2)
						byBucket[b] = append(byBucket[b], id)
					}
					for b, ids := range byBucket {
						slices.Sort(ids)
						rec := orders(w.mem, random, ids, false)
						w.sealRecord(rowkey.BucketShard(b), rec)
						rec.Release()
					}
					if g == 4 {
						w.mergeWithin(budget, "bucket-0000", "bucket-0001")
					}
				}
				peak, commits := w.mergeWithin(budget, "bucket-0000", "bucket-0001")
				t.Logf("peak %d MiB in %d commits", peak>>20, commits)
				if peak > budget {
					t.Errorf("held %d MiB with a budget of %d", peak>>20, budget>>20)
				}
				total := int64(0)
				for add := range w.load().Snapshot.Files() {
					n, _ := add.Rows()
					total += n
				}
				if expected := int64(10 * rows); mode == table.Append && total != expected {
					t.Errorf("%d rows, want %d", total, expected)
				}
				if mode == table.Upsert && total != int64(len(want)) {
					t.Errorf("%d rows, want %d", total, len(want))
				}
			})
		}
	}
}
