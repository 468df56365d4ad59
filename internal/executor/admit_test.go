package executor

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"tidemark/internal/etcd"
	"tidemark/internal/merge"
	"tidemark/internal/objstore"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
)

// gates is a store in which the data files of some tables are not begun before their gate is opened, so that a merge lasts
// for as long as a test wants.
type gates struct {
	objstore.Store
	mu   sync.Mutex // guards shut
	shut map[string]chan struct{}
}

func (r *rig) gates() *gates {
	g := &gates{Store: r.store, shut: map[string]chan struct{}{}}
	r.store = g
	return g
}

// closeFor shuts the gate of a table; calling what it returns opens it.
func (g *gates) closeFor(table string) (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate := make(chan struct{})
	g.shut[table] = gate
	return sync.OnceFunc(func() { close(gate) })
}

func (g *gates) Create(ctx context.Context, key string) (objstore.Upload, error) {
	table, _, _ := strings.Cut(key, "/part-")
	g.mu.Lock()
	gate := g.shut[table]
	g.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return g.Store.Create(ctx, key)
}

// bytesFor is how many pending bytes make a unit need so much.
func bytesFor(t testing.TB, need int64) int64 {
	t.Helper()
	for bytes := int64(1 << 20); bytes < 1<<40; bytes += 1 << 20 {
		if merge.Need(merge.Load{Bytes: bytes, Upsert: true, Shards: 1}, runtime.GOMAXPROCS(0)) >= need {
			return bytes
		}
	}
	t.Fatal("nothing needs so much")
	return 0
}

const admitMemory = 512 << 20

// admitting is an executor of four slots and admitMemory.
func (r *rig) admitting() *Executor {
	r.t.Helper()
	e, err := New(Config{ID: "one", Slots: 4, Memory: admitMemory, Lease: ownership.DefaultConfig(2 * time.Second)}, Deps{
		Client: r.client, Keys: r.keys, Store: r.store, Clock: r.clock, Random: r.random, Mem: r.mem,
		Log: hclog.NewNullLogger(), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// pending creates a table with one generation sealed and queues its unit, which says that there is more.
func (r *rig) pending(class schedule.Class, order, name string, bytes int64) {
	r.t.Helper()
	r.create(name)
	r.seal(name, "a", 1)
	unit := schedule.Unit{
		ID: "unit-" + name, Kind: schedule.KindMerge, Table: name, Groups: schedule.AllGroups, Class: class, Order: order,
		Upsert: true, Shards: 1, Gens: 1, Bytes: bytes,
	}
	body, err := unit.Marshal()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.client.Put(r.t.Context(), r.keys.Ready(etcd.ReadyKey{Class: int(class), Order: order, Table: name, Turns: etcd.AllGroups}), string(body)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) awaitClaimed(name string) {
	r.t.Helper()
	r.await(r.keys.Turn(name, 0), "the turn of "+name, func([]byte) bool { return true })
}

// ended is the revision at which a table's unit was released.
func (r *rig) ended(name string) int64 {
	r.t.Helper()
	r.await(r.keys.Outcome(name, 0), "an outcome of "+name, func([]byte) bool { return true })
	got, err := r.client.Get(r.t.Context(), r.keys.Outcome(name, 0))
	if err != nil {
		r.t.Fatal(err)
	}
	return got.Kvs[0].ModRevision
}

func TestAUnitThatDoesNotFitIsLeftInTheQueueAndSmallerOnesGoOn(t *testing.T) {
	r := newRig(t)
	open := r.gates().closeFor("first")
	e := r.admitting()
	drain := r.run(e)
	r.pending(schedule.Merge, "0", "first", 0)
	r.awaitClaimed("first")
	r.pending(schedule.Merge, "1", "large", bytesFor(t, admitMemory-1<<20))
	r.pending(schedule.Merge, "2", "small", 0)
	small := r.ended("small")
	if n := e.queue.Len(); n != 1 {
		t.Errorf("%d units are queued, want the large one", n)
	}
	s := e.Status().(Status)
	if s.Active != 1 || s.Granted != s.Executions[0].Memory || s.Granted > admitMemory/2 {
		t.Errorf("status %+v", s)
	}
	open()
	if first, large := r.ended("first"), r.ended("large"); small > first || first > large {
		t.Errorf("released in the order small %d, first %d, large %d", small, first, large)
	}
	drain()
}

// Small units would keep a large one out for ever. Once it is critical nothing else is claimed until it runs.
func TestRoomIsMadeForACriticalUnit(t *testing.T) {
	r := newRig(t)
	open := r.gates().closeFor("first")
	e := r.admitting()
	r.pending(schedule.Merge, "0", "first", 0)
	drain := r.run(e)
	r.awaitClaimed("first")
	r.pending(schedule.Critical, "0", "large", bytesFor(t, admitMemory-1<<20))
	for e.queue.Len() == 0 {
		<-time.After(time.Millisecond)
	}
	r.pending(schedule.Critical, "1", "next", 0)
	r.pending(schedule.Merge, "1", "later", 0)
	open()
	first, large, next, later := r.ended("first"), r.ended("large"), r.ended("next"), r.ended("later")
	if first > large || large > next || large > later {
		t.Errorf("released in the order first %d, large %d, next %d, later %d", first, large, next, later)
	}
	drain()
}

func TestAUnitLargerThanTheWholeBudgetRunsAloneWithAllOfIt(t *testing.T) {
	r := newRig(t)
	open := r.gates().closeFor("huge")
	e := r.admitting()
	drain := r.run(e)
	r.pending(schedule.Merge, "0", "huge", 1<<45)
	r.awaitClaimed("huge")
	r.pending(schedule.Merge, "1", "small", 0)
	for e.queue.Len() == 0 {
		<-time.After(time.Millisecond)
	}
	if s := e.Status().(Status); s.Granted != admitMemory || s.Active != 1 {
		t.Errorf("status %+v", s)
	}
	open()
	if huge, small := r.ended("huge"), r.ended("small"); huge > small {
		t.Errorf("released in the order small %d, huge %d", small, huge)
	}
	drain()
}

// Whatever is claimed in whatever order, what runs has never more than the budget, and an empty executor admits anything.
func TestGrantsNeverExceedTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory := rapid.Int64Range(MemoryMin, 8<<30).Draw(t, "memory")
		e := &Executor{config: Config{Slots: 8, Memory: memory}, running: map[string]*execution{}}
		for i := range rapid.IntRange(1, 20).Draw(t, "units") {
			u := schedule.Unit{
				Kind:   rapid.SampledFrom([]schedule.Kind{schedule.KindMerge, schedule.KindCompact, schedule.KindCheckpoint, schedule.KindCleanup}).Draw(t, "kind"),
				Upsert: rapid.Bool().Draw(t, "upsert"), Shards: rapid.IntRange(0, 4096).Draw(t, "shards"),
				Gens: rapid.Uint64Range(0, 1<<14).Draw(t, "gens"), Bytes: rapid.Int64Range(0, 1<<34).Draw(t, "bytes"),
			}
			if len(e.running) > 0 && rapid.Bool().Draw(t, "one ends") {
				for id := range e.running {
					delete(e.running, id)
					break
				}
			}
			admitted := e.admits(u)
			if len(e.running) == 0 && !admitted {
				t.Fatalf("an empty executor does not admit %+v", u)
			}
			if admitted {
				e.running[string(rune('a'+i))] = &execution{unit: u, budget: e.need(u)}
			}
			if granted := e.granted(); granted > memory {
				t.Fatalf("%d bytes granted of %d", granted, memory)
			}
		}
	})
}
