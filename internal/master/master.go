package master

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/ownership"
	"tidemark/internal/ownership/leasemetrics"
	"tidemark/internal/random"
	"tidemark/internal/scan"
	"tidemark/internal/schedule/readyqueue"
)

// Config is what a master runs with. Every field without "optional" is required.
type Config struct {
	ID      string // unique among the masters of the cluster while it lives
	Address string // optional; host and port of its API, for people
	URL     string // optional; of its API, for the command line
	Version string // optional; of the build, for people
	Cluster string // name of the cluster
	Slots   int    // optional; used when the cluster is created, default etcd.DefaultSlots
	Keys    etcd.Keys
	Client  *clientv3.Client
	Store   objstore.Store
	Clock   clock.Clock
	Random  random.Source
	Log     hclog.Logger
	Lease   ownership.Config // optional; of the session
	// IdleTimeout is how long an execution may complete nothing; it must be that of the executors. Optional, 600 s.
	IdleTimeout time.Duration
	// BeatWatch is how long a master that finds its etcd empty watches whether another cluster of its name lives.
	// Optional, 90 s; `tidemark dev`, which knows that it is alone, waits less.
	BeatWatch time.Duration
	// Standalone says that the server around this master has claimed the root, put the cluster's record into etcd under
	// the lock's id, and gives the signs of life. Optional.
	Standalone bool
}

// Master is one master process. Run it once.
type Master struct {
	config  Config
	claimer *claimer
	keys    etcd.Keys
	log     hclog.Logger

	leaseMetrics prometheus.Collector
	spaceMetrics *etcd.SpaceMetrics

	// Made by Run, before anything else runs.
	session   *ownership.Session
	slots     *ownership.Slots
	cache     *demand.Cache
	detached  *demand.Detached
	queue     *readyqueue.Queue
	scanner   *scan.Scanner
	followers []*etcd.Follower

	wakePlanner chan struct{} // holds one token when there is something to plan
	wakeScans   chan struct{} // likewise for scans
	wakeDogs    chan struct{} // likewise for vanished turns

	mu         sync.Mutex // guards what follows; never held during a request
	cluster    etcd.Cluster
	started    bool
	book       *book
	stale      map[*mirror]struct{} // mirrors that are not complete
	scansWait  bool                 // the scans under way left no room for one that is due
	readySeen  int64                // revision up to which the book knows the ready queue from its watch
	sweepAt    time.Duration        // monotonic; when the planner visits every table next
	complainAt time.Duration        // monotonic; the next complaint about etcd may be logged then
	unsaid     int                  // complaints since the last
	suspended  error                // root.json names another cluster: nothing is scheduled
	counts     counts
}

// counts are what metrics count.
type counts struct {
	queued, unqueued, deposed, refused, revoked, vanished, scans, scanFailures int64
	planNS                                                                     int64
	plans                                                                      int64
}

const idleTimeoutDefault = 600 * time.Second

