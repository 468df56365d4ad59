package observe

import (
	"context"
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
	"tidemark/internal/table"
)

// Config is what an observer works with.
type Config struct {
	Client *clientv3.Client
	Keys   etcd.Keys
	Store  objstore.Store
	Clock  clock.Clock
	Random random.Source
	Log    hclog.Logger
}

// snapshotBytes bounds the table snapshots kept for pages of tables. A snapshot of a table of 10,000 files takes some
// megabytes; one that does not fit is read again at every look.
const snapshotBytes = 64 << 20

// Observer mirrors a cluster. Run keeps the mirror; everything else may be called at any time by anybody.
type Observer struct {
	config Config
	keys   etcd.Keys
	cache  *table.Cache

	mu         sync.Mutex // guards what follows; never held during a request
	held       map[string]int64
	fresh      bool
	changed    chan struct{} // closed when something has changed since it was made
	dirty      bool          // something changed since the last announcement
	cluster    etcd.Cluster
	defaults   schedule.Policy
	tables     map[string]*tableNotes
	executions map[string]*executionNotes
	progress   map[string]progressNotes
	executors  map[string]Executor
	masters    map[string]Master
	slots      map[int]string  // owners
	drains     map[string]bool // executors asked to drain
	history    history
	changes    int64 // ever; an overview of the same changes is not made twice
	overview   overviewMade

	commits commitCache
	looks   looks
}

// New makes an observer; it knows nothing before Run.
func New(c Config) *Observer {
	o := &Observer{config: c, keys: c.Keys, changed: make(chan struct{})}
	o.cache = table.NewCache(c.Store, o.deps(), snapshotBytes)
	o.forget()
	return o
}

func (o *Observer) deps() table.Deps {
	return table.Deps{Clock: o.config.Clock, Random: o.config.Random, Log: o.config.Log}
}

func (o *Observer) forget() {
	o.held = map[string]int64{}
	o.defaults = schedule.DefaultPolicy()
	o.tables, o.executions, o.progress = map[string]*tableNotes{}, map[string]*executionNotes{}, map[string]progressNotes{}
	o.executors, o.masters, o.slots = map[string]Executor{}, map[string]Master{}, map[int]string{}
	o.drains = map[string]bool{}
}

// Look reads the cluster's keys once and returns an observer that knows them as they are now, for a single answer; it is not
// to be Run. Rates, which take time to see, are 0.
func Look(ctx context.Context, c Config) (*Observer, error) {
	if _, err := etcd.ReadCluster(ctx, c.Client, c.Keys); err != nil {
		return nil, err
	}
	o := New(c)
	_, err := etcd.ReadPages(ctx, c.Client, c.Keys.Prefix+"/", func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			(*mirror)(o).Put(kv)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	o.fresh = true
	return o, nil
}

// Run mirrors until ctx is done, and returns nil then.
func (o *Observer) Run(ctx context.Context) error {
	var group errgroup.Group
	follower := etcd.NewFollower(o.config.Client, o.keys.Prefix+"/", (*mirror)(o), o.config.Clock, o.config.Random, o.config.Log)
	group.Go(func() error { follower.Run(ctx); return nil })
	group.Go(func() error { o.sample(ctx); return nil })
	return group.Wait()
}

// Fresh says whether the mirror is complete. While it is not, answers may be old or lack something.
func (o *Observer) Fresh() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fresh
}

// Changed is closed once something has changed after this call.
func (o *Observer) Changed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

// NowMS is the time that ages in answers are measured by, in milliseconds since 1970.
func (o *Observer) NowMS() int64 { return o.config.Clock.Now().UnixMilli() }

// announce wakes everybody who waits for a change. mu is held.
func (o *Observer) announce() {
	o.dirty = false
	o.changes++
	close(o.changed)
	o.changed = make(chan struct{})
}

// mirror is the observer as its follower sees it.
type mirror Observer

var _ etcd.Mirror = (*mirror)(nil)

func (m *mirror) Put(kv *mvccpb.KeyValue) {
	o := (*Observer)(m)
	o.mu.Lock()
	defer o.mu.Unlock()
	key := string(kv.Key)
	o.held[key], o.dirty = kv.ModRevision, true
	o.changes++
	o.put(key, kv.Value)
}

func (m *mirror) Delete(key string) {
	o := (*Observer)(m)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.held, key)
	o.dirty = true
	o.changes++
	o.delete(key)
}

// All is called by the follower alone, which is also the only one to change held.
func (m *mirror) All() iter.Seq2[string, int64] { return maps.All(m.held) }

func (m *mirror) Fresh(int64) {
	o := (*Observer)(m)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.fresh || o.dirty {
		o.fresh = true
		o.announce()
	}
}

func (m *mirror) Stale(error) {
	o := (*Observer)(m)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fresh {
		o.fresh = false
		o.announce()
	}
}

func (o *Observer) mono() time.Duration { return o.config.Clock.Mono() }

// Clock is the clock that the observer measures by.
func (o *Observer) Clock() clock.Clock { return o.config.Clock }
