package master

import (
	"context"
	"time"

	"tidemark/internal/table"
)

// A listing of all tables costs about one request per folder, and finds only tables that nobody has told us of: one that is
// written to is noticed by its demand at once. So it is made often while tables appear, and half as often after each time
// in which none did, down to six times an hour. discoverPerSecond bounds what it may spend in any case: ten thousand
// tables are looked for every quarter of an hour.
const (
	discoverMin       = 2 * time.Second
	discoverMax       = 10 * time.Minute
	discoverPerSecond = 10
)

// discover looks for tables on storage until ctx is done.
func (m *Master) discover(ctx context.Context) error {
	wait := discoverMin
	for {
		pause := incompleteAfter
		if m.ready() {
			names, err := table.List(ctx, m.config.Store)
			switch {
			case err != nil && ctx.Err() != nil:
				return nil
			case err != nil:
				m.log.Warn("could not list the tables under the root; trying again", "root", m.config.Store.URL(), "error", err)
				wait = discoverMin
			case m.found(names):
				wait = discoverMin
			}
			pause = max(wait, time.Duration(len(names)/discoverPerSecond)*time.Second)
			wait = min(2*wait, discoverMax)
		} else {
			wait = discoverMin // etcd may have lost everything
		}
		if m.config.Clock.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// found notes the tables that storage has. A table that was found before is left to its own scans, unless the last one found
// it dropped or not adopted: it is looked at again, for nobody else says that it has come back until somebody writes to it.
// One that is not there any more may be forgotten. It reports whether there is a new one.
func (m *Master) found(names []string) (fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := make(map[string]struct{}, len(names))
	for _, name := range names {
		there[name] = struct{}{}
		e := m.book.entry(name)
		gone := e.found && !e.wanted && e.record == nil && len(e.shards) == 0
		if !e.found || gone {
			fresh = fresh || !gone
			e.found, e.wanted, e.scanAt = true, true, 0
			m.book.touch(e)
		}
	}
	for name, e := range m.book.tables {
		if _, ok := there[name]; e.found && !ok {
			e.found = false
			m.book.forgetIfEmpty(e)
		}
	}
	wake(m.wakeScans)
	return fresh
}

// ready says whether decisions can be made.
func (m *Master) ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mayDecide()
}
