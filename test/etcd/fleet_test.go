// Package etcd_test runs the coordination packages against real etcd members and what can happen to them.
package etcd_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/test/etcd/etcdtest"
)

// Members leave idle connections to each other behind, which their HTTP library closes in its own time. Nothing of ours
// speaks HTTP here.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"))
}

const (
	slots  = 8
	tables = 6
	ttl    = 3 * time.Second
)

var keys = etcd.KeysOf("fleet")

// storage is what the fleet is about: how far each table is sealed and merged. A merge commits only if nobody else
// did since it was planned, as a Delta commit does.
type storage struct {
	mu      sync.Mutex // guards the following
	sealed  map[string]uint64
	merged  map[string]uint64
	applied map[string]map[uint64]int // how often each generation was merged
}

func newStorage() *storage {
	return &storage{sealed: map[string]uint64{}, merged: map[string]uint64{}, applied: map[string]map[uint64]int{}}
}

func (s *storage) seal(table string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed[table]++
	return s.sealed[table]
}

func (s *storage) marks(table string) (sealed, merged uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sealed[table], s.merged[table]
}

func (s *storage) commit(table string, from, to uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.merged[table] != from {
		return false
	}
	if s.applied[table] == nil {
		s.applied[table] = map[uint64]int{}
	}
	for g := from + 1; g <= to; g++ {
		s.applied[table][g]++
	}
	s.merged[table] = to
	return true
}

// fleet is two masters, three executors and writers, all over one etcd.
type fleet struct {
	t       *testing.T
	storage *storage
	dial    func() *clientv3.Client
	ctx     context.Context
	wait    sync.WaitGroup
	tables  []string
}

func startFleet(t *testing.T, dial func() *clientv3.Client) *fleet {
	ctx, stop := context.WithCancel(context.Background())
	f := &fleet{t: t, storage: newStorage(), dial: dial, ctx: ctx}
	t.Cleanup(func() {
		stop()
		f.wait.Wait()
	})
	for i := range tables {
		f.tables = append(f.tables, fmt.Sprint("table-", i))
	}
	for i := range 2 {
		f.master(fmt.Sprint("m-", i), uint64(i+1))
	}
	for i := range 3 {
		f.executor(fmt.Sprint("x-", i), uint64(i+11))
	}
	return f
}

