package control

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/executor"
	"tidemark/internal/master"
	"tidemark/internal/objstore"
	"tidemark/internal/observe"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
	"tidemark/test/etcd/etcdtest"
	"tidemark/writer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSlots = 4

// rig is a cluster on a real etcd and a root in memory, with masters and executors as a test wants them.
type rig struct {
	*Control
	t      *testing.T
	client *clientv3.Client
	keys   etcd.Keys
	store  objstore.Store
}

func newRig(t *testing.T) *rig {
	r := newEmptyRig(t)
	r.put(r.keys.Cluster(), etcd.Cluster{V: 1, Name: "test", ID: "id", Slots: testSlots})
	return r
}

// newEmptyRig is a rig whose etcd no master has seen.
func newEmptyRig(t *testing.T) *rig {
	r := &rig{t: t, client: etcdtest.Start(t), keys: etcd.KeysOf("test"), store: objstore.NewMemory(clock.System())}
	r.Control = New(Deps{Client: r.client, Keys: r.keys, Store: r.store, Clock: impatient{clock.System()}, Random: random.New()})
	return r
}

// failures are what people are shown of a table, or of all.
func (r *rig) failures(name string) ([]observe.Failure, error) {
	see, err := observe.Look(r.t.Context(), observe.Config{Client: r.client, Keys: r.keys, Store: r.store, Clock: clock.System(), Random: random.New()})
	if err != nil {
		return nil, err
	}
	if name != "" {
		return see.FailuresOf(name), nil
	}
	page, err := see.Failures(observe.Query{})
	return page.Items, err
}

// impatient is a clock whose timers fire at once, so that what waits for a turn gives up without waiting.
type impatient struct{ clock.Clock }

func (impatient) After(time.Duration) (<-chan time.Time, func()) {
	fired := make(chan time.Time, 1)
	fired <- time.Time{}
	return fired, func() {}
}

func (r *rig) put(key string, value any) {
	r.t.Helper()
	body, ok := value.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(value); err != nil {
			r.t.Fatal(err)
		}
	}
	if _, err := r.client.Put(r.t.Context(), key, string(body)); err != nil {
		r.t.Fatal(err)
	}
}

// everything is all that etcd and storage hold, to show that nothing was changed.
func (r *rig) everything() map[string]string {
	r.t.Helper()
	all := map[string]string{}
	got, err := r.client.Get(r.t.Context(), r.keys.Prefix, clientv3.WithPrefix())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	for info, err := range objstore.ListAll(r.t.Context(), r.store, "") {
		if err != nil {
			r.t.Fatal(err)
		}
		all[info.Key] = info.ETag
	}
	return all
}

func (r *rig) create(name string) *table.Table {
	r.t.Helper()
	columns, err := schema.FromArrow(rowSchema)
	if err != nil {
		r.t.Fatal(err)
	}
	t, err := table.Create(r.t.Context(), r.store, name, table.CreateOptions{Schema: columns}, r.tableDeps())
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

var rowSchema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)

