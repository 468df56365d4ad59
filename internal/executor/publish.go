package executor

import (
	"context"
	"sync"

	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/merge"
)

// publisher publishes merged marks beside the work. What it loses or delays cannot misstate demand: marks only rise, and
// a scan reads them from the log.
type publisher struct {
	deps    Deps
	metrics *metrics
	free    chan struct{} // one token per merge whose marks may be in flight
	tasks   sync.WaitGroup
}

func newPublisher(deps Deps, m *metrics) *publisher {
	p := &publisher{deps: deps, metrics: m, free: make(chan struct{}, publishInFlight)}
	for range publishInFlight {
		p.free <- struct{}{}
	}
	return p
}

// start publishes the marks of a merge without waiting for them. With too many in flight they are dropped and counted.
// ctx ends with the process, not with the execution.
func (p *publisher) start(ctx context.Context, done merge.Outcome) {
	if len(done.Merged) == 0 {
		return
	}
	select {
	case <-p.free:
	default:
		p.metrics.publishes.WithLabelValues("dropped").Add(float64(len(done.Merged)))
		return
	}
	p.tasks.Add(1)
	go func() {
		defer p.tasks.Done()
		defer func() { p.free <- struct{}{} }()
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		p.publish(ctx, done)
	}()
}

// wait returns once nothing is in flight any more, which is within publishTimeout.
func (p *publisher) wait() { p.tasks.Wait() }

// publish publishes one shard per put, so a busy shard does not hold up another one's mark.
func (p *publisher) publish(ctx context.Context, done merge.Outcome) {
	cluster, err := etcd.ReadCluster(ctx, p.deps.Client, p.deps.Keys)
	if err != nil {
		p.deps.Log.Warn("merged marks are not published; a scan will", "table", done.Table, "error", err)
		p.metrics.publishes.WithLabelValues("failed").Add(float64(len(done.Merged)))
		return
	}
	to := demand.NewPublisher(p.deps.Client, p.deps.Keys, cluster.Slots, p.deps.Clock, p.deps.Random)
	for _, m := range done.Merged {
		_, err := to.PublishMerged(ctx, demand.MergedEvent{
			Table: done.Table, TableID: done.TableID, Incarnation: done.Incarnation, Shard: m.Shard, Merged: m.Mark, NextMS: m.NextSealedMS,
		})
		result := "published"
		if err != nil {
			result = "failed"
			p.deps.Log.Warn("a merged mark is not published; a scan will", "table", done.Table, "shard", m.Shard, "error", err)
		}
		p.metrics.publishes.WithLabelValues(result).Inc()
	}
}
