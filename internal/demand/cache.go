package demand

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
)

// Shard is the demand of one shard as it stands in etcd.
type Shard struct {
	Name   string
	Record Record
	// ModRevision of the stored record, for deletes of what is retired and fully merged.
	ModRevision int64
	// Err says why the stored record is not understood; then Record is zero, and nothing is known.
	Err error
}

// Table is the demand of one table at one moment. It is never changed.
type Table struct {
	Name   string
	Shards []Shard // by name
	// ModRevision is the highest of the shards'.
	ModRevision int64
}

// Cache mirrors the demand of the slots that a master owns: per slot a snapshot and a watch that survives whatever
// happens to it. It answers from memory, one table at a time, and says which tables changed. Its memory is bounded by
// what stands in etcd under these slots.
type Cache struct {
	client *clientv3.Client
	keys   etcd.Keys
	clock  clock.Clock
	random random.Source
	log    hclog.Logger

	mu      sync.Mutex // guards the following
	slots   map[int]*slotCache
	dirty   map[string]struct{} // tables changed since TakeChanged; no more than there are tables
	changed chan struct{}
	drift   int64 // of slots that are not cached any more
	ctx     context.Context
	wait    sync.WaitGroup // followers
}

// NewCache makes a cache of no slots.
func NewCache(client *clientv3.Client, keys etcd.Keys, c clock.Clock, r random.Source, log hclog.Logger) *Cache {
	return &Cache{
		client: client, keys: keys, clock: c, random: r, log: log,
		slots: map[int]*slotCache{}, dirty: map[string]struct{}{}, changed: make(chan struct{}, 1),
	}
}

// Run keeps the cache until ctx is done, and waits for everything it started.
func (c *Cache) Run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	for _, s := range c.slots {
		c.start(s)
	}
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	for _, s := range c.slots {
		s.stop()
	}
	c.mu.Unlock()
	c.wait.Wait()
	return nil
}

// SetSlots says which slots to cache. Tables of slots that are new appear as changed; those of slots that are gone are
// forgotten.
func (c *Cache) SetSlots(slots []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot, s := range c.slots {
		if !slices.Contains(slots, slot) {
			s.stop()
			c.drift += s.follower.Drift()
			delete(c.slots, slot)
			for table := range s.tables {
				delete(c.dirty, table)
			}
		}
	}
	for _, slot := range slots {
		if c.slots[slot] != nil {
			continue
		}
		s := &slotCache{Cache: c, slot: slot, stop: func() {}, tables: map[string]*cachedTable{}}
		s.follower = etcd.NewFollower(c.client, c.keys.DemandOfSlot(slot), s, c.clock, c.random, c.log)
		c.slots[slot] = s
		if c.ctx != nil {
			c.start(s)
		}
	}
}

// start follows a slot. c.mu is held.
func (c *Cache) start(s *slotCache) {
	ctx, stop := context.WithCancel(c.ctx)
	s.stop = stop
	c.wait.Go(func() { s.follower.Run(ctx) })
}

// Fresh says whether a slot is cached completely and its watch is alive. While it is not, what the cache shows may be
// old, and nothing may be deleted on its word.
func (c *Cache) Fresh(slot int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots[slot]
	return s != nil && s.fresh
}

// Doubt makes sure that etcd is still the one that is cached; for a master whose session came back.
func (c *Cache) Doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.slots {
		s.follower.Doubt()
	}
}

// Table is the demand of a table, if any stands in a cached slot.
func (c *Cache) Table(slot int, table string) (Table, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots[slot]
	if s == nil || s.tables[table] == nil {
		return Table{Name: table}, false
	}
	return s.tables[table].view(table), true
}

// Tables yields every table of a cached slot, in no order.
func (c *Cache) Tables(slot int) iter.Seq[Table] {
	return func(yield func(Table) bool) {
		c.mu.Lock()
		var names []string
		if s := c.slots[slot]; s != nil {
			names = slices.Collect(maps.Keys(s.tables))
		}
		c.mu.Unlock()
		for _, name := range names {
			if t, ok := c.Table(slot, name); ok && !yield(t) {
				return
			}
		}
	}
}

// Changed delivers when tables have changed since it last delivered. It has one receiver, which calls TakeChanged.
func (c *Cache) Changed() <-chan struct{} { return c.changed }

// TakeChanged are the tables that changed since it was last called, each once, in no order. A table of which all shards
// are gone is among them.
func (c *Cache) TakeChanged() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	tables := slices.Collect(maps.Keys(c.dirty))
	clear(c.dirty)
	return tables
}

// Drift is how many changes watches were found to have missed, ever.
func (c *Cache) Drift() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.drift
	for _, s := range c.slots {
		n += s.follower.Drift()
	}
	return n
}

// slotCache is one slot: the mirror of its follower. Cache.mu guards everything in it, but only the follower changes
// tables.
type slotCache struct {
	*Cache
	slot     int
	follower *etcd.Follower
	stop     func()
	fresh    bool
	tables   map[string]*cachedTable
}

type cachedTable struct {
	shards map[string]Shard
	built  *Table // the last view, nil once a shard changed
}

// view is the table's current view, made anew if a shard changed since.
func (t *cachedTable) view(name string) Table {
	if t.built == nil {
		v := Table{Name: name, Shards: make([]Shard, 0, len(t.shards))}
		for _, shard := range slices.Sorted(maps.Keys(t.shards)) {
			v.Shards = append(v.Shards, t.shards[shard])
			v.ModRevision = max(v.ModRevision, t.shards[shard].ModRevision)
		}
		t.built = &v
	}
	return *t.built
}

func (s *slotCache) Put(kv *mvccpb.KeyValue) {
	_, table, shard, err := s.keys.ParseDemand(string(kv.Key))
	if err != nil {
		s.log.Warn("ignoring a demand record", "error", err)
		return
	}
	record, err := Parse(kv.Value)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[table]
	if t == nil {
		t = &cachedTable{shards: map[string]Shard{}}
		s.tables[table] = t
	}
	if t.shards[shard].ModRevision == kv.ModRevision {
		return // a fresh snapshot shows what is known
	}
	t.shards[shard] = Shard{Name: shard, Record: record, ModRevision: kv.ModRevision, Err: err}
	s.touch(t, table)
}

func (s *slotCache) Delete(key string) {
	_, table, shard, err := s.keys.ParseDemand(key)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[table]
	if t == nil {
		return
	}
	delete(t.shards, shard)
	if len(t.shards) == 0 {
		delete(s.tables, table)
	}
	s.touch(t, table)
}

// touch says that a table changed. A slot that is cached no more says nothing.
func (s *slotCache) touch(t *cachedTable, table string) {
	t.built = nil
	if s.slots[s.slot] == s {
		s.dirty[table] = struct{}{}
	}
}

func (s *slotCache) All() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for table, t := range s.tables {
			for shard, standing := range t.shards {
				if !yield(s.keys.Demand(s.slot, table, shard), standing.ModRevision) {
					return
				}
			}
		}
	}
}

// Fresh comes after every batch of changes, so this is where they are announced.
func (s *slotCache) Fresh(int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = true
	if len(s.dirty) > 0 {
		s.signal()
	}
}

// Stale after etcd was replaced forgets everything, since equal mod revisions no longer mean equal records.
func (s *slotCache) Stale(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh = false
	if errors.Is(cause, etcd.ErrReplaced) {
		for table, t := range s.tables {
			clear(t.shards)
			s.touch(t, table)
		}
		clear(s.tables)
	}
	s.signal()
}

func (s *slotCache) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
