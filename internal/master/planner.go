package master

import (
	"context"
	"errors"
	"iter"
	"maps"
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
	// gather is how long demand events are waited for after the first, so that a thousand of them in a second do not wake
	// the planner a thousand times. coalesce is how long a pass waits for more changes after the first: long enough to take
	// a burst of seals of one table as one. Both together are short beside the 20 ms in which a demand event should be a
	// ready key.
	gather   = 6 * time.Millisecond
	coalesce = 6 * time.Millisecond
	// writersMax bounds the transactions under way, one per table. Against an etcd that answers in 300 ms that is still
	// two hundred tables a second.
	writersMax = 64
	// sweepMin is how often all tables may be visited because the time of one has come: age needs no more precision, and
	// a visit to ten thousand tables takes half a millisecond. sweepMax is how often they are in any case.
	sweepMin, sweepMax = 50 * time.Millisecond, 10 * time.Second
	// requestTimeout bounds one transaction; what it would have written is decided again.
	requestTimeout = 5 * time.Second
	// complainEvery is how often a log line says that etcd does not take what is written.
	complainEvery = 10 * time.Second
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

// pass decides every table that changed, and now and then every table whose time has come; it begins the transactions
// and says when the next pass is due.
func (m *Master) pass(ctx context.Context, writers *errgroup.Group) (next time.Duration) {
	owned := m.ownedSlots()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mayDecide() {
		return 0 // a mirror that completes wakes the planner
	}
	begin, nowMS := m.config.Clock.Mono(), m.nowMS()
	p := passing{Master: m, ctx: ctx, writers: writers, owned: owned, nowMS: nowMS}
	if m.sweepAt <= begin {
		p.visitAll(maps.Values(m.book.tables))
	} else {
		p.soonest = nowMS + (m.sweepAt - begin).Milliseconds()
		p.visitAll(maps.Keys(m.book.dirty))
	}
	m.counts.plans++
	m.counts.planNS += int64(m.config.Clock.Mono() - begin)
	if p.full {
		return 0 // a transaction that ends wakes the planner, which goes on, with the sweep if it was one
	}
	m.sweepAt = begin + sweepMax
	if p.soonest != 0 {
		m.sweepAt = begin + min(max(time.Duration(p.soonest-nowMS)*time.Millisecond, sweepMin), sweepMax)
	}
	return m.sweepAt - begin
}

// passing is one pass.
type passing struct {
	*Master
	ctx     context.Context
	writers *errgroup.Group
	owned   map[int]ownership.SlotToken
	nowMS   int64
	full    bool  // no writer is free: what is left stays dirty for the next pass
	soonest int64 // when a table is to be visited again though nothing happens; 0 = never
}

// visitAll visits tables until no writer is free. mu is held.
func (p *passing) visitAll(entries iter.Seq[*entry]) {
	for e := range entries {
		if p.full {
			return
		}
		p.visit(e)
	}
}

// visit decides one table if there is reason to. mu is held.
func (p *passing) visit(e *entry) {
	_, dirty := p.book.dirty[e]
	token, mine := p.owned[e.slot]
	if !mine {
		e.planned = false
		delete(p.book.dirty, e)
		// Only an owner scans, and finds out that there is no such table.
		e.wanted = e.wanted && (e.found || e.request != nil)
		p.book.forgetIfEmpty(e)
		return
	}
	due := dirty || !e.planned || e.plan.NextMS != 0 && e.plan.NextMS <= p.nowMS || e.retryMS != 0 && e.retryMS <= p.nowMS
	switch {
	case e.busy: // its transaction wakes the planner
		return
	case !due:
	case !p.foldDemand(e, p.nowMS): // a new slot, or one whose watch is broken
		p.soonest = earlier(p.soonest, p.nowMS+incompleteAfter.Milliseconds())
		return
	case p.decide(p.ctx, e, token, p.nowMS, p.writers):
		delete(p.book.dirty, e)
	default:
		p.full = true
		p.book.touch(e)
	}
	if e.planned && !e.busy {
		p.soonest = earlier(p.soonest, earlier(e.plan.NextMS, e.retryMS))
	}
	p.book.forgetIfEmpty(e) // the last that was known of a dropped table may have been its demand
}

// mayDecide says that everything a decision needs is there. mu is held.
func (m *Master) mayDecide() bool { return m.started && m.suspended == nil && len(m.stale) == 0 }

// ownedSlots is the slots that this master owns now, with their tokens. The map is shared: nobody may change it.
func (m *Master) ownedSlots() map[int]ownership.SlotToken { return m.slots.Owned() }

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
	var served int64 // revision of a request that has been
	if r := e.request; r != nil && r.revision <= e.answered && len(e.untold) == 0 && (plan.Served || r.ScanOnly) {
		served = r.revision
	}
	if plan.ScanSoon || e.record == nil && (e.wanted || len(e.shards) > 0) {
		m.scanSoon(e)
	} else {
		e.hurries = 0
	}
	if (!change.Empty() || served != 0) && !writers.TryGo(func() error {
		m.carryOut(ctx, e, token, change, served)
		return nil
	}) {
		return false
	}
	e.plan, e.planned, e.busy = plan, true, !change.Empty() || served != 0
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
func (m *Master) carryOut(ctx context.Context, e *entry, token ownership.SlotToken, change schedule.Change, served int64) {
	running := ctx
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var put []schedule.Unit
	var revision int64
	var err error
	if !change.Empty() {
		put, revision, err = m.queue.Apply(ctx, m.fence(token), change)
	}
	if err == nil && served != 0 {
		err = m.dropRequest(ctx, e, token, served)
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
		if running.Err() == nil {
			m.complain(e, err)
		}
		e.retryMS = m.nowMS() + retryAfter.Milliseconds()
		delete(m.book.dirty, e)
	}
	m.counts.queued += int64(len(put))
	m.counts.unqueued += int64(len(change.Delete))
	// What the watch has told already includes what became of it since: a unit may have been claimed before we hear that
	// we queued it, and would stay in the book for ever.
	if revision <= m.readySeen {
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
}

// complain logs that etcd did not take a transaction, for one table out of the many that it concerns at the same time.
// mu is held.
func (m *Master) complain(e *entry, err error) {
	now := m.config.Clock.Mono()
	if m.complainAt > now {
		m.unsaid++
		return
	}
	m.log.Warn("could not write to the ready queue; trying again", "table", e.name, "others", m.unsaid, "error", err)
	m.complainAt, m.unsaid = now+complainEvery, 0
}

// dropRequest deletes the manual request of a revision, which has been served, unless somebody has asked again.
func (m *Master) dropRequest(ctx context.Context, e *entry, token ownership.SlotToken, revision int64) error {
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
