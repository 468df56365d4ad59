package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/merge"
	"tidemark/internal/objstore"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
	"tidemark/internal/table"
	"tidemark/internal/tracing"
)

// clusterPoll is how often an executor that is started before its first master looks for it.
const clusterPoll = 200 * time.Millisecond

// tablesBytes bounds the snapshots that are kept between merges.
const tablesBytes = 128 << 20

// Executor is one executor. Make it with New and call Run once.
type Executor struct {
	config    Config
	deps      Deps
	session   *ownership.Session
	turns     *ownership.Turns
	queue     *ownership.ReadyQueue
	slots     int // of the cluster, once known
	publisher *demand.Publisher
	detached  *demand.Detached
	metrics   *metrics
	freed     chan struct{} // an execution has ended

	drains *drains
	failed atomic.Pointer[error] // why only a person can help

	mu      sync.Mutex // guards the following
	scope   *objstore.Scope
	tables  *table.Cache // reads through scope
	running map[string]*execution
	refused map[string]bool // ready keys that could not be claimed since the queue last changed
}

// New checks the configuration; Run does everything else.
func New(config Config, deps Deps) (*Executor, error) {
	config, err := config.checked()
	if err != nil {
		return nil, err
	}
	e := &Executor{
		config: config, deps: deps, freed: make(chan struct{}, 1), drains: newDrains(deps.Keys.Drain(config.ID)),
		running: map[string]*execution{}, refused: map[string]bool{},
	}
	e.session, err = ownership.NewSession(deps.Client, ownership.Options{
		Key: deps.Keys.Executor(config.ID), Config: config.Lease, Details: e.details,
		Clock: deps.Clock, Random: deps.Random, Log: deps.Log,
	})
	if err != nil {
		return nil, err
	}
	e.session.OnDeadline(e.extend)
	e.session.OnFence(e.fence)
	e.turns = ownership.NewTurns(deps.Client, deps.Keys, e.session, config.ID, deps.Clock, deps.Random, deps.Log)
	e.queue = ownership.NewReadyQueue(deps.Client, deps.Keys, config.ID, deps.Clock, deps.Random, deps.Log)
	e.metrics = newMetrics(e, deps.Metrics)
	return e, nil
}

// details is what the executor's session key says of it.
func (e *Executor) details() map[string]any {
	return map[string]any{
		"address": e.config.Address, "version": e.config.Version, "slots": e.config.Slots, "memory": e.config.Memory,
		"draining": e.drains.draining(),
	}
}

// extend opens a scope for a new tenure of the session, or moves the deadline of the present one.
func (e *Executor) extend(deadline time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.scope == nil || e.scope.Err() != nil {
		e.scope = objstore.NewScope(e.deps.Store, e.deps.Clock)
		e.tables = table.NewCache(e.scope, table.Deps{Clock: e.deps.Clock, Random: e.deps.Random, Log: e.deps.Log}, tablesBytes)
	}
	e.scope.SetDeadline(deadline)
}

// fence closes the scope of a tenure that is over, before anybody learns of the loss.
func (e *Executor) fence(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.scope != nil {
		e.scope.Fence(cause)
	}
}

// scoped is the store and the snapshots of the present tenure.
func (e *Executor) scoped() (*objstore.Scope, *table.Cache) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.scope, e.tables
}

// signal tells the loop that a slot is free; it never blocks.
func (e *Executor) signal() {
	select {
	case e.freed <- struct{}{}:
	default:
	}
}

// Run works until drain is closed and what runs has finished, or until ctx is done, which cancels what runs. It returns
// the reason when a rival holds the executor's id for good.
func (e *Executor) Run(ctx context.Context, drain <-chan struct{}) error {
	// What supports the executions outlives them: session, queue and publishes end last.
	support, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, support := errgroup.WithContext(support)
	group.Go(func() error { return e.session.Run(support) })
	group.Go(func() error { return e.turns.Run(support) })
	group.Go(func() error { return e.queue.Run(support) })
	group.Go(func() error { return e.watchDrain(support) })

	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unlink := context.AfterFunc(support, func() { cancel(context.Cause(support)) })
	defer unlink()
	if e.awaitCluster(work, drain) {
		e.publisher = demand.NewPublisher(e.deps.Client, e.deps.Keys, e.slots, e.deps.Clock, e.deps.Random)
		e.detached = demand.NewDetached(e.publisher, e.metrics.published)
		e.loop(work, drain)
		e.detached.Close()
	}
	stop()
	if err := group.Wait(); err != nil {
		err = fmt.Errorf("executor %s: %w", e.config.ID, err)
		e.failed.Store(&err)
		return err
	}
	return nil
}

// awaitCluster waits for the record of the cluster, which its first master writes; false when the end comes first.
func (e *Executor) awaitCluster(ctx context.Context, drain <-chan struct{}) bool {
	for said := false; ; said = true {
		cluster, err := etcd.ReadCluster(ctx, e.deps.Client, e.deps.Keys)
		if err == nil {
			e.slots = cluster.Slots
			return true
		}
		if !said {
			e.deps.Log.Info("waiting for a master of the cluster", "cause", err)
		}
		again, stop := e.deps.Clock.After(clusterPoll)
		select {
		case <-again:
		case <-drain:
			stop()
			return false
		case <-ctx.Done():
			stop()
			return false
		}
	}
}

