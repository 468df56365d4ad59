package executor

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
	"tidemark/internal/table"
)

// hangingStore answers a read of a data file only once its caller has given up while it hangs, and counts what it is asked.
type hangingStore struct {
	objstore.Store
	hangs   atomic.Bool
	waiting chan struct{} // filled when somebody waits
	asked   atomic.Int64
}

func newHangingStore(s objstore.Store) *hangingStore {
	h := &hangingStore{Store: s, waiting: make(chan struct{}, 1)}
	h.hangs.Store(true)
	return h
}

func (h *hangingStore) wait(ctx context.Context, key string) {
	h.asked.Add(1)
	if !h.hangs.Load() || !strings.HasSuffix(key, ".parquet") {
		return
	}
	select {
	case h.waiting <- struct{}{}:
	default:
	}
	<-ctx.Done()
}

func (h *hangingStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	h.wait(ctx, key)
	return h.Store.Get(context.WithoutCancel(ctx), key)
}

func (h *hangingStore) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	h.wait(ctx, key)
	return h.Store.GetRange(context.WithoutCancel(ctx), key, offset, length)
}

func (h *hangingStore) List(ctx context.Context, req objstore.ListRequest) (objstore.Page, error) {
	h.asked.Add(1)
	return h.Store.List(ctx, req)
}

func (h *hangingStore) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	h.asked.Add(1)
	return h.Store.PutIfAbsent(ctx, key, body)
}

func (h *hangingStore) Create(ctx context.Context, key string) (objstore.Upload, error) {
	h.asked.Add(1)
	return h.Store.Create(ctx, key)
}

// executorOn is an executor on another store than the rig's, with another idle timeout.
func (r *rig) executorOn(store objstore.Store, idle time.Duration) (*Executor, *prometheus.Registry) {
	r.t.Helper()
	metrics := prometheus.NewRegistry()
	e, err := New(Config{ID: "one", Slots: 2, Memory: 2 * MemoryMin, Lease: ownership.DefaultConfig(2 * time.Second), IdleTimeout: idle}, Deps{
		Client: r.client, Keys: r.keys, Store: store, Clock: r.clock, Random: r.random, Mem: r.mem,
		Log: hclog.NewNullLogger(), Metrics: metrics,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return e, metrics
}

// Invariant 10: its heartbeat goes on, and is not taken for progress. Nor is what the store says too late held against the
// generation that was being read.
func TestAnExecutionThatCompletesNothingGivesUpAndTheNextOneStartsFromStorage(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.seal("orders", "a", 3)
	store := newHangingStore(r.store)
	e, _ := r.executorOn(store, time.Second)
	drain := r.run(e)
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.AllGroups)
	r.await(r.keys.Outcome("orders", 0), "an outcome", func([]byte) bool { return true })
	o := r.outcome("orders", etcd.GroupOf("a"))
	if f := o.Failure; f == nil || f.Code != "stuck" || f.Class != schedule.Retryable {
		t.Errorf("outcome: %+v", o)
	}
	if held, err := r.client.Get(t.Context(), r.keys.TurnsAll(), clientv3.WithPrefix()); err != nil || len(held.Kvs) != 0 {
		t.Errorf("turns still held: %v, %v", held, err)
	}
	store.hangs.Store(false)
	r.put(r.keys.Outcome("orders", etcd.GroupOf("a")), schedule.Outcome{V: 1}) // its backoff is over
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.TurnsOf(etcd.GroupOf("a")))
	r.awaitMerged("orders", "a", 3)
	drain()
}

// A second SIGTERM ends the context with a cause of its own.
func TestACancelledExecutionGivesItsTurnsBackAndBlamesNothing(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.seal("orders", "a", 3)
	store := newHangingStore(r.store)
	e, _ := r.executorOn(store, time.Minute)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, nil) }()
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.AllGroups)
	<-store.waiting
	cancel(errors.New("interrupted by a second signal"))
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	o := r.outcome("orders", etcd.GroupOf("a"))
	if f := o.Failure; f == nil || f.Class != schedule.Lost || !strings.Contains(f.Message, "second signal") || len(o.Shards) != 0 {
		t.Errorf("outcome: %+v", o)
	}
	if held, err := r.client.Get(t.Context(), r.keys.TurnsAll(), clientv3.WithPrefix()); err != nil || len(held.Kvs) != 0 {
		t.Errorf("turns still held: %v, %v", held, err)
	}
}

// Invariant 7, as after a slow etcd leader that let every lease run out.
func TestAnExecutorWhoseLeaseIsRevokedSendsNothingMoreAndClaimsAgainUnderAnother(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.seal("orders", "a", 3)
	store := newHangingStore(r.store)
	e, _ := r.executorOn(store, time.Minute)
	drain := r.run(e)
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.AllGroups)
	<-store.waiting
	first, err := e.session.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Revoke(t.Context(), first.Lease); err != nil {
		t.Fatal(err)
	}
	<-first.Context.Done()
	asked := store.asked.Load()
	second, err := e.session.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for e.Active() > 0 { // the cancelled execution ends
		if err := r.clock.Sleep(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if n := store.asked.Load() - asked; n != 0 {
		t.Errorf("%d requests to the store after the fence", n)
	}
	if got, err := r.client.Get(t.Context(), r.keys.OutcomesOfTable("orders"), clientv3.WithPrefix()); err != nil || len(got.Kvs) != 0 || second.Token == first.Token {
		t.Errorf("the lost execution left %v, %v", got, err)
	}
	store.hangs.Store(false)
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.AllGroups)
	r.awaitMerged("orders", "a", 3)
	drain()
	orders, err := table.Load(t.Context(), r.store, "orders", r.tableDeps())
	if err != nil || orders.Mark("a") != 3 || orders.Snapshot.Version != 1 {
		t.Errorf("mark %d at version %d, %v", orders.Mark("a"), orders.Snapshot.Version, err)
	}
}

// The order in etcd: first the release, which lets others go on, and then what it merged, shard by shard.
func TestMarksArePublishedAfterTheReleaseOnePutForEachShard(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	shards := []string{"a", "b", "c"}
	for _, shard := range shards {
		r.seal("orders", shard, 2)
	}
	e, metrics := r.executorOn(r.store, time.Minute)
	drain := r.run(e)
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.AllGroups)
	for _, shard := range shards {
		r.awaitMerged("orders", shard, 2)
	}
	drain()
	revision := func(key string) int64 {
		got, err := r.client.Get(t.Context(), key)
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("%s: %v, %v", key, got, err)
		}
		return got.Kvs[0].ModRevision
	}
	release, seen := revision(r.keys.Outcome("orders", 0)), map[int64]bool{}
	for _, shard := range shards {
		at := revision(r.keys.Demand(etcd.SlotOf("orders", slots), "orders", shard))
		if at <= release || seen[at] {
			t.Errorf("shard %s was published at revision %d, the release was %d, other shards %v", shard, at, release, seen)
		}
		seen[at] = true
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	published := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "tidemark_executor_merged_watermarks_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			published[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	if len(published) != len(demand.Results) || published["written"] != 3 {
		t.Errorf("counted: %v", published)
	}
}
