package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
	"tidemark/internal/schema"
	"tidemark/internal/table"
	"tidemark/internal/turnset"
	"tidemark/test/etcd/etcdtest"
	"tidemark/writer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a cluster without a master: the test queues units itself.
type rig struct {
	t      *testing.T
	client *clientv3.Client
	keys   etcd.Keys
	store  objstore.Store
	clock  clock.Clock
	random random.Source
	mem    *memory.CheckedAllocator
}

const slots = 4

func newRig(t *testing.T) *rig {
	c := clock.System()
	r := &rig{
		t: t, client: etcdtest.Start(t), keys: etcd.KeysOf("test"), store: objstore.NewMemory(c), clock: c, random: random.Seeded(1),
		mem: memory.NewCheckedAllocator(memory.DefaultAllocator),
	}
	t.Cleanup(func() { r.mem.AssertSize(t, 0) })
	r.put(r.keys.Cluster(), etcd.Cluster{V: 1, Name: "test", ID: "id", Slots: slots})
	return r
}

func (r *rig) put(key string, value any) {
	r.t.Helper()
	body, err := json.Marshal(value)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client.Put(r.t.Context(), key, string(body)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) tableDeps() table.Deps { return table.Deps{Clock: r.clock, Random: r.random} }

func (r *rig) create(name string) {
	r.t.Helper()
	columns, err := schema.FromArrow(rowSchema)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := table.Create(r.t.Context(), r.store, name, table.CreateOptions{Schema: columns}, r.tableDeps()); err != nil {
		r.t.Fatal(err)
	}
}

var rowSchema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)

