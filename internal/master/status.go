package master

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
)

// Status is what /status shows of a master.
type Status struct {
	ID        string           `json:"id"`
	Version   string           `json:"version"`
	Cluster   etcd.Cluster     `json:"cluster"`
	Session   ownership.Report `json:"session"`
	State     string           `json:"state"`         // of the session
	NoSpace   bool             `json:"etcd_no_space"` // etcd takes only deletes
	Suspended string           `json:"suspended,omitempty"`
	Stale     int              `json:"stale_mirrors"` // while above 0 nothing is decided
	Slots     []int            `json:"slots"`
	Tables    []TableStatus    `json:"tables"` // of owned slots, in order
}

// TableStatus is one table as its owner sees it.
type TableStatus struct {
	Table      string   `json:"table"`
	Slot       int      `json:"slot"`
	TableID    string   `json:"table_id,omitempty"`
	Mode       string   `json:"mode,omitempty"`
	State      string   `json:"state,omitempty"`
	Shards     int      `json:"shards"`
	Pending    uint64   `json:"pending_generations"`
	Bytes      int64    `json:"pending_bytes"`
	OldestMS   int64    `json:"oldest_pending_ms,omitempty"` // when it was sealed, or a bound on that
	Score      float64  `json:"score"`
	Class      string   `json:"class,omitempty"` // empty: nothing due
	Ready      int      `json:"ready"`           // units in the ready queue
	Executions []string `json:"executions,omitempty"`
	Problem    string   `json:"problem,omitempty"` // what keeps it from being scanned or merged
}

// Status is the master's state at this moment.
func (m *Master) Status() any {
	session := m.session.Status().Report(m.config.Clock.Mono())
	s := Status{ID: m.config.ID, Version: m.config.Version, Session: session, State: session.State, Slots: []int{}, Tables: []TableStatus{}}
	if space, err := m.spaceMetrics.Space(); err == nil {
		s.NoSpace = space.NoSpaceAlarm
	}
	if !m.running() {
		return s
	}
	owned := m.ownedSlots()
	for slot := range owned {
		s.Slots = append(s.Slots, slot)
	}
	slices.Sort(s.Slots)
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Cluster, s.Stale = m.cluster, len(m.stale)
	if m.suspended != nil {
		s.Suspended = m.suspended.Error()
	}
	for _, e := range m.book.tables {
		if _, mine := owned[e.slot]; mine && (e.record != nil || len(e.shards) > 0) {
			s.Tables = append(s.Tables, e.status())
		}
	}
	slices.SortFunc(s.Tables, func(a, b TableStatus) int { return strings.Compare(a.Table, b.Table) })
	return s
}

func (e *entry) status() TableStatus {
	t := TableStatus{
		Table: e.name, Slot: e.slot, Shards: len(e.shards), Pending: e.gens, Bytes: e.bytes, OldestMS: e.oldest,
		Score: float64(int64(e.plan.Score*1000)) / 1000, Ready: len(e.ready),
	}
	if e.record != nil {
		t.TableID, t.Mode, t.State = e.record.TableID, e.record.Mode, e.record.State
	}
	if e.plan.Due {
		t.Class = e.plan.Class.String()
	}
	for i := range e.turns {
		if x := e.turns[i].Execution; x != "" && !slices.Contains(t.Executions, x) {
			t.Executions = append(t.Executions, x)
		}
	}
	if err := errors.Join(e.halted, e.scanErr, e.policyErr); err != nil {
		t.Problem = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return t
}

// ErrNotOwner: another master owns the table's slot, and only it can explain the table.
var ErrNotOwner = errors.New("another master owns the table's slot")

// Explain says for each shard of a table why it is or is not being merged now. Only the owner of the table's slot can;
// others fail with ErrNotOwner.
func (m *Master) Explain(table string) (schedule.Explanation, error) {
	if !m.running() {
		return schedule.Explanation{}, errors.New("the master is starting")
	}
	owned := m.ownedSlots()
	m.mu.Lock()
	defer m.mu.Unlock()
	slot := etcd.SlotOf(table, m.cluster.Slots)
	if _, mine := owned[slot]; !mine {
		return schedule.Explanation{}, fmt.Errorf("table %s, slot %d: %w", table, slot, ErrNotOwner)
	}
	e := m.book.tables[table]
	if e == nil || e.record == nil {
		return schedule.Explanation{}, fmt.Errorf("table %s is not known; if it was just created, try again in a few seconds", table)
	}
	return schedule.Explain(e.input(m.nowMS())), nil
}

// Healthy is nil, or why only a person can help.
func (m *Master) Healthy() error {
	if s := m.session.Status(); s.State == ownership.Failed {
		return fmt.Errorf("the session of master %s is held by another: %s", m.config.ID, s.Reason)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.suspended
}

// Ready is nil, or why nothing is decided now.
func (m *Master) Ready() error {
	if !m.running() {
		return errors.New("starting")
	}
	if _, held := m.session.Current(); !held {
		return fmt.Errorf("the session is %s", m.session.Status().State)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.stale) > 0 {
		return fmt.Errorf("%d mirrors of etcd are not complete", len(m.stale))
	}
	return m.suspended
}

func (m *Master) running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.started
}

// seconds is a time of day in milliseconds as an age.
func seconds(sinceMS, nowMS int64) float64 {
	if sinceMS == 0 || sinceMS > nowMS {
		return 0
	}
	return (time.Duration(nowMS-sinceMS) * time.Millisecond).Seconds()
}
