package master

import (
	"context"
	"time"

	"tidemark/internal/table"
)

// A listing of all tables costs about one request per folder. discoverPerSecond bounds what discovery may spend, so few
// tables are looked for every two seconds and ten thousand every quarter of an hour; a table that is written to is
// noticed by its demand at once.
const (
	discoverMin       = 2 * time.Second
	discoverMax       = 30 * time.Minute
	discoverPerSecond = 10
)

// discover looks for tables on storage until ctx is done.
func (m *Master) discover(ctx context.Context) error {
	for {
		wait := incompleteAfter
		if m.ready() {
			names, err := table.List(ctx, m.config.Store)
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				m.log.Warn("could not list the tables under the root; trying again", "root", m.config.Store.URL(), "error", err)
			}
			if err == nil {
				m.found(names)
			}
			wait = min(max(time.Duration(len(names)/discoverPerSecond)*time.Second, discoverMin), discoverMax)
		}
		if m.config.Clock.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// found notes the tables that storage has. A table that was found before is left to its own scans; one that is not there
// any more may be forgotten.
func (m *Master) found(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := make(map[string]struct{}, len(names))
	for _, name := range names {
		there[name] = struct{}{}
		e := m.book.entry(name)
		if !e.found {
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
}

// ready says whether decisions can be made.
func (m *Master) ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mayDecide()
}
