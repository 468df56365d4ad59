package table

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
)

// Cache keeps the newest known view of the tables an executor works on, so that a look at a table reads only what is
// new. Its memory is bounded by the estimate of its snapshots; the tables used longest ago go first. It is safe for
// concurrent use: of several looks at one table at once one reads and the others wait.
type Cache struct {
	store objstore.Store
	deps  Deps
	bytes int64

	mu      sync.Mutex // guards what follows; never held during a request
	entries map[string]*cacheEntry
	used    *list.List // of names, the last used first
	weight  int64
}

type cacheEntry struct {
	turn    chan struct{} // holds one token: the right to read the log of this table
	table   *Table        // nil until loaded
	element *list.Element
	weight  int64
}

// NewCache returns an empty cache over a store that keeps up to about so many bytes.
func NewCache(s objstore.Store, d Deps, bytes int64) *Cache {
	return &Cache{store: s, deps: d, bytes: bytes, entries: map[string]*cacheEntry{}, used: list.New()}
}

// Load returns the newest version of a table, with the errors of the function Load.
func (c *Cache) Load(ctx context.Context, name string) (*Table, error) {
	e := c.entry(name)
	select {
	case <-e.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { e.turn <- struct{}{} }()

	c.mu.Lock()
	known := e.table
	c.mu.Unlock()
	t, err := c.fresh(ctx, name, known)
	if err != nil {
		var stored *objstore.Error
		if !errors.As(err, &stored) { // what is known of the table is not wrong because the store is silent
			c.Forget(name)
		}
		return nil, err
	}
	c.keep(name, t)
	return t, nil
}

func (c *Cache) fresh(ctx context.Context, name string, known *Table) (*Table, error) {
	if known == nil {
		return Load(ctx, c.store, name, c.deps)
	}
	snapshot, err := known.Log.Refresh(ctx, known.Snapshot)
	if errors.Is(err, deltalog.ErrNoTable) {
		return nil, unknown(ctx, c.store, name)
	}
	if err != nil {
		return nil, err
	}
	return view(name, known.Log, snapshot, known)
}

// Offer gives the cache a snapshot that a commit has made, unless it knows a newer one.
func (c *Cache) Offer(t *Table, snapshot *deltalog.Snapshot) {
	next, err := view(t.Name, t.Log, snapshot, t)
	if err != nil {
		c.Forget(t.Name)
		return
	}
	c.keep(t.Name, next)
}

// Forget drops what is known of a table.
func (c *Cache) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[name]; e != nil {
		c.drop(name, e)
	}
}

func (c *Cache) entry(name string) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[name]
	if e == nil {
		e = &cacheEntry{turn: make(chan struct{}, 1), element: c.used.PushFront(name)}
		e.turn <- struct{}{}
		c.entries[name] = e
	}
	c.used.MoveToFront(e.element)
	return e
}

func (c *Cache) keep(name string, t *Table) {
	e := c.entry(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.table != nil && e.table.ID == t.ID && e.table.Snapshot.Version > t.Snapshot.Version {
		return
	}
	if c.entries[name] != e {
		return // forgotten meanwhile
	}
	c.weight += t.Snapshot.Memory() - e.weight
	e.table, e.weight = t, t.Snapshot.Memory()
	for c.weight > c.bytes && c.used.Len() > 0 {
		oldest := c.used.Back().Value.(string)
		c.drop(oldest, c.entries[oldest])
	}
}

// drop removes an entry; mu is held.
func (c *Cache) drop(name string, e *cacheEntry) {
	c.used.Remove(e.element)
	delete(c.entries, name)
	c.weight -= e.weight
	e.table, e.weight = nil, 0
}