// loop claims and starts units until there is to be no more, then waits for those that run.
func (e *Executor) loop(ctx context.Context, drain <-chan struct{}) {
	var executions sync.WaitGroup
	defer executions.Wait()
	announced := false // what the session key says of draining
	for token := ""; ; {
		grant, err := e.session.Wait(ctx)
		if err != nil {
			return
		}
		if token != "" && token != grant.Token {
			e.queue.Doubt() // whatever took the session may have replaced etcd
		}
		token = grant.Token
		if draining := e.drains.draining(); draining != announced {
			if err := e.session.Refresh(ctx); err != nil {
				e.deps.Log.Warn("cannot announce the drain, or its end", "error", err)
			} else {
				e.deps.Log.Info("draining", "now", draining, "running", e.Active())
				announced = draining
			}
		}
		again, later := true, time.Duration(0)
		for again && grant.Err() == nil && e.drains.mayClaim() {
			again, later = e.claim(ctx, grant, &executions)
		}
		due, stop := e.after(later)
		select {
		case <-due:
		case <-e.freed:
		case <-e.queue.Changed():
			// Whatever was in the way of a claim is part of a later change, so every refusal is worth another try.
			e.forgive()
		case <-grant.Context.Done():
		case <-drain:
			drain = nil // seen
			e.drains.end()
		case <-e.drains.changed:
		case <-ctx.Done():
			stop()
			return
		}
		stop()
		if e.drains.isEnding() && e.Active() == 0 {
			return
		}
	}
}

// after fires once; 0 is never.
func (e *Executor) after(d time.Duration) (fired <-chan time.Time, stop func()) {
	if d == 0 {
		return nil, func() {}
	}
	return e.deps.Clock.After(d)
}

// claim claims and starts one unit, if a slot is free and there is one that fits. It says whether looking again may find more, at
// once or, if not 0, after a while.
func (e *Executor) claim(ctx context.Context, grant ownership.Grant, executions *sync.WaitGroup) (again bool, later time.Duration) {
	if e.Active() >= e.config.Slots || e.turns.Owed() > 0 {
		return false, 0
	}
	room, soon := e.makeRoom()
	entry, ok, later := e.queue.Choose(func(entry ownership.ReadyKV) bool { return e.fits(entry, room) })
	if !ok {
		return false, sooner(soon, later)
	}
	unit, err := schedule.ParseUnit(entry.Value)
	if err != nil {
		e.deps.Log.Warn("a unit in the queue cannot be read and is left to a newer executor", "key", entry.Key, "error", err)
		e.refuse(entry.Key)
		return true, 0
	}
	claiming := e.deps.Clock.Now()
	began := e.deps.Clock.Mono()
	turn, err := e.turns.Claim(ctx, grant, entry)
	e.queue.Claimed(e.deps.Clock.Mono() - began)
	switch {
	case errors.Is(err, ownership.ErrGone):
		e.metrics.conflicts.Inc()
		e.queue.Strike(entry)
		return true, 0
	case errors.Is(err, ownership.ErrTaken):
		e.metrics.conflicts.Inc()
		e.refuse(entry.Key)
		return true, 0
	case err != nil:
		e.deps.Log.Warn("claiming", "key", entry.Key, "error", err)
		return false, 0 // the session or the debt to etcd says when to look again
	}
	e.metrics.claims.Inc()
	e.queue.Strike(entry)
	x := &execution{turn: turn, unit: unit, budget: e.need(unit), started: e.deps.Clock.Mono()}
	x.last = x.started
	if unit.Kind == schedule.KindMerge {
		x.trace = e.deps.Traces.Execution(turn.Execution, e.config.ID, string(unit.Kind))
		x.trace.Stage("claim", claiming, e.deps.Clock.Now(), nil)
	}
	e.begin(x)
	executions.Add(1)
	go func() {
		defer executions.Done()
		defer e.signal()
		defer e.end(x)
		e.publish(e.run(ctx, x), x.trace)
	}()
	return true, 0
}

func (e *Executor) begin(x *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running[x.turn.Execution] = x
}

func (e *Executor) end(x *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.running, x.turn.Execution)
}

// Active is the number of executions running.
func (e *Executor) Active() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.running)
}

func (e *Executor) refuse(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused[key] = true
}

func (e *Executor) isRefused(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refused[key]
}

func (e *Executor) forgive() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.refused)
}

// publish reports the marks of a merge beside whatever comes next. What is lost or late cannot misstate demand: marks only
// rise, and a scan reads them from the log.
func (e *Executor) publish(done merge.Outcome, trace *tracing.Execution) {
	if len(done.Merged) == 0 {
		trace.End(e.deps.Clock.Now())
		return
	}
	marks := make([]demand.MergedEvent, len(done.Merged))
	for i, m := range done.Merged {
		marks[i] = demand.MergedEvent{
			Table: done.Table, TableID: done.TableID, Incarnation: done.Incarnation, Shard: m.Shard, Merged: m.Mark, NextMS: m.NextSealedMS,
		}
	}
	publishing := e.deps.Clock.Now()
	e.detached.Go(e.publisher.Events(marks), func(err error) {
		now := e.deps.Clock.Now()
		trace.Stage("publish", publishing, now, err)
		trace.End(now)
	})
}
