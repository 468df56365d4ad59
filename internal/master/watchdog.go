package master

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
)

const (
	// vanishGrace is how long a turn that disappeared is given for its outcome to be seen. Both are in one transaction;
	// only their watches are two.
	vanishGrace = 300 * time.Millisecond
	// confirmation is what is added to idle_timeout before an execution is revoked: its own watchdog acts first.
	confirmation = 60 * time.Second
	// watchTick is how often standing executions are looked for.
	watchTick = 5 * time.Second
)

// watched is an execution as the watchdog saw it move last.
type watched struct {
	seq     int64
	since   time.Duration // monotonic
	present bool
}

// watchTurns settles turns that vanished and revokes those that stand still, until ctx is done.
func (m *Master) watchTurns(ctx context.Context) error {
	seen := map[string]*watched{}
	for tick := m.config.Clock.Mono(); ; {
		if err := m.waitFor(ctx, m.wakeDogs, watchTick); err != nil {
			return nil
		}
		if m.takeGone() {
			if m.config.Clock.Sleep(ctx, vanishGrace) != nil {
				return nil
			}
			m.settleGone(ctx)
		}
		if now := m.config.Clock.Mono(); now-tick >= watchTick {
			tick = now
			m.revokeIdle(ctx, seen)
		}
	}
}

// takeGone says whether turns have vanished.
func (m *Master) takeGone() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.book.gone) > 0
}

// settleGone makes a retryable failure of every turn of ours that vanished without an outcome of its execution.
func (m *Master) settleGone(ctx context.Context) {
	owned := m.ownedSlots()
	m.mu.Lock()
	gone := slices.Collect(maps.Keys(m.book.gone))
	clear(m.book.gone)
	mayDecide := m.mayDecide() // if etcd was away, what vanished meanwhile is not held against anybody
	m.mu.Unlock()
	for _, g := range gone {
		if token, mine := owned[etcd.SlotOf(g.table, m.cluster.Slots)]; mine && mayDecide {
			if err := m.settle(ctx, g, token); err != nil && ctx.Err() == nil {
				m.log.Warn("could not record that turns vanished; their groups are queued without a pause", "table", g.table, "error", err)
			}
		}
		m.note(func(b *book) { b.settled(g) })
	}
}

// settle leaves one outcome per vanished turn in one transaction, unless the execution left its own.
func (m *Master) settle(ctx context.Context, g goneTurns, token ownership.SlotToken) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	turns, incarnation := m.goneTurnsOf(g)
	if len(turns) == 0 {
		return nil
	}
	standing, err := m.outcomesOf(ctx, g.table)
	if err != nil {
		return err
	}
	txn := etcd.Txn{If: []clientv3.Cmp{token.Compare(m.keys)}}
	var executor string
	for n, t := range turns {
		last := standing[n]
		if last.record != nil && last.record.Execution == g.execution {
			continue
		}
		executor = t.Executor
		value, err := schedule.Vanished(last.record, incarnation, t.kind, t.Execution, t.Executor, m.nowMS()).Marshal()
		if err != nil {
			return err
		}
		key := m.keys.Outcome(g.table, n)
		txn.If = append(txn.If, etcd.Unchanged(key, last.revision), etcd.Absent(m.keys.Turn(g.table, n)))
		txn.Then = append(txn.Then, clientv3.OpPut(key, string(value)))
	}
	if len(txn.Then) == 0 {
		return nil
	}
	answer, err := etcd.Commit(ctx, m.config.Client, txn)
	if err != nil || !answer.Succeeded {
		return err // refused: there is an outcome or another turn by now
	}
	m.mu.Lock()
	m.counts.vanished++
	m.mu.Unlock()
	m.log.Warn("an execution vanished without an outcome; that counts as a retryable failure", "table", g.table,
		"execution", g.execution, "executor", executor, "turns", len(txn.Then))
	return nil
}

// goneTurnsOf is the vanished turns of an execution, by turn.
func (m *Master) goneTurnsOf(g goneTurns) (turns map[int]turn, incarnation int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	turns = map[int]turn{}
	e := m.book.tables[g.table]
	if e == nil {
		return turns, 0
	}
	for n, t := range e.turns {
		if t.gone && t.Execution == g.execution {
			turns[n] = t
		}
	}
	return turns, e.incarnation()
}

// outcomesOf reads a table's outcome records from etcd itself, for the mirror may lag. What cannot be read counts as
// there, without contents.
func (m *Master) outcomesOf(ctx context.Context, table string) (map[int]outcome, error) {
	answer, err := m.config.Client.Get(ctx, m.keys.OutcomesOfTable(table), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading the outcomes of table %s: %w", table, err)
	}
	standing := map[int]outcome{}
	for _, kv := range answer.Kvs {
		_, n, err := m.keys.ParseOutcome(string(kv.Key))
		if err != nil {
			continue
		}
		o := outcome{revision: kv.ModRevision}
		if record, err := schedule.ParseOutcome(kv.Value); err == nil {
			o.record = &record
		}
		standing[n] = o
	}
	return standing, nil
}

