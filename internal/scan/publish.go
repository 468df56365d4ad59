package scan

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/demand"
)

const (
	// publishTimeout and publishParallel bound what one scan may publish. At a millisecond per put that is tens of
	// thousands of shards; against a slow etcd the rest waits for the next scan.
	publishTimeout  = 15 * time.Second
	publishParallel = 4
)

// Tally counts what became of a scan's demand events.
type Tally struct {
	Published int64 // the record says at least as much now
	Unchanged int64 // the record said the same or more
	Failed    int64 // etcd did not take it
	Dropped   int64 // there was no time left
}

// Complete says that every record now says at least what the scan saw.
func (t Tally) Complete() bool { return t.Failed == 0 && t.Dropped == 0 }

// events counts demand events of scans by result, for metrics.
type events struct{ published, unchanged, failed, dropped *atomic.Int64 }

func newEvents() *events {
	return &events{new(atomic.Int64), new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}
}

var eventsDesc = prometheus.NewDesc("tidemark_scan_demand_events_total",
	"Demand events that scans had to publish, by result: published, unchanged (the record says so already), failed, dropped (no time left).",
	[]string{"result"}, nil)

// Describe is for the metrics registry.
func (s *Scanner) Describe(ch chan<- *prometheus.Desc) { ch <- eventsDesc }

// Collect is for the metrics registry.
func (s *Scanner) Collect(ch chan<- prometheus.Metric) {
	for result, n := range map[string]*atomic.Int64{
		"published": s.events.published, "unchanged": s.events.unchanged, "failed": s.events.failed, "dropped": s.events.dropped,
	} {
		ch <- prometheus.MustNewConstMetric(eventsDesc, prometheus.CounterValue, float64(n.Load()), result)
	}
}

// Records gives the demand record of a shard as far as it is known without asking etcd.
type Records func(shard string) (demand.Record, bool)

// Publish publishes what a report says of every shard, one shard per put, and nothing where the record is known to say
// as much already. Shards that are over are left to their owner to delete, and marks
// that went back are not published.
func (s *Scanner) Publish(ctx context.Context, publisher *demand.Publisher, r Report, known Records) Tally {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	tally := newEvents()
	var g errgroup.Group
	g.SetLimit(publishParallel)
	for _, shard := range r.Shards {
		if shard.Over() || shard.Regressed {
			continue
		}
		if record, ok := known(shard.Name); ok {
			if _, changed := demand.Join(record, shard.Event); !changed {
				tally.unchanged.Add(1)
				continue
			}
		}
		if ctx.Err() != nil {
			tally.dropped.Add(1)
			continue
		}
		g.Go(func() error {
			switch _, err := publisher.Publish(ctx, r.Table.Name, shard.Name, shard.Event); {
			case err == nil:
				tally.published.Add(1)
			case ctx.Err() != nil:
				tally.dropped.Add(1)
			default:
				tally.failed.Add(1)
				s.deps.Log.Warn("a scan could not publish a shard's demand; the next scan tries again",
					"table", r.Table.Name, "shard", shard.Name, "error", err)
			}
			return nil
		})
	}
	_ = g.Wait() // no function returns an error
	s.events.published.Add(tally.published.Load())
	s.events.unchanged.Add(tally.unchanged.Load())
	s.events.failed.Add(tally.failed.Load())
	s.events.dropped.Add(tally.dropped.Load())
	return Tally{tally.published.Load(), tally.unchanged.Load(), tally.failed.Load(), tally.dropped.Load()}
}