// seal seals generations of ten rows each on a shard and publishes them.
func (r *rig) seal(name, shard string, generations int) {
	r.t.Helper()
	w, err := writer.ClaimWith(r.t.Context(), writer.Config{Table: name, Shard: shard}, writer.Deps{
		Store: r.store, Clock: clock.System(), Random: random.New(), Mem: memory.DefaultAllocator,
		Publisher: demand.NewPublisher(r.client, r.keys, testSlots, clock.System(), random.New()),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for range generations {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.AppendValues([]int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, nil)
		record := array.NewRecord(rowSchema, []arrow.Array{b.NewArray()}, 10)
		if err := w.Append(r.t.Context(), record); err != nil {
			r.t.Fatal(err)
		}
		if sealed, err := w.Seal(r.t.Context()); err != nil || sealed.Unpublished != nil {
			r.t.Fatal(err, sealed.Unpublished)
		}
	}
	if err := w.Close(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// damage overwrites the file of a generation.
func (r *rig) damage(name, shard string, generation uint64) {
	r.t.Helper()
	t, err := r.load(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	chain := shardmanifest.Open(r.store, name, t.ID, shard, shardmanifest.Options{Clock: clock.System(), Random: random.New()})
	m, err := chain.Latest(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	g, ok := m.Generation(generation)
	if !ok {
		r.t.Fatalf("no generation %d of shard %s", generation, shard)
	}
	_, info, err := r.store.Get(r.t.Context(), chain.Key(g.Path))
	if err != nil {
		r.t.Fatal(err)
	}
	if res := r.store.ReplaceIfMatch(r.t.Context(), chain.Key(g.Path), []byte("not parquet at all"), info.ETag); res.Err != nil {
		r.t.Fatal(res.Err)
	}
}

func (r *rig) lease() ownership.Config { return ownership.DefaultConfig(3 * time.Second) }

// master starts a master that runs until the test ends, or the returned function is called.
func (r *rig) master() (*master.Master, func()) {
	r.t.Helper()
	m, err := master.New(master.Config{
		ID: "m", Cluster: "test", Slots: testSlots, Keys: r.keys, Client: r.client, Store: r.store, Clock: clock.System(), Random: random.New(),
		Log: hclog.NewNullLogger(), Lease: r.lease(), BeatWatch: time.Millisecond,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("master: %v", err)
		}
	})
	r.t.Cleanup(stop)
	return m, stop
}

// executor starts an executor that runs until it is stopped, or the test ends.
func (r *rig) executor(id string) (stop func()) {
	r.t.Helper()
	e, err := executor.New(executor.Config{ID: id, Slots: 2, Memory: 2 * executor.MemoryMin, Lease: r.lease()}, executor.Deps{
		Client: r.client, Keys: r.keys, Store: r.store, Clock: clock.System(), Random: random.New(), Mem: memory.DefaultAllocator,
		Log: hclog.NewNullLogger(), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	drain, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- e.Run(context.Background(), drain) }()
	stop = sync.OnceFunc(func() {
		close(drain)
		if err := <-done; err != nil {
			r.t.Errorf("executor: %v", err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

// until asks again and again until ok says so.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// count is how many keys there are below a prefix.
func (r *rig) count(prefix string) int64 {
	r.t.Helper()
	got, err := r.client.Get(r.t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		r.t.Fatal(err)
	}
	return got.Count
}

// request is the key of the standing request to merge a table.
func (r *rig) request(name string) *mvccpb.KeyValue {
	r.t.Helper()
	got, err := r.client.Get(r.t.Context(), r.keys.Requests(etcd.SlotOf(name, testSlots), name))
	if err != nil || len(got.Kvs) != 1 {
		r.t.Fatalf("the request to merge %s: %v, %v", name, got, err)
	}
	return got.Kvs[0]
}

func (r *rig) outcome(name string, n int, o schedule.Outcome) {
	r.t.Helper()
	value, err := o.Marshal()
	if err != nil {
		r.t.Fatal(err)
	}
	r.put(r.keys.Outcome(name, n), value)
}

// refused checks the code of an error.
func refused(t *testing.T, err error, code string, words ...string) {
	t.Helper()
	if err == nil || CodeOf(err) != code {
		t.Errorf("error %v has the code %q, want %q", err, CodeOf(err), code)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
}

// did checks what an action says.
func did(t *testing.T, d Done, err error, changed bool, words ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if d.Changed != changed {
		t.Errorf("changed is %v: %s", d.Changed, d.Sentence)
	}
	for _, word := range words {
		if !strings.Contains(d.Sentence, word) {
			t.Errorf("the sentence does not say %q: %s", word, d.Sentence)
		}
	}
}

var dry = Options{DryRun: true, By: "tester"}
var real = Options{By: "tester"}

// dryRun runs an action dry and checks that nothing was changed.
func (r *rig) dryRun(action func(Options) (Done, error), words ...string) {
	r.t.Helper()
	before := r.everything()
	d, err := action(dry)
	did(r.t, d, err, true, append(words, "Dry run")...)
	after := r.everything()
	for key, value := range after {
		if before[key] != value {
			r.t.Errorf("a dry run wrote %s", key)
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			r.t.Errorf("a dry run deleted %s", key)
		}
	}
}
