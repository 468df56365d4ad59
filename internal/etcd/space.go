package etcd

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
)

const (
	// spaceEvery bounds how often etcd is asked about its space, however often it is scraped.
	spaceEvery = 10 * time.Second
	// spaceTimeout bounds how long a scrape waits for etcd: all members together.
	spaceTimeout = 2 * time.Second
)

// Space is how full etcd is. A cluster's members differ a little; what counts is the fullest.
type Space struct {
	Members      int // endpoints that answered
	Bytes        int64
	BytesInUse   int64 // the rest is given back by defragmentation
	QuotaBytes   int64 // 0: this etcd does not say
	NoSpaceAlarm bool  // only deletes pass
}

// ReadSpace asks every endpoint of the client, all at once, so that a dead member costs no other its answer. It fails if
// none answers.
func ReadSpace(ctx context.Context, client *clientv3.Client) (Space, error) {
	endpoints := client.Endpoints()
	answers, failures := make([]*clientv3.StatusResponse, len(endpoints)), make([]error, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() { answers[i], failures[i] = client.Status(ctx, endpoint) })
	}
	asking.Wait()
	var s Space
	for i, status := range answers {
		if failures[i] != nil {
			continue
		}
		s.Members++
		s.Bytes, s.BytesInUse = max(s.Bytes, status.DbSize), max(s.BytesInUse, status.DbSizeInUse)
		s.QuotaBytes = max(s.QuotaBytes, status.DbSizeQuota)
		for _, e := range status.Errors { // a member names the alarms that it knows of
			s.NoSpaceAlarm = s.NoSpaceAlarm || strings.Contains(e, etcdserverpb.AlarmType_NOSPACE.String())
		}
	}
	if s.Members == 0 {
		return s, errors.Join(failures...)
	}
	return s, nil
}

// SpaceMetrics shows etcd's space as metrics, asking at a scrape if the last answer is older than ten seconds. While etcd
// does not answer there is only tidemark_etcd_up, at 0. It is safe for concurrent use.
type SpaceMetrics struct {
	client *clientv3.Client
	clock  clock.Clock

	mu    sync.Mutex // guards what follows, and is held while etcd is asked: one question at a time
	asked time.Duration
	known bool // asked once
	last  Space
	err   error
}

// NewSpaceMetrics makes the collector; nothing is asked before a scrape.
func NewSpaceMetrics(client *clientv3.Client, c clock.Clock) *SpaceMetrics {
	return &SpaceMetrics{client: client, clock: c}
}

var (
	upDesc      = prometheus.NewDesc("tidemark_etcd_up", "1 if etcd answered when this process last asked about its space.", nil, nil)
	membersDesc = prometheus.NewDesc("tidemark_etcd_endpoints_up", "Endpoints of etcd that answered.", nil, nil)
	bytesDesc   = prometheus.NewDesc("tidemark_etcd_database_bytes", "Size of etcd's database, of the fullest member.", nil, nil)
	usedDesc    = prometheus.NewDesc("tidemark_etcd_database_used_bytes", "Of that, what is in use; the rest is given back by defragmentation.", nil, nil)
	quotaDesc   = prometheus.NewDesc("tidemark_etcd_quota_bytes", "Size at which etcd raises its NOSPACE alarm.", nil, nil)
	noSpaceDesc = prometheus.NewDesc("tidemark_etcd_no_space", "1 while etcd's NOSPACE alarm stands: only deletes pass.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *SpaceMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upDesc, membersDesc, bytesDesc, usedDesc, quotaDesc, noSpaceDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *SpaceMetrics) Collect(ch chan<- prometheus.Metric) {
	s, err := m.Space()
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	if err != nil {
		gauge(upDesc, 0)
		return
	}
	gauge(upDesc, 1)
	gauge(membersDesc, float64(s.Members))
	gauge(bytesDesc, float64(s.Bytes))
	gauge(usedDesc, float64(s.BytesInUse))
	if s.QuotaBytes > 0 {
		gauge(quotaDesc, float64(s.QuotaBytes))
	}
	noSpace := 0.0
	if s.NoSpaceAlarm {
		noSpace = 1
	}
	gauge(noSpaceDesc, noSpace)
}

// Space is etcd's space as of ten seconds ago at most.
func (m *SpaceMetrics) Space() (Space, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.clock.Mono(); !m.known || now-m.asked >= spaceEvery {
		// A scrape has no context of its own; the timeout bounds the wait.
		ctx, cancel := context.WithTimeout(context.Background(), spaceTimeout)
		defer cancel()
		m.last, m.err = ReadSpace(ctx, m.client)
		m.asked, m.known = now, true
	}
	return m.last, m.err
}
