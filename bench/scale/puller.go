package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
)

// puller is an executor that pulls, releases and publishes as internal/executor does, and merges nothing.
type puller struct {
	id       string
	client   *clientv3.Client
	session  *ownership.Session
	turns    *ownership.Turns
	queue    *ownership.ReadyQueue
	detached *demand.Detached
	slots    int // executions at once
	tally    *tally
	// merge says what became of a unit's shards; nil for nothing.
	merge func(ownership.Turn) []demand.ShardEvent

	running atomic.Int64
	freed   chan struct{}
	refused map[string]bool // only run's goroutine
}

// tally counts for all pullers together.
type tally struct {
	claims, conflicts, dropped atomic.Int64

	mu    sync.Mutex // guards the following
	put   map[string]time.Time
	waits []time.Duration // from the put of a unit to its claim
}

func (t *tally) queued(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put[id] = time.Now()
}

func (t *tally) claimed(key string) {
	t.claims.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.put[key]; ok {
		t.waits = append(t.waits, time.Since(at))
		delete(t.put, key)
	}
}

// quantile is the wait that a share of all units did not exceed.
func (t *tally) quantile(q float64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waits) == 0 {
		return 0
	}
	slices.Sort(t.waits)
	return t.waits[int(q*float64(len(t.waits)-1))]
}

func newTally() *tally { return &tally{put: map[string]time.Time{}} }

func newPuller(client *clientv3.Client, id string, slots int, publisher *demand.Publisher, t *tally) (*puller, error) {
	c, r, log := clock.System(), random.New(), hclog.NewNullLogger()
	session, err := ownership.NewSession(client, ownership.Options{Key: keys.Executor(id), Clock: c, Random: r, Log: log})
	if err != nil {
		return nil, err
	}
	p := &puller{
		id: id, client: client, session: session, slots: slots, tally: t, freed: make(chan struct{}, 1), refused: map[string]bool{},
		turns: ownership.NewTurns(client, keys, session, id, c, r, log),
		queue: ownership.NewReadyQueue(client, keys, id, c, r, log),
	}
	p.detached = demand.NewDetached(publisher, func(result demand.Result) {
		if result == demand.Dropped {
			t.dropped.Add(1)
		}
	})
	return p, nil
}

// run pulls until ctx is done.
func (p *puller) run(ctx context.Context) error {
	support, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var g errgroup.Group
	g.Go(func() error { return p.session.Run(support) })
	g.Go(func() error { return p.turns.Run(support) })
	g.Go(func() error { return p.queue.Run(support) })
	var executions sync.WaitGroup
	for ctx.Err() == nil {
		grant, err := p.session.Wait(ctx)
		if err != nil {
			break
		}
		again, later := true, time.Duration(0)
		for again {
			again, later = p.claim(ctx, grant, &executions)
		}
		var due <-chan time.Time
		if later > 0 {
			due = time.After(later)
		}
		select {
		case <-due:
		case <-p.freed:
		case <-p.queue.Changed():
			clear(p.refused)
		case <-ctx.Done():
		}
	}
	executions.Wait()
	p.detached.Close()
	stop()
	return g.Wait()
}

func (p *puller) claim(ctx context.Context, grant ownership.Grant, executions *sync.WaitGroup) (again bool, later time.Duration) {
	if p.running.Load() >= int64(p.slots) || ctx.Err() != nil {
		return false, 0
	}
	unit, ok, later := p.queue.Choose(func(u ownership.ReadyKV) bool { return !p.refused[u.Key] })
	if !ok {
		return false, later
	}
	began := time.Now()
	turn, err := p.turns.Claim(ctx, grant, unit)
	p.queue.Claimed(time.Since(began))
	switch {
	case errors.Is(err, ownership.ErrGone):
		p.tally.conflicts.Add(1)
		p.queue.Strike(unit)
		return true, 0
	case errors.Is(err, ownership.ErrTaken):
		p.tally.conflicts.Add(1)
		p.refused[unit.Key] = true
		return true, 0
	case err != nil:
		return false, 0
	}
	p.tally.claimed(unit.Key)
	p.queue.Strike(unit)
	p.running.Add(1)
	executions.Go(func() {
		defer func() {
			p.running.Add(-1)
			select {
			case p.freed <- struct{}{}:
			default:
			}
		}()
		p.execute(context.WithoutCancel(ctx), turn)
	})
	return true, 0
}

// execute is the life of an execution shorter than a second as etcd sees it: the release with an outcome per turn, then
// the marks.
func (p *puller) execute(ctx context.Context, turn ownership.Turn) {
	var marks []demand.ShardEvent
	if p.merge != nil {
		marks = p.merge(turn)
	}
	run := schedule.Run{Execution: turn.Execution, Executor: p.id, Incarnation: 1, Kind: schedule.KindMerge, EndedMS: time.Now().UnixMilli(), Did: true}
	record, err := schedule.Next(nil, run).Marshal()
	if err != nil {
		return
	}
	outcomes := ownership.Outcomes{}
	for n := range turn.Turns.All() {
		outcomes[n] = record
	}
	if p.turns.Release(ctx, turn, outcomes) == nil && len(marks) > 0 {
		p.detached.Go(marks, func(error) {})
	}
}
