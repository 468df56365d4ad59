// Package leasemetrics shows the state of a lease as metrics: the same numbers for the session of a master and of an
// executor, under the prefix of each.
//
// They are read from the lease at the moment of a scrape. Times are of the monotonic clock that the lease itself goes by,
// so that a clock that is set does not show.
package leasemetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/clock"
	"tidemark/internal/ownership"
)

// states are what a lease can be, in the order in which it goes through them.
var states = []ownership.State{
	ownership.None, ownership.Held, ownership.Quarantined, ownership.Reacquiring, ownership.Released, ownership.Failed,
}

type collector struct {
	status func() ownership.Status
	clock  clock.Clock

	state, held, renewed, quarantine, reacquired *prometheus.Desc
}

// New is a collector of <prefix>_session_… for a lease.
func New(prefix string, status func() ownership.Status, c clock.Clock) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+"_session_"+name, help, labels, nil)
	}
	return &collector{
		status: status, clock: c,
		state:      desc("state", "1 for the state in which the session is, 0 for the others.", "state"),
		held:       desc("held", "1 while the session is held."),
		renewed:    desc("unrenewed_seconds", "Time since the newest acknowledged renewal of the session was sent; absent before the first."),
		quarantine: desc("quarantine_seconds", "How much longer the session is in quarantine."),
		reacquired: desc("reacquisitions_total", "How often the session was lost and acquired again."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.state, c.held, c.renewed, c.quarantine, c.reacquired} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s, now := c.status(), c.clock.Mono()
	for _, state := range states {
		gauge(c.state, is(s.State == state), state.String())
	}
	gauge(c.held, is(s.State == ownership.Held))
	if s.RenewedAt != 0 {
		gauge(c.renewed, max(now-s.RenewedAt, 0).Seconds())
	}
	left := s.QuarantineEnd - now
	if s.QuarantineEnd == 0 || left < 0 {
		left = 0
	}
	gauge(c.quarantine, left.Seconds())
	ch <- prometheus.MustNewConstMetric(c.reacquired, prometheus.CounterValue, float64(s.Reacquisitions))
}

func is(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
