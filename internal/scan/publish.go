package scan

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/demand"
)

// counts counts demand events of scans by result, for metrics.
type counts struct {
	mu       sync.Mutex // guards byResult
	byResult map[demand.Result]float64
}

var eventsDesc = prometheus.NewDesc("tidemark_scan_demand_events_total",
	"Demand events that scans had to publish, by result; unchanged are those that the record said already.", []string{"result"}, nil)

// Describe is for the metrics registry.
func (s *Scanner) Describe(ch chan<- *prometheus.Desc) { ch <- eventsDesc }

// Collect is for the metrics registry.
func (s *Scanner) Collect(ch chan<- prometheus.Metric) {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	for _, result := range demand.Results { // those at 0 too, so that a rate sees the first
		ch <- prometheus.MustNewConstMetric(eventsDesc, prometheus.CounterValue, s.counts.byResult[result], string(result))
	}
}

// Count counts what became of one event. It is what a demand.Detached that publishes for scans is made with.
func (s *Scanner) Count(r demand.Result) {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	s.counts.byResult[r]++
}

// Known gives the demand record of a shard as far as it is known without asking etcd, zero if it is not.
type Known func(shard string) demand.Record

// Publish publishes what a report says of every shard whose record is not known to say as much already, within the bounds
// of detached publishing. Shards that are over are left to their owner to delete, and marks that went back are not
// published. It returns what it had to publish, by shard, and whether all of it was; if not, the next scan has the rest again.
func (s *Scanner) Publish(ctx context.Context, detached *demand.Detached, r Report, known Known) (news map[string]demand.Event, complete bool) {
	var batch []demand.ShardEvent
	news = map[string]demand.Event{}
	for _, shard := range r.Shards {
		if shard.Over() || shard.Regressed {
			continue
		}
		if _, changed := demand.Join(known(shard.Name), shard.Event); !changed {
			s.Count(demand.Unchanged)
			continue
		}
		news[shard.Name] = shard.Event
		batch = append(batch, demand.ShardEvent{Table: r.Table.Name, Shard: shard.Name, Event: shard.Event})
	}
	if len(batch) == 0 {
		return nil, true
	}
	if err := detached.Do(ctx, batch); err != nil {
		s.deps.Log.Warn("a scan could not publish all it saw; the next scan has it again", "table", r.Table.Name, "error", err)
		return news, false
	}
	return news, true
}
