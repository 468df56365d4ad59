package master

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
	"tidemark/internal/schedule/readyqueue"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
	"tidemark/internal/turnset"
	"tidemark/test/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSlots = 8

// rig is a cluster on a real etcd and a root in memory.
type rig struct {
	t      testing.TB
	client *clientv3.Client
	keys   etcd.Keys
	store  *objstore.Memory
	deps   table.Deps
}

func newRig(t testing.TB) *rig {
	return &rig{
		t: t, client: etcdtest.Start(t), keys: etcd.KeysOf("test"), store: objstore.NewMemory(clock.System()),
		deps: table.Deps{Clock: clock.System(), Random: random.New()},
	}
}

func (r *rig) config(id string) Config {
	log := hclog.New(&hclog.LoggerOptions{Name: id, Level: hclog.Warn, Output: testWriter{r.t}})
	return Config{
		ID: id, Cluster: "test", Slots: testSlots, Keys: r.keys, Client: r.client, Store: r.store,
		Clock: clock.System(), Random: random.New(), Log: log, Lease: ownership.DefaultConfig(3 * time.Second), BeatWatch: time.Millisecond,
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// run starts a master; the returned function stops it and waits.
func (r *rig) run(c Config) (*Master, func()) {
	r.t.Helper()
	m, err := New(c)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := m.Run(ctx); err != nil {
			r.t.Errorf("master %s: %v", c.ID, err)
		}
	}()
	stop := func() { cancel(); <-done }
	r.t.Cleanup(stop)
	return m, stop
}

func (r *rig) create(name string, properties map[string]string) *table.Table {
	r.t.Helper()
	s, err := schema.Parse(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}`)
	if err != nil {
		r.t.Fatal(err)
	}
	t, err := table.Create(r.t.Context(), r.store, name, table.CreateOptions{Schema: s, Properties: properties}, r.deps)
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

// seal seals n generations on storage and tells nobody.
func (r *rig) seal(t *table.Table, shard string, n int) *shardmanifest.Manifest {
	r.t.Helper()
	chain := shardmanifest.Open(r.store, t.Name, t.ID, shard, shardmanifest.Options{Clock: clock.System(), Random: random.New()})
	hold, err := chain.Claim(r.t.Context(), shardmanifest.ClaimOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for range n {
		g := shardmanifest.Generation{Path: chain.GenerationPath(hold.Next()), Bytes: 10, Rows: 2, SealedMS: time.Now().UnixMilli()}
		if _, err := hold.Seal(r.t.Context(), g); err != nil {
			r.t.Fatal(err)
		}
	}
	return hold.Manifest()
}

func (r *rig) publisher() *demand.Publisher {
	return demand.NewPublisher(r.client, r.keys, testSlots, clock.System(), random.New())
}

// publish tells etcd of the newest seal, as a writer does.
func (r *rig) publish(t *table.Table, m *shardmanifest.Manifest) {
	r.t.Helper()
	last := m.Generations[len(m.Generations)-1]
	_, err := r.publisher().PublishSealed(r.t.Context(), demand.SealedEvent{
		Table: t.Name, TableID: t.ID, Incarnation: t.Incarnation, Shard: m.Shard, SealedMS: last.SealedMS,
		Sealed: demand.Mark{Gen: last.Number, Epoch: last.Epoch, Bytes: last.CumBytes, Rows: last.CumRows},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// merge commits a merged mark to the log, as an execution does.
func (r *rig) merge(t *table.Table, shard string, gen int64) {
	r.t.Helper()
	snapshot, err := t.Log.Snapshot(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err = t.Log.Commit(r.t.Context(), deltalog.Intent{
		TableID: t.ID, Read: snapshot, Info: deltalog.CommitInfo{Operation: "MERGE"},
		Marks: map[string]deltalog.MarkChange{deltalog.AppID(t.ID, shard): {From: snapshot.Mark(shard), To: gen}},
	}); err != nil {
		r.t.Fatal(err)
	}
}

// until watches all of the cluster's keys until what stands there satisfies the condition.
func (r *rig) until(what string, ok func(keys map[string]string) bool) map[string]string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 60*time.Second) // a bound for a broken test, not a wait
	defer cancel()
	all, err := r.client.Get(ctx, r.keys.Prefix+"/", clientv3.WithPrefix())
	if err != nil {
		r.t.Fatal(err)
	}
	standing := map[string]string{}
	for _, kv := range all.Kvs {
		standing[string(kv.Key)] = string(kv.Value)
	}
	if ok(standing) {
		return standing
	}
	for w := range r.client.Watch(ctx, r.keys.Prefix+"/", clientv3.WithPrefix(), clientv3.WithRev(all.Header.Revision+1)) {
		for _, ev := range w.Events {
			if ev.Type == clientv3.EventTypeDelete {
				delete(standing, string(ev.Kv.Key))
			} else {
				standing[string(ev.Kv.Key)] = string(ev.Kv.Value)
			}
		}
		if ok(standing) {
			return standing
		}
	}
	r.t.Fatalf("waited in vain for %s; there is: %v", what, standing)
	return nil
}

// units is the ready units of a table.
func (r *rig) units(keys map[string]string, table string) []schedule.Unit {
	r.t.Helper()
	var units []schedule.Unit
	for key, value := range keys {
		if !strings.HasPrefix(key, r.keys.ReadyAll()) {
			continue
		}
		u, err := readyqueue.Parse(r.keys, key, []byte(value))
		if err != nil {
			r.t.Fatal(err)
		}
		if u.Table == table {
			units = append(units, u)
		}
	}
	return units
}

// ready waits for a single ready unit of a table with so many generations.
func (r *rig) ready(table string, gens uint64) schedule.Unit {
	r.t.Helper()
	var unit schedule.Unit
	r.until("a ready unit of table "+table, func(keys map[string]string) bool {
		units := r.units(keys, table)
		if len(units) != 1 || units[0].Gens != gens {
			return false
		}
		unit = units[0]
		return true
	})
	return unit
}

func TestWhatWasSealedWithoutTellingAnybodyIsFoundAndQueued(t *testing.T) {
	r := newRig(t)
	tbl := r.create("prod/events", nil)
	r.seal(tbl, "a", 7)
	r.seal(tbl, "b", 5)
	r.run(r.config("m1"))
	u := r.ready("prod/events", 12)
	if u.Kind != schedule.KindMerge || u.Groups != turnset.Of(etcd.GroupOf("a"), etcd.GroupOf("b")) || u.Class != schedule.Merge || u.TableID != tbl.ID || u.Shards != 2 {
		t.Errorf("%+v", u)
	}
}

// A table that was created and sealed to after the master has settled: its first demand record brings the scan that
// makes the merged mark known.
func TestANewTablesFirstSealIsQueued(t *testing.T) {
	r := newRig(t)
	r.run(r.config("m1"))
	r.until("the first slots", func(keys map[string]string) bool { return keys[r.keys.Slot(0)] != "" })
	tbl := r.create("t", map[string]string{"tidemark.policy.min_generations": "1"})
	r.publish(tbl, r.seal(tbl, "a", 1))
	r.ready("t", 1)
}

// lateWatcher holds back what it hears of demand until told.
type lateWatcher struct {
	clientv3.Watcher
	demand string // prefix
	held   chan struct{}
}

func (w lateWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	in := w.Watcher.Watch(ctx, key, opts...)
	if !strings.HasPrefix(key, w.demand) {
		return in
	}
	out := make(chan clientv3.WatchResponse)
	go func() {
		defer close(out)
		for answer := range in {
			if len(answer.Events) > 0 { // the watch itself is there
				select {
				case <-w.held:
				case <-ctx.Done():
				}
			}
			select {
			case out <- answer:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// A scan tells etcd what is pending, and the watch of demand brings it back when it likes. A request that was taken away in
// between was lost: too little was pending to be due without it.
func TestARequestIsNotServedBeforeWhatItsScanFoundIsKnown(t *testing.T) {
	r := newRig(t)
	table := r.create("orders", nil)
	held := make(chan struct{})
	r.client.Watcher = lateWatcher{r.client.Watcher, r.keys.Prefix + "/demand/", held}
	r.run(r.config("a"))
	record := r.keys.Table(etcd.SlotOf("orders", testSlots), "orders")
	r.until("the table's record", func(keys map[string]string) bool { return keys[record] != "" })
	r.seal(table, "s", 2) // too little to be due
	request := r.keys.Requests(etcd.SlotOf("orders", testSlots), "orders")
	if _, err := r.client.Put(t.Context(), request, `{"v":1}`); err != nil {
		t.Fatal(err)
	}
	r.until("what the scan found", func(keys map[string]string) bool {
		return keys[r.keys.Demand(etcd.SlotOf("orders", testSlots), "orders", "s")] != ""
	})
	time.Sleep(50 * time.Millisecond) // a few passes of the planner, which could take the request away
	close(held)
	r.ready("orders", 2)
}

// What was served is the request that the plan knew, not the one that has come meanwhile.
func TestARequestThatIsMadeAgainWhileItIsTakenAwayStays(t *testing.T) {
	r := newRig(t)
	r.create("t", nil)
	m, _ := r.run(r.config("a"))
	slot := etcd.SlotOf("t", testSlots)
	r.until("the table's record", func(keys map[string]string) bool { return keys[r.keys.Table(slot, "t")] != "" })
	m.mu.Lock()
	e := m.book.tables["t"]
	e.busy = true // the planner leaves it alone
	m.mu.Unlock()
	var asked [2]int64
	for i := range asked {
		put, err := r.client.Put(t.Context(), r.keys.Requests(slot, "t"), `{"v":1}`)
		if err != nil {
			t.Fatal(err)
		}
		asked[i] = put.Header.Revision
	}
	for i, revision := range asked {
		if err := m.dropRequest(t.Context(), e, m.ownedSlots()[slot], revision); err != nil {
			t.Fatal(err)
		}
		left, err := r.client.Get(t.Context(), r.keys.Requests(slot, "t"))
		if err != nil || int(left.Count) != 1-i {
			t.Errorf("after request %d was served %d are left, %v", i, left.Count, err)
		}
	}
}

func TestPausingATableEmptiesItsQueue(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t", map[string]string{"tidemark.state": "paused"})
	r.publish(tbl, r.seal(tbl, "a", 20))
	m, _ := r.run(r.config("m1"))
	r.until("the table's record", func(keys map[string]string) bool {
		return strings.Contains(keys[r.keys.Table(etcd.SlotOf("t", testSlots), "t")], `"paused"`)
	})
	r.until("demand of both marks", func(keys map[string]string) bool {
		return strings.Contains(keys[r.keys.Demand(etcd.SlotOf("t", testSlots), "t", "a")], `"merged"`)
	})
	e, err := m.Explain("t")
	if err != nil || len(e.Shards) != 1 || e.Shards[0].Code != schedule.CodePaused {
		t.Errorf("%+v, %v", e, err)
	}
	if units := r.units(r.until("anything", func(map[string]string) bool { return true }), "t"); len(units) != 0 {
		t.Errorf("queued: %+v", units)
	}
}

func TestTwoMastersShareTheSlotsAndOneTakesOverAlone(t *testing.T) {
	r := newRig(t)
	owners := func(keys map[string]string) map[string]int {
		n := map[string]int{}
		for slot := range testSlots {
			var token ownership.SlotToken
			if json.Unmarshal([]byte(keys[r.keys.Slot(slot)]), &token) == nil {
				n[token.Owner]++
			}
		}
		return n
	}
	_, stop := r.run(r.config("m1"))
	r.until("all slots with one master", func(keys map[string]string) bool { return owners(keys)["m1"] == testSlots })
	r.run(r.config("m2"))
	r.until("slots with both masters", func(keys map[string]string) bool {
		n := owners(keys)
		return n["m1"] > 0 && n["m2"] > 0 && n["m1"]+n["m2"] == testSlots
	})
	stop()
	r.until("all slots with the other master", func(keys map[string]string) bool { return owners(keys)["m2"] == testSlots })
	tbl := r.create("t", nil)
	r.publish(tbl, r.seal(tbl, "a", 20))
	r.ready("t", 20)
}

// A request that its table's owner leaves behind is answered by the next owner at once, though that has known the table for
// long and spreads its other scans over minutes.
func TestARequestThatOutlivesAnOwnerIsAnsweredByTheNextAtOnce(t *testing.T) {
	r := newRig(t)
	tables := make([]*table.Table, testSlots) // one of each slot
	for i, left := 0, testSlots; left > 0; i++ {
		name := fmt.Sprint("t", i)
		if slot := etcd.SlotOf(name, testSlots); tables[slot] == nil {
			tables[slot] = r.create(name, nil)
			left--
		}
	}
	ofSecond := func(keys map[string]string) (slots []int) {
		for slot := range testSlots {
			var token ownership.SlotToken
			if json.Unmarshal([]byte(keys[r.keys.Slot(slot)]), &token) == nil && token.Owner == "second" {
				slots = append(slots, slot)
			}
		}
		return slots
	}
	sealed := func(keys map[string]string, slot int) uint64 {
		var d demand.Record
		if json.Unmarshal([]byte(keys[r.keys.Demand(slot, tables[slot].Name, "s")]), &d) != nil || d.Sealed == nil {
			return 0
		}
		return d.Sealed.Gen
	}
	r.run(r.config("first"))
	r.until("every table's record", func(keys map[string]string) bool {
		return !slices.ContainsFunc(tables, func(t *table.Table) bool { return keys[r.keys.Table(etcd.SlotOf(t.Name, testSlots), t.Name)] == "" })
	})
	_, stop := r.run(r.config("second"))
	slots := ofSecond(r.until("slots with the second master", func(keys map[string]string) bool { return len(ofSecond(keys)) >= testSlots/2 }))
	all := func(gens uint64) func(keys map[string]string) bool {
		return func(keys map[string]string) bool {
			return !slices.ContainsFunc(slots, func(slot int) bool { return sealed(keys, slot) != gens })
		}
	}
	for _, slot := range slots {
		r.seal(tables[slot], "s", 2)
		if _, err := r.client.Put(t.Context(), r.keys.Requests(slot, tables[slot].Name), `{"v":1}`); err != nil {
			t.Fatal(err)
		}
	}
	r.until("what the second master's scans found", all(2))
	for _, slot := range slots {
		r.seal(tables[slot], "s", 3) // and nobody is told; the requests stand, for nobody merges
	}
	stop()
	r.until("what the first master's scans found", all(5))
}

// Invariant 11: nothing but storage is needed.
func TestEverythingInEtcdIsRebuiltFromStorage(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t", nil)
	r.seal(tbl, "a", 30)
	r.merge(tbl, "a", 10)
	r.run(r.config("m1"))
	before := r.until("the unit", func(keys map[string]string) bool { return len(r.units(keys, "t")) == 1 })
	if _, err := r.client.Delete(t.Context(), r.keys.Prefix+"/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	after := r.until("the unit once more", func(keys map[string]string) bool {
		return len(r.units(keys, "t")) == 1 && keys[r.keys.Cluster()] != ""
	})
	if after[r.keys.Cluster()] != before[r.keys.Cluster()] {
		t.Errorf("the cluster's record was %s and is %s", before[r.keys.Cluster()], after[r.keys.Cluster()])
	}
	if u := r.ready("t", 20); u.Gens != 20 {
		t.Errorf("%+v", u)
	}
}

func TestADroppedTableLeavesNothingInEtcd(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t", nil)
	r.seal(tbl, "a", 30)
	r.run(r.config("m1"))
	r.ready("t", 30)
	if err := table.Drop(t.Context(), r.store, "t", r.deps); err != nil {
		t.Fatal(err)
	}
	// A late writer's event brings the scan forward.
	if _, err := r.publisher().PublishSealed(t.Context(), demand.SealedEvent{
		Table: "t", TableID: tbl.ID, Incarnation: 1, Shard: "b", Sealed: demand.Mark{Gen: 1, Epoch: 1}, SealedMS: 1,
	}); err != nil {
		t.Fatal(err)
	}
	r.until("an empty etcd", func(keys map[string]string) bool {
		for key := range keys {
			for _, kind := range []string{"/demand/", "/ready/", "/tables/"} {
				if strings.HasPrefix(key, r.keys.Prefix+kind) {
					return false
				}
			}
		}
		return true
	})
	// So does an execution that was running meanwhile.
	outcome := r.keys.Outcome("t", 3)
	if _, err := r.client.Put(t.Context(), outcome, `{"v":1,"execution":"late"}`); err != nil {
		t.Fatal(err)
	}
	r.until("the outcome to go", func(keys map[string]string) bool { return keys[outcome] == "" })
}

// merged tells etcd of a merged mark, as an executor does.
func (r *rig) merged(t *table.Table, shard string, gen uint64) {
	r.t.Helper()
	_, err := r.publisher().PublishMerged(r.t.Context(), demand.MergedEvent{
		Table: t.Name, TableID: t.ID, Incarnation: t.Incarnation, Shard: shard,
		Merged: demand.Mark{Gen: gen, Epoch: 1, Bytes: int64(gen) * 10, Rows: int64(gen) * 2},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// From a writer's event to the ready key: publish, watch, fold, decide, transaction, watch.
func BenchmarkDemandToReady(b *testing.B) {
	r := newRig(b)
	var tables []*table.Table
	for i := range 50 {
		tables = append(tables, r.create(fmt.Sprint("t", i), map[string]string{"tidemark.policy.min_generations": "1"}))
		r.publish(tables[i], r.seal(tables[i], "a", 1))
	}
	r.run(r.config("m1"))
	for _, t := range tables {
		r.ready(t.Name, 1)
	}
	ready := r.client.Watch(b.Context(), r.keys.ReadyAll(), clientv3.WithPrefix())
	published := map[string]time.Time{}
	var waits []time.Duration
	for i := 0; b.Loop(); i++ {
		t := tables[i%len(tables)]
		gen := uint64(2) << (i / len(tables) % 40) // the key is written again when the size changes by a power of two
		published[t.Name] = time.Now()
		if _, err := r.publisher().PublishSealed(b.Context(), demand.SealedEvent{Table: t.Name, TableID: t.ID, Incarnation: 1,
			Shard: "a", Sealed: demand.Mark{Gen: gen, Epoch: 1}, SealedMS: 1}); err != nil {
			b.Fatal(err)
		}
		for w := range ready {
			if wrote := slices.ContainsFunc(w.Events, func(ev *clientv3.Event) bool { return ev.Type == clientv3.EventTypePut }); wrote {
				break
			}
		}
		waits = append(waits, time.Since(published[t.Name]))
	}
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
}