// New makes a master; nothing is asked or written before Run.
func New(c Config) (*Master, error) {
	switch {
	case c.ID == "" || c.Cluster == "" || c.Keys.Prefix == "":
		return nil, errors.New("a master needs an id, a cluster name and a key prefix")
	case c.Client == nil || c.Store == nil || c.Clock == nil || c.Random == nil || c.Log == nil:
		return nil, errors.New("a master needs etcd, a store, a clock, randomness and a log")
	}
	if c.Slots == 0 {
		c.Slots = etcd.DefaultSlots
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = idleTimeoutDefault
	}
	if c.BeatWatch == 0 {
		c.BeatWatch = beatWatch
	}
	if c.Lease == (ownership.Config{}) {
		c.Lease = ownership.DefaultConfig(ownership.DefaultTTL)
	}
	m := &Master{
		config: c, keys: c.Keys, log: c.Log,
		claimer:     &claimer{kv: c.Client, keys: c.Keys, store: c.Store, clock: c.Clock, rand: c.Random, log: c.Log, watch: c.BeatWatch},
		scanner:     scan.NewScanner(scan.Deps{Store: c.Store, Clock: c.Clock, Random: c.Random, Log: c.Log}),
		stale:       map[*mirror]struct{}{},
		wakePlanner: make(chan struct{}, 1), wakeScans: make(chan struct{}, 1), wakeDogs: make(chan struct{}, 1),
	}
	session, err := ownership.NewSession(c.Client, ownership.Options{
		Key: c.Keys.Master(c.ID), Config: c.Lease, Details: m.details, Clock: c.Clock, Random: c.Random, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	m.session = session
	m.leaseMetrics = leasemetrics.New("tidemark_master", session.Status, c.Clock)
	m.spaceMetrics = etcd.NewSpaceMetrics(c.Client, c.Clock)
	return m, nil
}

// details is what the session key says besides its token.
func (m *Master) details() map[string]any {
	return map[string]any{
		"address": m.config.Address, "url": m.config.URL, "version": m.config.Version, "started_ms": m.config.Clock.Now().UnixMilli(),
	}
}

// Run claims the root, then schedules until ctx is done; then it gives its slots and its session back and returns nil.
// An error is one that only a person can cure: the root is another cluster's, or another master has this id.
func (m *Master) Run(ctx context.Context) error {
	if err := m.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before there was anything to give back
		}
		return err
	}
	defer m.detached.Close()
	// What writes under the session ends first, then the session, and its slots with it.
	leased, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	held, holding := errgroup.WithContext(leased)
	held.Go(func() error { return m.session.Run(leased) })
	held.Go(func() error { return m.slots.Run(leased) })

	working, stop := context.WithCancel(ctx)
	defer stop()
	var parts errgroup.Group
	parts.Go(func() error {
		select {
		case <-holding.Done(): // the session is lost for good
			stop()
		case <-working.Done():
		}
		return nil
	})
	for _, f := range m.followers {
		parts.Go(func() error { f.Run(working); return nil })
	}
	for _, part := range []func(context.Context) error{m.cache.Run, m.runDemand, m.plan, m.scanLoop, m.discover, m.watchTurns, m.keepRoot} {
		parts.Go(func() error { return part(working) })
	}
	err := parts.Wait()
	release()
	if lost := held.Wait(); ctx.Err() == nil {
		err = errors.Join(err, lost)
	}
	if err != nil {
		return fmt.Errorf("master %s: %w", m.config.ID, err)
	}
	return nil
}

// start claims the cluster and makes what needs to know it.
func (m *Master) start(ctx context.Context) error {
	cluster, err := m.claimer.claim(ctx, m.config.Cluster, m.config.Slots, nil)
	if err != nil {
		return err
	}
	c := m.config
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cluster, m.book, m.started = cluster, newBook(m.keys, cluster.Slots), true
	m.slots = ownership.NewSlots(c.Client, m.keys, m.session, c.ID, cluster.Slots, c.Clock, c.Random, c.Log)
	m.queue = readyqueue.New(c.Client, m.keys, c.Random)
	m.cache = demand.NewCache(c.Client, m.keys, c.Clock, c.Random, c.Log)
	m.detached = demand.NewDetached(demand.NewPublisher(c.Client, m.keys, cluster.Slots, c.Clock, c.Random), m.scanner.Count)
	for _, prefix := range []string{
		m.keys.TurnsAll(), m.keys.OutcomesAll(), m.keys.ReadyAll(), m.keys.ProgressAll(),
		m.keys.Prefix + "/tables/", m.keys.Prefix + "/requests/", m.keys.Prefix + "/policies/",
	} {
		f := &mirror{m: m, held: map[string]int64{}, ready: prefix == m.keys.ReadyAll()}
		m.stale[f] = struct{}{}
		m.followers = append(m.followers, etcd.NewFollower(c.Client, prefix, f, c.Clock, c.Random, c.Log))
	}
	return nil
}

// note lets a mirror change the book.
func (m *Master) note(change func(*book)) {
	m.mu.Lock()
	change(m.book)
	dirty, gone := len(m.book.dirty) > 0, len(m.book.gone) > 0
	m.mu.Unlock()
	if dirty {
		wake(m.wakePlanner)
	}
	if gone {
		wake(m.wakeDogs)
	}
}

// fresh notes that a mirror is complete, or is not any more.
func (m *Master) fresh(f *mirror, complete bool) {
	m.mu.Lock()
	if complete {
		delete(m.stale, f)
	} else {
		m.stale[f] = struct{}{}
	}
	m.mu.Unlock()
	wake(m.wakePlanner)
	wake(m.wakeScans)
}

func (m *Master) nowMS() int64 { return m.config.Clock.Now().UnixMilli() }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// waitFor waits for a token, or for d (0 is for ever), or for the end of ctx, which it reports.
func (m *Master) waitFor(ctx context.Context, c <-chan struct{}, d time.Duration) error {
	var timer <-chan time.Time
	if d > 0 {
		fired, stop := m.config.Clock.After(d)
		defer stop()
		timer = fired
	}
	select {
	case <-c:
	case <-timer:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
