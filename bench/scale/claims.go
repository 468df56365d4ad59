package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
	"tidemark/internal/turnset"
)

const (
	pullers = 8
	// claimsFor is how long claims are counted; pace is how many units a second are queued when waiting is measured, half
	// of what is asked for.
	claimsFor = 10 * time.Second
	pace      = 500
)

// claims measures eight executors on one etcd: first as fast as they can from a queue that never runs dry, then how long a
// unit waits from its put to its claim when there is room.
func claims(ctx context.Context, _ *bench) error {
	for _, turns := range []turnset.Set{turnset.Of(3), turnset.All} {
		what := fmt.Sprintf("units of %d group(s)", turns.Len())
		if err := claimsOf(ctx, what, turns); err != nil {
			return err
		}
	}
	return nil
}

func claimsOf(ctx context.Context, what string, turns turnset.Set) error {
	s, err := startEtcd(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	client, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	t := newTally()
	running, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	for i := range pullers {
		own, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer own.Close()
		p, err := newPuller(own, fmt.Sprint("x-", i), 4, demand.NewPublisher(own, keys, etcd.DefaultSlots, clock.System(), random.New()), t)
		if err != nil {
			return err
		}
		g.Go(func() error { return p.run(running) })
	}
	q := &feeder{client: client, turns: turns, tally: t}
	if err := q.keepFull(ctx, claimsFor/5); err != nil { // let everybody start
		return err
	}
	claims, conflicts, begin := t.claims.Load(), t.conflicts.Load(), time.Now()
	if err := q.keepFull(ctx, claimsFor); err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	claimed, conflicted := float64(t.claims.Load()-claims), float64(t.conflicts.Load()-conflicts)
	figure("claims: per second, 8 executors, "+what, fmt.Sprintf("%.0f", claimed/took), "≥ 1,000")
	figure("claims: conflicts per claim, queue full", fmt.Sprintf("%.3f", conflicted/claimed), "")
	if err := q.drain(ctx); err != nil {
		return err
	}
	t.waits = nil
	conflicts, claims = t.conflicts.Load(), t.claims.Load()
	if err := q.pace(ctx, claimsFor); err != nil {
		return err
	}
	if err := q.drain(ctx); err != nil {
		return err
	}
	figure(fmt.Sprintf("claims: from queue to claim at %d a second, %s", pace, what),
		fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", ms(t.quantile(0.5)), ms(t.quantile(0.99))), "5 ms, 50 ms")
	figure("claims: conflicts per claim then", fmt.Sprintf("%.3f", float64(t.conflicts.Load()-conflicts)/float64(t.claims.Load()-claims)), "")
	stop()
	return g.Wait()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// feeder queues units, each of a table of its own.
type feeder struct {
	client *clientv3.Client
	turns  turnset.Set
	tally  *tally
	n      int
}

func (q *feeder) put(ctx context.Context, count int) error {
	var ops []clientv3.Op
	for range count {
		q.n++
		name := fmt.Sprintf("team-%d/table-%d", q.n%100, q.n)
		order := fmt.Sprintf("%012d", q.n)
		body, err := schedule.Unit{V: 1, ID: fmt.Sprint("u-", q.n), Kind: schedule.KindMerge, Table: name, Groups: q.turns,
			Class: schedule.Merge, Order: order, SinceMS: time.Now().UnixMilli(), Gens: 8, Bytes: 8 << 20, Shards: 2}.Marshal()
		if err != nil {
			return err
		}
		key := keys.Ready(etcd.ReadyKey{Class: int(schedule.Merge), Order: order, Table: name, Turns: q.turns})
		q.tally.queued(key)
		ops = append(ops, clientv3.OpPut(key, string(body)))
	}
	_, err := etcd.WriteChunks(ctx, q.client, nil, ops)
	return err
}

// behind is how many units wait.
func (q *feeder) behind() int { return q.n - int(q.tally.claims.Load()) }

// keepFull keeps a few hundred units queued.
func (q *feeder) keepFull(ctx context.Context, d time.Duration) error {
	const full, batch = 400, 100
	for end := time.Now().Add(d); time.Now().Before(end); {
		if q.behind() < full {
			if err := q.put(ctx, batch); err != nil {
				return err
			}
			continue
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// pace queues units one by one at a steady rate.
func (q *feeder) pace(ctx context.Context, d time.Duration) error {
	begin := time.Now()
	for i := 0; time.Since(begin) < d; i++ {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / pace)))
		if err := q.put(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

func (q *feeder) drain(ctx context.Context) error {
	for q.behind() > 0 {
		if err := clock.System().Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
