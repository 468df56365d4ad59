package master

import (
	"context"
	"maps"
	"slices"

	"tidemark/internal/demand"
)

// runDemand caches the demand of the slots that are owned, and tells the planner which tables changed, until ctx is done.
func (m *Master) runDemand(ctx context.Context) error {
	m.cacheOwned()
	for {
		changed := m.cache.TakeChanged()
		m.mu.Lock()
		for _, table := range changed {
			e := m.book.entry(table)
			e.demandChanged = true
			m.book.touch(e)
		}
		m.mu.Unlock()
		wake(m.wakePlanner)
		select {
		case <-m.slots.Changed():
			m.cacheOwned()
			m.sweepSoon()
			wake(m.wakeScans)
		case <-m.cache.Changed():
			if m.config.Clock.Sleep(ctx, gather) != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// cacheOwned caches the demand of the owned slots and of no others.
func (m *Master) cacheOwned() { m.cache.SetSlots(slices.Collect(maps.Keys(m.ownedSlots()))) }

// sweepSoon makes the next pass visit every table.
func (m *Master) sweepSoon() {
	m.mu.Lock()
	m.sweepAt = 0
	m.mu.Unlock()
	wake(m.wakePlanner)
}

// foldDemand brings a table's shards up to date with its demand records; false while they are not complete. mu is held.
func (m *Master) foldDemand(e *entry, nowMS int64) bool {
	if !m.cache.Fresh(e.slot) {
		return false
	}
	if !e.demandChanged && e.planned && len(e.untold) == 0 {
		return true
	}
	e.demandChanged = false
	e.beginDemand()
	of, _ := m.cache.Table(e.slot, e.name)
	e.hear(of.Shards)
	for _, s := range of.Shards {
		e.addDemand(s, nowMS)
	}
	if len(of.Shards) > 0 {
		e.wanted = true
	}
	return true
}

// hear forgets of what was untold whatever demand records say by now.
func (e *entry) hear(records []demand.Shard) {
	for _, s := range records {
		if ev, ok := e.untold[s.Name]; ok {
			if _, changed := demand.Join(s.Record, ev); !changed {
				delete(e.untold, s.Name)
			}
		}
	}
}

// demandOf is a table's demand by shard; false while it is not complete.
func (m *Master) demandOf(e *entry) (map[string]demand.Shard, bool) {
	if !m.cache.Fresh(e.slot) {
		return nil, false
	}
	of, _ := m.cache.Table(e.slot, e.name)
	all := make(map[string]demand.Shard, len(of.Shards))
	for _, s := range of.Shards {
		all[s.Name] = s
	}
	return all, true
}