// held is one execution on a table of ours.
type held struct {
	entry     *entry
	token     ownership.SlotToken
	execution string
	executor  string
	kind      schedule.Kind
	turns     map[int]int64 // mod revisions
	progress  progress
	present   bool
}

// executions lists the executions on tables of owned slots.
func (m *Master) executions() map[string]*held {
	owned := m.ownedSlots()
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]*held{}
	if !m.mayDecide() {
		return nil
	}
	for _, e := range m.book.tables {
		token, mine := owned[e.slot]
		if !mine {
			continue
		}
		for n, t := range e.turns {
			if t.Execution == "" || t.gone {
				continue
			}
			h := all[t.Execution]
			if h == nil {
				p, present := m.book.progress[t.Execution]
				h = &held{entry: e, token: token, execution: t.Execution, executor: t.Executor, kind: t.kind,
					turns: map[int]int64{}, progress: p, present: present}
				all[t.Execution] = h
			}
			h.turns[n] = t.revision
		}
	}
	return all
}

// revokeIdle revokes the turns of executions whose sequence has stood still for too long. While mirrors are stale
// nothing is judged, and time starts anew after it. Likewise while etcd is out of space: it takes no progress then.
func (m *Master) revokeIdle(ctx context.Context, seen map[string]*watched) {
	now, all := m.config.Clock.Mono(), m.executions()
	if m.noProgressTaken(now, seen) {
		clear(seen)
	}
	for execution := range seen {
		if all[execution] == nil {
			delete(seen, execution)
		}
	}
	for execution, h := range all {
		w := seen[execution]
		if w == nil || w.seq != h.progress.Seq || w.present != h.present {
			seen[execution] = &watched{seq: h.progress.Seq, present: h.present, since: now}
			continue
		}
		if now-w.since < m.config.IdleTimeout+confirmation {
			continue
		}
		if err := m.revoke(ctx, h); err != nil {
			if ctx.Err() == nil {
				m.log.Warn("could not revoke the turns of an execution that stands still; trying again",
					"table", h.entry.name, "execution", execution, "error", err)
			}
			continue
		}
		delete(seen, execution)
	}
}

// noProgressTaken says that an execution seems to stand still and etcd would not take its progress. Etcd is not asked as
// long as all of them move. One that does not answer is not full as far as anybody knows.
func (m *Master) noProgressTaken(now time.Duration, seen map[string]*watched) bool {
	for _, w := range seen {
		if now-w.since >= confirmation {
			space, err := m.spaceMetrics.Space()
			return err == nil && space.NoSpaceAlarm
		}
	}
	return false
}

// errAdvanced: the execution moved after all, or its turns changed.
var errAdvanced = errors.New("it has advanced meanwhile")

// revoke deletes the turns of an execution and leaves a retryable failure in their place, unless a turn has changed or
// the execution has advanced: its progress is compared, so a late advance wins.
func (m *Master) revoke(ctx context.Context, h *held) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	txn := etcd.Txn{If: []clientv3.Cmp{
		h.token.Compare(m.keys),
		etcd.Unchanged(m.keys.Progress(h.execution), h.progress.revision),
	}}
	for n, revision := range h.turns {
		key := m.keys.Turn(h.entry.name, n)
		m.mu.Lock()
		last, incarnation := h.entry.outcomes[n], h.entry.incarnation()
		m.mu.Unlock()
		next := schedule.Next(last.record, schedule.Run{
			Execution: h.execution, Executor: h.executor, Kind: h.kind, EndedMS: m.nowMS(),
			Incarnation: incarnation,
			Failure: &schedule.Failure{Code: "revoked_idle", Class: schedule.Retryable,
				Message: "executor " + h.executor + " completed nothing for " + (m.config.IdleTimeout + confirmation).String() + "; its turns were revoked"},
		})
		value, err := next.Marshal()
		if err != nil {
			return err
		}
		txn.If = append(txn.If, etcd.Unchanged(key, revision), etcd.Unchanged(m.keys.Outcome(h.entry.name, n), last.revision))
		txn.Then = append(txn.Then, clientv3.OpDelete(key), clientv3.OpPut(m.keys.Outcome(h.entry.name, n), string(value)))
	}
	answer, err := etcd.Commit(ctx, m.config.Client, txn)
	if err != nil {
		return err
	}
	if !answer.Succeeded {
		return errAdvanced
	}
	m.mu.Lock()
	m.counts.revoked++
	m.mu.Unlock()
	m.log.Error("revoked the turns of an execution that stands still", "table", h.entry.name,
		"execution", h.execution, "executor", h.executor, "sequence", h.progress.Seq)
	return nil
}

// incarnation is the table's, as far as it is known.
func (e *entry) incarnation() int64 {
	if e.record == nil {
		return 0
	}
	return e.record.Incarnation
}
