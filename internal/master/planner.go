package master

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
	"tidemark/internal/schedule/readyqueue"
)

const (
	// coalesce is how long a pass waits for more changes after the first: long enough to take a burst of seals of one
	// table as one, short beside the 20 ms in which a demand event should be a ready key.
	coalesce = 4 * time.Millisecond
	// writersMax bounds the transactions under way, one per table. Against an etcd that answers in 300 ms that is still
	// fifty tables a second.
	writersMax = 16
	// retryAfter is when a table is decided again whose transaction etcd did not take.
	retryAfter = time.Second
	// incompleteAfter is when a table is looked at again whose demand is not completely known.
	incompleteAfter = 50 * time.Millisecond
)

// plan makes passes until ctx is done, and waits for the transactions it has begun.
func (m *Master) plan(ctx context.Context) error {
	var writers errgroup.Group
	writers.SetLimit(writersMax)
	defer func() { _ = writers.Wait() }() // no writer returns an error
	for {
		next := m.pass(ctx, &writers)
		if err := m.waitFor(ctx, m.wakePlanner, next); err != nil {
			return nil
		}
		if m.config.Clock.Sleep(ctx, coalesce) != nil {
			return nil
		}
	}
}

// pass decides every table that changed or whose time has come, begins the transactions, and says when the next pass is
// due.
func (m *Master) pass(ctx context.Context, writers *errgroup.Group) (next time.Duration) {
	owned := m.ownedSlots()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mayDecide() {
		return 0 // a mirror that completes wakes the planner
	}
	begin := m.config.Clock.Mono()
	nowMS := m.nowMS()
	var soonest int64
	for _, e := range m.book.tables {
		_, dirty := m.book.dirty[e]
		token, mine := owned[e.slot]
		if !mine {
			e.planned = false
			delete(m.book.dirty, e)
			continue
		}
		due := dirty || !e.planned || (e.plan.NextMS != 0 && e.plan.NextMS <= nowMS) || e.retryMS != 0 && e.retryMS <= nowMS
		switch {
		case !due || e.busy:
		case !m.foldDemand(e, nowMS): // a new slot, or one whose watch is broken
			soonest = earlier(soonest, nowMS+incompleteAfter.Milliseconds())
		case m.decide(ctx, e, token, nowMS, writers):
			delete(m.book.dirty, e)
		}
		if e.planned && !e.busy {
			soonest = earlier(soonest, earlier(e.plan.NextMS, e.retryMS))
		}
	}
	m.counts.plans++
	m.counts.planNS += int64(m.config.Clock.Mono() - begin)
	if soonest == 0 {
		return 0
	}
	return max(time.Duration(soonest-nowMS)*time.Millisecond, coalesce)
}

// mayDecide says that everything a decision needs is there. mu is held.
func (m *Master) mayDecide() bool { return m.started && m.suspended == nil && len(m.stale) == 0 }

// ownedSlots is the slots that this master owns now, with their tokens.
func (m *Master) ownedSlots() map[int]ownership.SlotToken {
	owned := map[int]ownership.SlotToken{}
	for _, t := range m.slots.Owned() {
		owned[t.Slot] = t
	}
	return owned
}

func (m *Master) fence(t ownership.SlotToken) readyqueue.Fence {
	return readyqueue.Fence{Slot: t.Slot, Compare: t.Compare(m.keys)}
}

// decide plans one table and begins what follows from it; false if there is no writer free, and the table must be
// decided again. mu is held.
func (m *Master) decide(ctx context.Context, e *entry, token ownership.SlotToken, nowMS int64, writers *errgroup.Group) bool {
	e.retryMS = 0
	var plan schedule.Plan
	if e.record != nil {
		plan = schedule.Decide(e.input(nowMS))
	}
	change := schedule.Diff(e.units(), plan.Units)
	served := plan.Served && e.request != nil
	if plan.ScanSoon || e.record == nil && (e.wanted || len(e.shards) > 0) {
		m.scanSoon(e)
	} else {
		e.hurries = 0
	}
	if (!change.Empty() || served) && !writers.TryGo(func() error {
		m.carryOut(ctx, e, token, change, served)
		return nil
	}) {
		return false
	}
	e.plan, e.planned, e.busy = plan, true, !change.Empty() || served
	return true
}

// units is the table's units in the ready queue.
func (e *entry) units() []schedule.Unit {
	units := make([]schedule.Unit, 0, len(e.ready))
	for _, u := range e.ready {
		units = append(units, u.Unit)
	}
	slices.SortFunc(units, func(a, b schedule.Unit) int { return int(a.Groups) - int(b.Groups) })
	return units
}

// carryOut runs a table's transactions and notes their effect, so that the next decision does not wait for the watch to
// tell what we did ourselves.
func (m *Master) carryOut(ctx context.Context, e *entry, token ownership.SlotToken, change schedule.Change, served bool) {
	var put []schedule.Unit
	var revision int64
	var err error
	if !change.Empty() {
		put, revision, err = m.queue.Apply(ctx, m.fence(token), change)
	}
	if err == nil && served {
		err = m.dropRequest(ctx, e, token)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer wake(m.wakePlanner)
	e.busy = false
	m.book.touch(e)
	switch {
	case errors.Is(err, readyqueue.ErrTurnHeld):
		m.counts.refused++ // the watch brings the turn and with it the next decision
		e.retryMS = m.nowMS() + retryAfter.Milliseconds()
		delete(m.book.dirty, e)
	case errors.Is(err, readyqueue.ErrDeposed):
		m.counts.deposed++
		delete(m.book.dirty, e)
	case err != nil:
		if ctx.Err() == nil {
			m.log.Warn("could not write to the ready queue; trying again", "table", e.name, "error", err)
		}
		e.retryMS = m.nowMS() + retryAfter.Milliseconds()
		delete(m.book.dirty, e)
	}
	if revision == 0 {
		return
	}
	for _, u := range change.Delete {
		delete(e.ready, readyqueue.Key(m.keys, u))
	}
	for _, u := range put {
		if key := readyqueue.Key(m.keys, u); e.ready[key].revision < revision {
			e.ready[key] = readyUnit{Unit: u, revision: revision}
		}
	}
	m.counts.queued += int64(len(put))
	m.counts.unqueued += int64(len(change.Delete))
}

// dropRequest deletes a manual request that has been served, unless somebody has asked again.
func (m *Master) dropRequest(ctx context.Context, e *entry, token ownership.SlotToken) error {
	m.mu.Lock()
	var revision int64
	if e.request != nil {
		revision = e.request.revision
	}
	m.mu.Unlock()
	if revision == 0 {
		return nil
	}
	key := m.keys.Requests(e.slot, e.name)
	answer, err := etcd.Commit(ctx, m.config.Client, etcd.Txn{
		If:   []clientv3.Cmp{token.Compare(m.keys), etcd.Unchanged(key, revision)},
		Then: []clientv3.Op{clientv3.OpDelete(key)},
	})
	if err != nil || !answer.Succeeded {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.request != nil && e.request.revision == revision {
		e.request = nil
	}
	return nil
}

// earlier is the smaller of two times of which 0 is never.
func earlier(a, b int64) int64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
