package master

import (
	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/schedule"
)

// Metrics are read from the state at the moment of the scrape; nothing is kept for them but counters. They are of what
// this master owns, so the sum over all masters is the cluster's.
var (
	clusterSlotsDesc = desc("tidemark_cluster_slots", "Slots of the cluster; every master says the same. More than are owned by all masters together: some tables have no owner.")
	slotsDesc        = desc("tidemark_slots_owned", "Slots that this master owns.")
	tablesDesc       = desc("tidemark_tables", "Tables of owned slots.")
	shardsDesc       = desc("tidemark_shards", "Shards with a demand record, of owned slots.")
	unknownDesc      = desc("tidemark_shards_unknown", "Shards of which a mark is unknown, of owned slots.")
	pendingDesc      = desc("tidemark_pending_generations", "Generations sealed and not merged, of owned slots.")
	pendingBytesDesc = desc("tidemark_pending_bytes", "Bytes sealed and not merged, of owned slots.")
	oldestDesc       = desc("tidemark_pending_oldest_seconds", "How long the oldest generation that is not merged has waited at least.")
	readyDesc        = desc("tidemark_ready_units", "Units in the ready queue, of owned slots.", "class")
	readyBytesDesc   = desc("tidemark_ready_bytes", "Pending bytes of the units in the ready queue, of owned slots.", "class")
	readyOldestDesc  = desc("tidemark_ready_oldest_seconds", "How long the work of the oldest unit in the ready queue has waited.", "class")
	behindDesc       = desc("tidemark_tables_behind", "Tables, not paused, of which a generation has waited longer than the policy's max_wait, or with critical_generations pending or more.")
	pausedDesc       = desc("tidemark_tables_paused", "Tables that somebody has paused.")
	runningDesc      = desc("tidemark_executions_running", "Executions that hold turns of tables of owned slots.")
	attentionDesc    = desc("tidemark_failures_need_attention", "Failing shards and groups that waiting will not cure.")
	troubledDesc     = desc("tidemark_tables_halted", "Tables that cannot be merged as they are: changed settings or a foreign write.")
	staleDesc        = desc("tidemark_mirrors_stale", "Mirrors of etcd that are not complete; above 0 nothing is decided.")
	suspendedDesc    = desc("tidemark_scheduling_suspended", "1 while the root is another cluster's.")
	driftDesc        = desc("tidemark_demand_drift_total", "Demand records of owned slots of which the watch was found to have missed a change.")
	mirrorDriftDesc  = desc("tidemark_mirror_drift_total", "Other keys (turns, outcomes, ready units, records) of which the watch was found to have missed a change.")
	strangeDesc      = desc("tidemark_records_unreadable_total", "Records in etcd of another version, or damaged, that were ignored.")
	queuedDesc       = desc("tidemark_ready_changes_total", "Ready keys put and deleted.", "change")
	writesDesc       = desc("tidemark_ready_refused_total", "Transactions of the ready queue that were refused, by reason.", "reason")
	endsDesc         = desc("tidemark_turns_ended_by_owner_total", "Executions revoked for standing still, and turns that vanished without an outcome.", "how")
	scansDesc        = desc("tidemark_scans_total", "Scans of tables, by result.", "result")
	plansDesc        = desc("tidemark_planner_passes_total", "Passes of the planner.")
	planTimeDesc     = desc("tidemark_planner_seconds_total", "Time spent in passes of the planner.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe describes nothing, which makes the collector an unchecked one: a master that is starting has few metrics.
func (m *Master) Describe(chan<- *prometheus.Desc) {}

// Collect is for the metrics registry.
func (m *Master) Collect(ch chan<- prometheus.Metric) {
	m.scanner.Collect(ch)
	m.leaseMetrics.Collect(ch)
	m.spaceMetrics.Collect(ch)
	if !m.running() {
		return
	}
	owned := m.ownedSlots()
	now := m.nowMS()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(slotsDesc, float64(len(owned)))
	top := topTables{nowMS: now}
	defer func() { top.collect(gauge) }() // once the lock is free
	m.mu.Lock()
	defer m.mu.Unlock()
	gauge(clusterSlotsDesc, float64(m.cluster.Slots))
	t := totals{nowMS: now}
	for _, e := range m.book.tables {
		if _, mine := owned[e.slot]; mine {
			t.add(e)
			top.add(e)
		}
	}
	gauge(tablesDesc, float64(t.tables))
	gauge(shardsDesc, float64(t.shards))
	gauge(unknownDesc, float64(t.unknown))
	gauge(pendingDesc, float64(t.gens))
	gauge(pendingBytesDesc, float64(t.bytes))
	gauge(oldestDesc, seconds(t.oldest, now))
	gauge(behindDesc, float64(t.behind))
	gauge(pausedDesc, float64(t.paused))
	gauge(runningDesc, float64(len(t.running)))
	gauge(attentionDesc, float64(t.attention))
	gauge(troubledDesc, float64(t.halted))
	for class := range t.ready {
		label := schedule.Class(class).String()
		gauge(readyDesc, float64(t.ready[class].units), label)
		gauge(readyBytesDesc, float64(t.ready[class].bytes), label)
		gauge(readyOldestDesc, seconds(t.ready[class].oldest, now), label)
	}
	gauge(staleDesc, float64(len(m.stale)))
	gauge(suspendedDesc, boolean(m.suspended != nil))
	for _, f := range m.followers {
		t.drift += f.Drift()
	}
	c := m.counts
	count(driftDesc, float64(m.cache.Drift()))
	count(mirrorDriftDesc, float64(t.drift))
	count(strangeDesc, float64(m.book.strange))
	count(queuedDesc, float64(c.queued), "put")
	count(queuedDesc, float64(c.unqueued), "deleted")
	count(writesDesc, float64(c.deposed), "deposed")
	count(writesDesc, float64(c.refused), "turn_held")
	count(endsDesc, float64(c.revoked), "revoked")
	count(endsDesc, float64(c.vanished), "vanished")
	count(scansDesc, float64(c.scans-c.scanFailures), "done")
	count(scansDesc, float64(c.scanFailures), "failed")
	count(plansDesc, float64(c.plans))
	count(planTimeDesc, float64(c.planNS)/1e9)
}

// classCount is the number of classes, critical to low.
const classCount = int(schedule.Low) + 1

// totals add up tables.
type totals struct {
	nowMS int64

	tables, shards, unknown, attention, halted, behind, paused int

	gens                 uint64
	bytes, oldest, drift int64
	running              map[string]struct{}
	ready                [classCount]struct {
		units         int
		bytes, oldest int64
	}
}

func (t *totals) add(e *entry) {
	t.shards += len(e.shards)
	t.gens += e.gens
	t.bytes += e.bytes
	t.oldest = earlier(t.oldest, e.oldest)
	if e.record != nil {
		t.tables++
	}
	if e.halted != nil {
		t.halted++
	}
	switch {
	case e.record != nil && e.record.Paused():
		t.paused++
	case e.behind(t.nowMS):
		t.behind++
	}
	for i := range e.shards {
		if !e.shards[i].Known {
			t.unknown++
		}
	}
	for i := range e.turns {
		if x := e.turns[i].Execution; x != "" {
			if t.running == nil {
				t.running = map[string]struct{}{}
			}
			t.running[x] = struct{}{}
		}
		t.attention += needAttention(e.outcomes[i].record)
	}
	for _, u := range e.ready {
		if int(u.Class) >= classCount {
			continue
		}
		r := &t.ready[u.Class]
		r.units++
		r.bytes += u.Bytes
		r.oldest = earlier(r.oldest, u.SinceMS)
	}
}

// needAttention counts the failures of a record that waiting will not cure.
func needAttention(o *schedule.Outcome) (n int) {
	if o == nil {
		return 0
	}
	if o.Failure != nil && o.Failure.NeedsAttention() {
		n++
	}
	for _, f := range o.Shards {
		if f.NeedsAttention() {
			n++
		}
	}
	return n
}

// behind says that the table does not get what its policy asks for.
func (e *entry) behind(nowMS int64) bool {
	if e.record == nil || e.gens == 0 {
		return false
	}
	waited := e.oldest != 0 && nowMS-e.oldest > e.policy.MaxWait.Milliseconds()
	return waited || int64(e.gens) >= e.policy.CriticalGenerations
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