// seal seals generations of ten rows each on a shard and publishes them.
func (r *rig) seal(name, shard string, generations int) {
	r.t.Helper()
	w, err := writer.ClaimWith(r.t.Context(), writer.Config{Table: name, Shard: shard}, writer.Deps{
		Store: r.store, Clock: r.clock, Random: r.random, Mem: r.mem,
		Publisher: demand.NewPublisher(r.client, r.keys, slots, r.clock, r.random),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for range generations {
		b := array.NewInt64Builder(r.mem)
		b.AppendValues([]int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, nil)
		column := b.NewArray()
		b.Release()
		record := array.NewRecord(rowSchema, []arrow.Array{column}, 10)
		column.Release()
		err := w.Append(r.t.Context(), record)
		record.Release()
		if err != nil {
			r.t.Fatal(err)
		}
		sealed, err := w.Seal(r.t.Context())
		if err != nil || sealed.Unpublished != nil {
			r.t.Fatal(err, sealed.Unpublished)
		}
	}
	if err := w.Close(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// queue puts a due unit into the ready queue.
func (r *rig) queue(class int, order, name string, kind schedule.Kind, turns etcd.TurnSet) {
	r.t.Helper()
	r.queueOf(1, class, order, name, kind, turns)
}

// queueOf queues a unit of one of the table's lives.
func (r *rig) queueOf(incarnation int64, class int, order, name string, kind schedule.Kind, turns etcd.TurnSet) {
	r.t.Helper()
	unit := schedule.Unit{ID: "unit-" + name, Kind: kind, Table: name, Incarnation: incarnation, Class: schedule.Class(class), Order: order}
	var err error
	if unit.Groups, err = turnset.Parse(turns.String()); err != nil {
		r.t.Fatal(err)
	}
	body, err := unit.Marshal()
	if err != nil {
		r.t.Fatal(err)
	}
	r.put(r.keys.Ready(etcd.ReadyKey{Class: class, Order: order, Table: name, Turns: turns}), json.RawMessage(body))
}

func (r *rig) executor(id string) *Executor {
	r.t.Helper()
	e, err := New(Config{ID: id, Slots: 2, Memory: 2 * MemoryMin, Lease: ownership.DefaultConfig(2 * time.Second)}, Deps{
		Client: r.client, Keys: r.keys, Store: r.store, Clock: r.clock, Random: r.random, Mem: r.mem,
		Log: hclog.NewNullLogger(), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// run runs an executor until the function that it returns asks it to drain, which waits for its end.
func (r *rig) run(e *Executor) (drain func()) {
	done, asked := make(chan error, 1), make(chan struct{})
	go func() { done <- e.Run(context.WithoutCancel(r.t.Context()), asked) }()
	return func() {
		r.t.Helper()
		close(asked)
		if err := <-done; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}
}

// await watches a key until it is as wanted.
func (r *rig) await(key, what string, wanted func(value []byte) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	got, err := r.client.Get(ctx, key)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(got.Kvs) > 0 && wanted(got.Kvs[0].Value) {
		return
	}
	for change := range r.client.Watch(ctx, key, clientv3.WithRev(got.Header.Revision+1)) {
		for _, ev := range change.Events {
			if ev.Type == clientv3.EventTypePut && wanted(ev.Kv.Value) {
				return
			}
		}
	}
	r.t.Fatalf("waited in vain for %s", what)
}

func (r *rig) awaitMerged(name, shard string, generation uint64) {
	r.t.Helper()
	r.await(r.keys.Demand(etcd.SlotOf(name, slots), name, shard), fmt.Sprintf("generation %d of %s of %s", generation, shard, name), func(value []byte) bool {
		record, err := demand.Parse(value)
		return err == nil && record.Merged != nil && record.Merged.Gen == generation
	})
}

func TestADueUnitIsMergedReleasedAndThenPublished(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.seal("orders", "a", 3)
	r.seal("orders", "b", 2)
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.AllGroups)

	drain := r.run(r.executor("one"))
	r.awaitMerged("orders", "a", 3)
	r.awaitMerged("orders", "b", 2)
	drain()

	orders, err := table.Load(t.Context(), r.store, "orders", r.tableDeps())
	if err != nil {
		t.Fatal(err)
	}
	if a, b := orders.Mark("a"), orders.Mark("b"); a != 3 || b != 2 {
		t.Errorf("the log says a %d, b %d", a, b)
	}
	for _, prefix := range []string{r.keys.TurnsAll(), r.keys.ReadyAll(), r.keys.Executors()} {
		left, err := r.client.Get(t.Context(), prefix, clientv3.WithPrefix())
		if err != nil || len(left.Kvs) != 0 {
			t.Errorf("left under %s: %v, %v", prefix, left, err)
		}
	}
	outcome := r.outcome("orders", etcd.GroupOf("a"))
	if outcome.Result != schedule.ResultMerged || outcome.Executor != "one" || outcome.More {
		t.Errorf("outcome of a's group: %+v", outcome)
	}
	record, err := r.client.Get(t.Context(), r.keys.Outcome("orders", etcd.GroupOf("a")))
	if err != nil || outcome.DemandRevision == 0 || outcome.DemandRevision >= record.Kvs[0].ModRevision {
		t.Errorf("demand was read at revision %d, and released at %d, %v", outcome.DemandRevision, record.Kvs[0].ModRevision, err)
	}
}

// What failed in a former life of a table is not what is pending in this one. The simulator found an owner, which knew that,
// and executors, which did not: the one queued, the others found nothing to do, again and again.
func TestAFailureOfAFormerLifeHoldsNothingBack(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.seal("orders", "a", 3)
	group := etcd.GroupOf("a")
	failed := schedule.Next(nil, schedule.Run{
		Execution: "of old", Incarnation: 1, Kind: schedule.KindMerge, EndedMS: r.clock.Now().UnixMilli(),
		Failures: []schedule.ShardFailure{{Shard: "a", Failure: schedule.Failure{Code: "schema_clash", Class: schedule.Data, Generation: 3}}},
	})
	body, err := failed.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	r.put(r.keys.Outcome("orders", group), json.RawMessage(body))
	r.queueOf(2, 1, "0", "orders", schedule.KindMerge, etcd.AllGroups)

	drain := r.run(r.executor("one"))
	r.awaitMerged("orders", "a", 3)
	drain()
	if o := r.outcome("orders", group); len(o.Shards) != 0 || o.Incarnation != 2 {
		t.Errorf("%+v", o)
	}
	// What is done for the log, whose executions learn of no life, is of this life too.
	r.queueOf(2, 2, "0", "orders", schedule.KindCheckpoint, etcd.LogOnly)
	drain = r.run(r.executor("two"))
	r.await(r.keys.Outcome("orders", etcd.LogTurn), "the checkpoint", func(value []byte) bool { return len(value) > 0 })
	drain()
	if o := r.outcome("orders", etcd.LogTurn); o.Incarnation != 2 {
		t.Errorf("%+v", o)
	}
}

func (r *rig) outcome(name string, turn int) schedule.Outcome {
	r.t.Helper()
	got, err := r.client.Get(r.t.Context(), r.keys.Outcome(name, turn))
	if err != nil || len(got.Kvs) != 1 {
		r.t.Fatalf("outcome of %s: %v, %v", name, got, err)
	}
	outcome, err := schedule.ParseOutcome(got.Kvs[0].Value)
	if err != nil {
		r.t.Fatal(err)
	}
	return outcome
}

func TestAUnitOfAnotherExecutorsTurnWaitsUntilTheTurnIsFree(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.create("other")
	r.seal("orders", "a", 1)
	r.seal("other", "a", 1)
	turn := r.keys.Turn("orders", 5)
	r.put(turn, ownership.TurnValue{V: 1, Execution: "x", Executor: "somebody"})
	r.queue(0, "0", "orders", schedule.KindMerge, etcd.AllGroups)
	r.queue(0, "1", "other", schedule.KindMerge, etcd.AllGroups)

	drain := r.run(r.executor("one"))
	r.awaitMerged("other", "a", 1)
	if orders, err := table.Load(t.Context(), r.store, "orders", r.tableDeps()); err != nil || orders.Mark("a") != 0 {
		t.Errorf("orders was merged under somebody's turn: %v", err)
	}
	if _, err := r.client.Delete(t.Context(), turn); err != nil {
		t.Fatal(err)
	}
	r.awaitMerged("orders", "a", 1)
	drain()
}

func TestAFailureLeavesItsCodeAndTheTurnsFree(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.seal("orders", "a", 1)
	if err := table.Drop(t.Context(), r.store, "orders", r.tableDeps()); err != nil {
		t.Fatal(err)
	}
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.AllGroups)
	drain := r.run(r.executor("one"))
	r.await(r.keys.Outcome("orders", 0), "an outcome", func([]byte) bool { return true })
	drain()
	if outcome := r.outcome("orders", 0); outcome.Failure == nil || outcome.Failure.Code != "table_dropped" {
		t.Errorf("outcome: %+v", outcome)
	}
}

func TestMaintenanceRunsUnderTheLogTurnAndSaysHowFarItCame(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.seal("orders", "a", 1)
	r.queue(2, "0", "orders", schedule.KindCheckpoint, etcd.LogOnly)
	drain := r.run(r.executor("one"))
	r.await(r.keys.Outcome("orders", etcd.LogTurn), "an outcome of the checkpoint", func([]byte) bool { return true })
	drain()
	if outcome := r.outcome("orders", etcd.LogTurn); outcome.Result != schedule.ResultMerged || outcome.Kind != schedule.KindCheckpoint {
		t.Errorf("outcome: %+v", outcome)
	}
	if _, _, err := r.store.Get(t.Context(), "orders/_delta_log/_last_checkpoint"); err != nil {
		t.Errorf("no checkpoint: %v", err)
	}
}

func TestACompactionRunsUnderTheLogTurnAndAMergeBesideIt(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	drain := r.run(r.executor("one"))
	for n := range uint64(3) { // one file for each merge
		r.seal("orders", "a", 1)
		r.queue(1, fmt.Sprint(n), "orders", schedule.KindMerge, etcd.AllGroups)
		r.awaitMerged("orders", "a", n+1)
		r.await(r.keys.Outcome("orders", etcd.GroupOf("a")), "the release", func([]byte) bool {
			return r.outcome("orders", etcd.GroupOf("a")).LogVersion == int64(n+1)
		})
	}
	r.seal("orders", "a", 1)
	r.queue(2, "0", "orders", schedule.KindCompact, etcd.LogOnly)
	r.queue(2, "1", "orders", schedule.KindMerge, etcd.AllGroups)
	r.await(r.keys.Outcome("orders", etcd.LogTurn), "an outcome of the compaction", func([]byte) bool { return true })
	r.awaitMerged("orders", "a", 4)
	drain()
	if outcome := r.outcome("orders", etcd.LogTurn); outcome.Result != schedule.ResultMerged || outcome.Kind != schedule.KindCompact || outcome.LogVersion == 0 {
		t.Errorf("outcome: %+v", outcome)
	}
	orders, err := table.Load(t.Context(), r.store, "orders", r.tableDeps())
	if err != nil {
		t.Fatal(err)
	}
	rows := int64(0)
	for add := range orders.Snapshot.Files() {
		n, _ := add.Rows()
		rows += n
	}
	if n := orders.Snapshot.FileCount(); n > 2 || rows != 40 || orders.Mark("a") != 4 {
		t.Errorf("%d files with %d rows, merged %d", n, rows, orders.Mark("a"))
	}
}

func TestAFailureOfMaintenanceHasTheClassOfItsCause(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	log := "orders/_delta_log/00000000000000000001.json"
	if res := r.store.PutIfAbsent(t.Context(), log, []byte("{}{not json")); res.Err != nil {
		t.Fatal(res.Err)
	}
	r.queue(2, "0", "orders", schedule.KindCleanup, etcd.LogOnly)
	drain := r.run(r.executor("one"))
	r.await(r.keys.Outcome("orders", etcd.LogTurn), "an outcome of the cleanup", func([]byte) bool { return true })
	drain()
	f := r.outcome("orders", etcd.LogTurn).Failure
	if f == nil || f.Class != schedule.Data || f.Code != "table_unreadable" || !strings.Contains(f.Message, "cleanup of table orders") ||
		!strings.Contains(f.Message, "version 1") {
		t.Errorf("%+v", f)
	}
}

func TestAConfigurationThatCannotWorkIsRefusedWithAllItsFaults(t *testing.T) {
	_, err := Config{Slots: 4, Memory: 1 << 20, IdleTimeout: -1}.checked()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, word := range []string{"id", "1 MiB", "4 slots", "idle timeout"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not mention %q: %v", word, err)
		}
	}
}