func (f *fleet) session(client *clientv3.Client, key string, seed uint64) *ownership.Session {
	s, err := ownership.NewSession(client, ownership.Options{
		Key: key, Config: ownership.DefaultConfig(ttl), Clock: clock.System(), Random: random.Seeded(seed), Log: hclog.NewNullLogger(),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fleet) run(loop func(context.Context) error) {
	f.wait.Go(func() {
		if err := loop(f.ctx); err != nil && f.ctx.Err() == nil {
			f.t.Errorf("a loop ended: %v", err)
		}
	})
}

// every calls f soon after a signal, and from time to time without one.
func every(ctx context.Context, signal <-chan struct{}, f func()) {
	for ctx.Err() == nil {
		f()
		select {
		case <-signal:
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// master scans its tables, folds demand and queues what is pending.
func (f *fleet) master(name string, seed uint64) {
	client := f.dial()
	session := f.session(client, keys.Master(name), seed)
	owned := ownership.NewSlots(client, keys, session, name, slots, clock.System(), random.Seeded(seed), hclog.NewNullLogger())
	cache := demand.NewCache(client, keys, clock.System(), random.Seeded(seed), hclog.NewNullLogger())
	publisher := demand.NewPublisher(client, keys, slots, clock.System(), random.Seeded(seed))
	f.run(session.Run)
	f.run(cache.Run)
	f.run(owned.Run)
	tenure := ""
	f.run(func(ctx context.Context) error {
		every(ctx, cache.Changed(), func() {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if grant, held := session.Current(); held && grant.Token != tenure {
				cache.Doubt()
				tenure = grant.Token
			}
			tokens := owned.Owned()
			var mine []int
			for _, token := range tokens {
				mine = append(mine, token.Slot)
			}
			cache.SetSlots(mine)
			for _, token := range tokens {
				for _, table := range f.tables {
					if etcd.SlotOf(table, slots) == token.Slot {
						f.serve(ctx, client, cache, publisher, token, table)
					}
				}
			}
		})
		return nil
	})
}

func (f *fleet) serve(ctx context.Context, client *clientv3.Client, cache *demand.Cache, p *demand.Publisher, token ownership.SlotToken, table string) {
	sealed, merged := f.storage.marks(table)
	_, _ = p.Publish(ctx, table, "s", demand.Event{
		TableID: table, Incarnation: 1, Source: demand.Scan,
		Sealed: &demand.Mark{Gen: sealed, Epoch: 1}, Merged: &demand.Mark{Gen: merged, Epoch: 1},
	})
	view, _ := cache.Table(token.Slot, table)
	for _, shard := range view.Shards {
		if n, known := shard.Record.Pending(); !known || n == 0 {
			continue
		}
		group := etcd.GroupOf(shard.Name)
		ready := keys.Ready(etcd.ReadyKey{Class: 1, Order: "0", Table: table, Turns: etcd.TurnsOf(group)})
		// Refused: it is queued, or held, or the slot is another's now. All are as they should be.
		_, _ = etcd.Commit(ctx, client, etcd.Txn{
			If:   []clientv3.Cmp{token.Compare(keys), etcd.Absent(ready), etcd.Absent(keys.Turn(table, group))},
			Then: []clientv3.Op{clientv3.OpPut(ready, `{"v":1}`)},
		})
	}
}

// executor claims, merges, releases, and publishes marks detached.
func (f *fleet) executor(name string, seed uint64) {
	client := f.dial()
	session := f.session(client, keys.Executor(name), seed)
	turns := ownership.NewTurns(client, keys, session, name, clock.System(), random.Seeded(seed), hclog.NewNullLogger())
	queue := ownership.NewReadyQueue(client, keys, clock.System(), random.Seeded(seed), hclog.NewNullLogger())
	publisher := demand.NewPublisher(client, keys, slots, clock.System(), random.Seeded(seed))
	detached := demand.NewDetached(publisher, func(demand.Result) {})
	f.run(session.Run)
	f.run(turns.Run)
	f.run(queue.Run)
	tenure := ""
	f.run(func(ctx context.Context) error {
		defer detached.Close()
		every(ctx, queue.Changed(), func() {
			for {
				if grant, held := session.Current(); held && grant.Token != tenure {
					queue.Doubt()
					tenure = grant.Token
				}
				unit, ok := ownership.Choose(queue.Free(), name, func(ownership.ReadyKV) bool { return true })
				if !ok {
					return
				}
				grant, err := session.Wait(ctx)
				if err != nil {
					return
				}
				turn, err := turns.Claim(ctx, grant, unit)
				if err != nil {
					return
				}
				sealed, merged := f.storage.marks(unit.Table)
				time.Sleep(5 * time.Millisecond)
				f.storage.commit(unit.Table, merged, sealed)
				outcomes := ownership.Outcomes{}
				for n := range turn.Turns.All() {
					outcomes[n] = fmt.Appendf(nil, `{"v":1,"execution":%q}`, turn.Execution)
				}
				_ = turns.Release(ctx, turn, outcomes)
				_, merged = f.storage.marks(unit.Table)
				detached.Go(publisher.Events([]demand.MergedEvent{{
					Table: unit.Table, TableID: unit.Table, Incarnation: 1, Shard: "s", Merged: demand.Mark{Gen: merged, Epoch: 1},
				}}))
			}
		})
		return nil
	})
}

// write seals on every table for a while, and publishes as a writer does: what fails is said again by the next seal.
func (f *fleet) write(d time.Duration) {
	client := f.dial()
	p := demand.NewPublisher(client, keys, slots, clock.System(), random.Seeded(99))
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for _, table := range f.tables {
			gen := f.storage.seal(table)
			ctx, cancel := context.WithTimeout(f.ctx, 50*time.Millisecond)
			_, _ = p.PublishSealed(ctx, demand.SealedEvent{
				Table: table, TableID: table, Incarnation: 1, Shard: "s", Sealed: demand.Mark{Gen: gen, Epoch: 1}, SealedMS: time.Now().UnixMilli(),
			})
			cancel()
		}
	}
}

// settles waits until everything sealed is merged, once, and etcd says so.
func (f *fleet) settles(t *testing.T) {
	t.Helper()
	client := f.dial()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		behind := f.behind(client)
		if len(behind) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("never settled: %v", behind)
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.storage.mu.Lock()
	defer f.storage.mu.Unlock()
	for table, sealed := range f.storage.sealed {
		for g := uint64(1); g <= sealed; g++ {
			if n := f.storage.applied[table][g]; n != 1 {
				t.Errorf("generation %d of %s was merged %d times", g, table, n)
			}
		}
	}
}

func (f *fleet) behind(client *clientv3.Client) []string {
	ctx, cancel := context.WithTimeout(f.ctx, time.Second)
	defer cancel()
	var behind []string
	for _, table := range f.tables {
		sealed, merged := f.storage.marks(table)
		got, err := client.Get(ctx, keys.Demand(etcd.SlotOf(table, slots), table, "s"))
		if err != nil || len(got.Kvs) == 0 {
			behind = append(behind, fmt.Sprintf("%s: no demand (%v)", table, err))
			continue
		}
		r, err := demand.Parse(got.Kvs[0].Value)
		n, known := r.Pending()
		if err != nil || !known || n != 0 || merged != sealed || r.Merged.Gen != merged {
			behind = append(behind, fmt.Sprintf("%s: sealed %d, merged %d, demand %+v (%v)", table, sealed, merged, r, err))
		}
	}
	slices.Sort(behind)
	return behind
}

func TestAFleetSurvivesWhatHappensToItsEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for minutes")
	}
	cluster := etcdtest.NewCluster(t, 3)
	f := startFleet(t, func() *clientv3.Client { return cluster.Client(t) })
	f.write(time.Second)
	f.settles(t)
	others := func(i int) (int, int) { return (i + 1) % 3, (i + 2) % 3 }

	for _, story := range []struct {
		name         string
		hurt, mend   func()
		hurtDuration time.Duration
	}{
		{"the leader is killed and comes back", func() { cluster.Stop(cluster.Leader(t)) }, func() {
			for i := range 3 {
				if !cluster.Running(i) {
					cluster.Restart(t, i)
				}
			}
		}, 3 * time.Second},
		{"a follower is cut off from its peers", func() { i, _ := others(cluster.Leader(t)); cluster.Isolate(i) }, func() { healAll(cluster) }, 3 * time.Second},
		{"the leader is cut off from its peers", func() { cluster.Isolate(cluster.Leader(t)) }, func() { healAll(cluster) }, 4 * time.Second},
		{"nobody has a majority", func() { cluster.Isolate(0); cluster.Isolate(1) }, func() { healAll(cluster) }, 4 * time.Second},
		{"requests reach the members, answers do not come back", func() { setAll(cluster, true, false) }, func() { setAll(cluster, true, true) }, 4 * time.Second},
		{"answers come, requests do not arrive", func() { setAll(cluster, false, true) }, func() { setAll(cluster, true, true) }, 4 * time.Second},
		{"every byte takes 300 ms more", func() { delayAll(cluster, 150*time.Millisecond) }, func() { delayAll(cluster, 0) }, 4 * time.Second},
		{"everything is compacted while watches are cut off", func() {
			setAll(cluster, false, false)
			resetAll(cluster)
		}, func() {
			setAll(cluster, true, true)
			client := cluster.Client(t)
			got, err := client.Put(t.Context(), "/compaction", "")
			if err == nil {
				_, err = client.Compact(t.Context(), got.Header.Revision)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, 2 * time.Second},
		{"etcd is replaced by an empty one", func() { cluster.Wipe(t) }, func() {}, 2 * time.Second},
	} {
		ok := t.Run(story.name, func(t *testing.T) {
			story.hurt()
			f.write(story.hurtDuration)
			story.mend()
			f.settles(t)
		})
		if !ok {
			return
		}
	}
}

func healAll(c *etcdtest.Cluster) {
	for i := range 3 {
		c.Heal(i)
	}
}

func setAll(c *etcdtest.Cluster, up, down bool) {
	for i := range 3 {
		c.Proxy(i).Set(up, down)
	}
}

func delayAll(c *etcdtest.Cluster, d time.Duration) {
	for i := range 3 {
		c.Proxy(i).Delay(d)
	}
}

func resetAll(c *etcdtest.Cluster) {
	for i := range 3 {
		c.Proxy(i).Reset()
	}
}
