package master

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/demand"
	"tidemark/internal/etcd"
)

// The size of a real fleet: 13,400 tables with 27,000 shards.
const (
	fleetTables = 13_400
	fleetShards = 27_000
)

// planned waits until a master has decided so many tables, and returns how long that took.
func planned(b *testing.B, m *Master, tables int) time.Duration {
	begin := time.Now()
	for {
		m.mu.Lock()
		n := 0
		if m.started {
			for _, e := range m.book.tables {
				if e.planned && !e.busy && e.record != nil && len(e.shards) > 0 && e.shards[0].Known {
					n++
				}
			}
		}
		m.mu.Unlock()
		if n >= tables {
			return time.Since(begin)
		}
		if err := m.config.Clock.Sleep(b.Context(), 5*time.Millisecond); err != nil {
			b.Fatal(err)
		}
	}
}

// A master that takes over all slots from etcd. Goal: under 2 s.
func BenchmarkTakeoverFromEtcd(b *testing.B) {
	r := newRig(b)
	var ops []clientv3.Op
	for i := range fleetTables {
		name := fmt.Sprintf("team-%d/table-%d", i%100, i)
		slot := etcd.SlotOf(name, testSlots)
		record, err := json.Marshal(TableRecord{V: 1, TableID: fmt.Sprint("id-", i), Incarnation: 1, Mode: "append",
			CheckpointEvery: 10, CleanedMS: time.Now().UnixMilli()})
		if err != nil {
			b.Fatal(err)
		}
		ops = append(ops, clientv3.OpPut(r.keys.Table(slot, name), string(record)))
		for j := i; j < fleetShards; j += fleetTables {
			d, _ := demand.Join(demand.Record{}, demand.Event{TableID: fmt.Sprint("id-", i), Incarnation: 1, AtMS: 1, Source: demand.Scan,
				Sealed: &demand.Mark{Gen: uint64(j % 12), Epoch: 1, Bytes: 1 << 20}, Merged: &demand.Mark{},
				SealedTimes: []demand.SealTime{{Gen: 1, MS: time.Now().UnixMilli()}}})
			ops = append(ops, clientv3.OpPut(r.keys.Demand(slot, name, fmt.Sprint("shard-", j)), string(d.Encode())))
		}
	}
	if _, err := etcd.WriteChunks(b.Context(), r.client, nil, ops); err != nil {
		b.Fatal(err)
	}
	// The first master fills the ready queue; a successor adopts it.
	m, stop := r.run(r.config("m1"))
	first := planned(b, m, fleetTables)
	stop()
	m, stop = r.run(r.config("m2"))
	takeover := planned(b, m, fleetTables)
	stop()
	for b.Loop() { // each of the two happens once
	}
	b.ReportMetric(first.Seconds(), "first-s")
	b.ReportMetric(takeover.Seconds(), "takeover-s")
}

// The same with nothing in etcd, from a store in memory. Goal: under 60 s.
func BenchmarkTakeoverFromStorage(b *testing.B) {
	for _, tables := range []int{1000, fleetTables} {
		b.Run(fmt.Sprint(tables), func(b *testing.B) {
			r := newRig(b)
			begin := time.Now()
			for i := range tables {
				t := r.create(fmt.Sprintf("team-%d/table-%d", i%100, i), nil)
				for j := range fleetShards / fleetTables {
					r.seal(t, fmt.Sprint("shard-", j), 1)
				}
			}
			b.Logf("creating the tables took %v", time.Since(begin))
			m, stop := r.run(r.config("m1"))
			takeover := planned(b, m, tables)
			stop()
			for b.Loop() { // it happens once
			}
			b.ReportMetric(takeover.Seconds(), "takeover-s")
		})
	}
}
