package executor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/demand"
	"tidemark/internal/ownership/leasemetrics"
	"tidemark/internal/schedule"
)

// metrics are the executor's counters; gauges are computed at each scrape.
type metrics struct {
	claims, conflicts prometheus.Counter
	executions        *prometheus.CounterVec // by kind and result
	seconds           *prometheus.HistogramVec
	generations       prometheus.Counter
	rows, bytes       prometheus.Counter
	publishes         *prometheus.CounterVec // by result
}

func newMetrics(e *Executor, r prometheus.Registerer) *metrics {
	m := &metrics{
		claims:    prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_executor_claims_total", Help: "Units claimed."}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_executor_claim_conflicts_total", Help: "Claims lost to another executor or to a change of the queue."}),
		executions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_executor_executions_total", Help: "Executions ended, by kind and by result: done, or the class of the failure."}, []string{"kind", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tidemark_executor_execution_seconds", Help: "Time from claim to release.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 16)}, []string{"kind"}),
		generations: prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_executor_merged_generations_total", Help: "Generations merged into their tables."}),
		rows:        prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_executor_merged_rows_total", Help: "Rows of the generations merged."}),
		bytes:       prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_executor_written_bytes_total", Help: "Bytes of the data files committed."}),
		publishes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_executor_merged_watermarks_total", Help: "Merged marks published after a release, by result: written, unchanged, refused, expired, lost, dropped."}, []string{"result"}),
	}
	r.MustRegister(m.claims, m.conflicts, m.executions, m.seconds, m.generations, m.rows, m.bytes, m.publishes,
		gauge("tidemark_executor_active", "Executions running.", func() float64 { return float64(e.Active()) }),
		gauge("tidemark_executor_slots", "Executions that may run at once.", func() float64 { return float64(e.config.Slots) }),
		gauge("tidemark_executor_memory_bytes", "Memory for all executions together.", func() float64 { return float64(e.config.Memory) }),
		gauge("tidemark_executor_memory_granted_bytes", "Memory granted to the executions that run, by what they were estimated to need.", func() float64 { return float64(e.granted()) }),
		gauge("tidemark_executor_owed", "Releases and outcomes that etcd does not know yet.", func() float64 { return float64(e.turns.Owed()) }),
		gauge("tidemark_executor_draining", "1 while nothing new is claimed.", func() float64 {
			if e.drains.draining() {
				return 1
			}
			return 0
		}),
		leasemetrics.New("tidemark_executor", e.session.Status, e.deps.Clock),
	)
	m.prepare()
	return m
}

// prepare makes every series stand at 0 from the start: a rate over a counter that appears with its first event misses
// that event, and an alert on it would never fire.
func (m *metrics) prepare() {
	for _, kind := range []schedule.Kind{schedule.KindMerge, schedule.KindCompact, schedule.KindCheckpoint, schedule.KindCleanup} {
		m.seconds.WithLabelValues(string(kind))
		for _, result := range []string{"done", string(schedule.Retryable), string(schedule.Data), string(schedule.Config), string(schedule.Lost)} {
			m.executions.WithLabelValues(string(kind), result)
		}
	}
	for _, r := range demand.Results {
		m.publishes.WithLabelValues(string(r))
	}
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// observe counts an execution that has ended.
func (m *metrics) observe(x *execution, did result, took time.Duration) {
	kind, how := string(x.unit.Kind), "done"
	if did.failure != nil {
		how = string(did.failure.Class)
	}
	m.executions.WithLabelValues(kind, how).Inc()
	m.seconds.WithLabelValues(kind).Observe(took.Seconds())
	m.generations.Add(float64(did.merge.Generations))
	m.rows.Add(float64(did.merge.RowsIn))
	m.bytes.Add(float64(did.merge.BytesOut))
}

// published counts one merged mark by what became of it.
func (m *metrics) published(r demand.Result) { m.publishes.WithLabelValues(string(r)).Inc() }
