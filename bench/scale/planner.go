package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"tidemark/internal/demand"
	"tidemark/internal/schedule"
)

// planner measures schedule.Decide alone, on one table of very many shards and on very many tables.
func planner(context.Context, *bench) error {
	const now = 1_800_000_000_000
	perShard := map[int]float64{}
	for _, shards := range []int{10_000, 100_000, 1_000_000} {
		in := schedule.Input{NowMS: now, Table: "t", Policy: schedule.DefaultPolicy()}
		before := heap()
		for i := range shards {
			in.Shards = append(in.Shards, schedule.Shard{Name: fmt.Sprint("shard-", i), Group: i % schedule.GroupCount, Known: true,
				Gens: uint64(i % 3), Bytes: int64(i), OldestMS: now - int64(i%100_000), Exact: true, Revision: int64(i)})
		}
		bytes := float64(heap()-before) / float64(shards)
		took, allocated := measure(func() { schedule.Decide(in) })
		perShard[shards] = float64(took.Nanoseconds()) / float64(shards)
		figure(fmt.Sprintf("planner: one pass over a table of %d shards", shards),
			fmt.Sprintf("%v, %.1f ns/shard, %d kB", took.Round(time.Microsecond), perShard[shards], allocated/1000), "")
		figure(fmt.Sprintf("planner: input of %d shards in memory", shards), fmt.Sprintf("%.0f B/shard", bytes), "")
		runtime.KeepAlive(in)
	}
	figure("planner: time per shard at a million, beside that at ten thousand",
		fmt.Sprintf("× %.2f", perShard[1_000_000]/perShard[10_000]), "linear: × 1")

	inputs := make([]schedule.Input, 500_000)
	shards := [2]schedule.Shard{{Name: "a", Known: true, Gens: 3, Bytes: 1 << 20, OldestMS: now - 10_000, Exact: true},
		{Name: "b", Group: 7, Known: true, Gens: 2, Bytes: 1 << 20, OldestMS: now - 20_000, Exact: true}}
	for i := range inputs {
		inputs[i] = schedule.Input{NowMS: now, Table: "t", Policy: schedule.DefaultPolicy(), Shards: shards[:]}
	}
	took, _ := measure(func() {
		for _, in := range inputs {
			schedule.Decide(in)
		}
	})
	figure("planner: one pass over 500,000 tables of two shards", fmt.Sprintf("%v, %.0f ns/table", took.Round(time.Millisecond),
		float64(took.Nanoseconds())/float64(len(inputs))), "")
	return nil
}

// fold measures what becomes of an event: the join of two records in memory, and the reading of a stored one.
func fold(context.Context, *bench) error {
	const shards, rounds = fleetShards, 100
	records := make([]demand.Record, shards)
	before := heap()
	for i := range records {
		records[i], _ = demand.Join(demand.Record{}, demand.Event{TableID: "0123456789", Incarnation: 1, AtMS: 1, Source: demand.Scan,
			Sealed: &demand.Mark{}, Merged: &demand.Mark{}})
	}
	gens := uint64(0)
	took, _ := measureOnce(func() {
		for range rounds {
			gens++
			for i := range records {
				foldOne(&records[i], gens)
			}
		}
	})
	events := float64(shards * rounds)
	_, allocations := allocationsOf(func() {
		gens++
		for i := range records {
			foldOne(&records[i], gens)
		}
	})
	figure("fold: events joined per second and core", fmt.Sprintf("%.2f M", events/took.Seconds()/1e6), "≥ 1 M")
	figure("fold: allocations per event", fmt.Sprintf("%.1f", float64(allocations)/shards), "")
	figure("fold: memory of a folded record", fmt.Sprintf("%.0f B/shard", float64(heap()-before)/shards), "")

	stored := records[0].Encode()
	parsed, _ := measure(func() {
		for range shards {
			if _, err := demand.Parse(stored); err != nil {
				panic(err)
			}
		}
	})
	_, allocations = allocationsOf(func() { _, _ = demand.Parse(stored) })
	figure("fold: stored records read per second and core", fmt.Sprintf("%.2f M, %d allocations, %d B", shards/parsed.Seconds()/1e6,
		allocations, len(stored)), "")
	runtime.KeepAlive(records)
	return nil
}

// foldOne is a seal and, every eighth time, the merge of what was sealed.
func foldOne(r *demand.Record, gen uint64) {
	ms := int64(1_800_000_000_000 + gen)
	ev := demand.Event{TableID: "0123456789", Incarnation: 1, AtMS: ms, Source: demand.Writer}
	if gen%8 == 0 {
		ev.Source, ev.Merged = demand.Executor, &demand.Mark{Gen: gen, Epoch: 1, Bytes: int64(gen) << 20, Rows: int64(gen) * 100}
	} else {
		ev.Sealed = &demand.Mark{Gen: gen, Epoch: 1, Bytes: int64(gen) << 20, Rows: int64(gen) * 100}
		ev.SealedTimes = []demand.SealTime{{Gen: gen, MS: ms}}
	}
	*r, _ = demand.Join(*r, ev)
}

// measure is the time and the bytes allocated of one run, the fastest of five.
func measure(f func()) (best time.Duration, allocated uint64) {
	for i := range 5 {
		took, bytes := measureOnce(f)
		if i == 0 || took < best {
			best, allocated = took, bytes
		}
	}
	return best, allocated
}

func measureOnce(f func()) (time.Duration, uint64) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	f()
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	return took, after.TotalAlloc - before.TotalAlloc
}

func allocationsOf(f func()) (bytes, objects uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, after.Mallocs - before.Mallocs
}

// heap is what is alive.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
