package ownership

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
)

// ReadyQueue mirrors the ready queue, the held turns and who executes, so that an executor can choose without asking etcd. What it
// shows may be late: a claim decides.
type ReadyQueue struct {
	executor  string
	followers [3]*etcd.Follower // of units, turns and executors, as in fresh
	clock     clock.Clock

	mu     sync.Mutex // guards the following
	units  map[string]candidate
	order  []string // keys of units, ascending: the order of service
	held   map[string]etcd.TurnSet
	heldAt map[string]int64 // mod revisions of turn keys
	fresh  [3]bool
	// executors are the mod revisions of their session keys, by name.
	executors map[string]int64
	claim     time.Duration // what claims take, smoothed
	changed   chan struct{}
}

// NewReadyQueue makes a mirror for an executor; Run keeps it.
func NewReadyQueue(client *clientv3.Client, keys etcd.Keys, executor string, c clock.Clock, r random.Source, log hclog.Logger) *ReadyQueue {
	q := &ReadyQueue{
		executor: executor, clock: c, units: map[string]candidate{}, executors: map[string]int64{}, held: map[string]etcd.TurnSet{}, heldAt: map[string]int64{},
		changed: make(chan struct{}, 1),
	}
	q.followers = [3]*etcd.Follower{
		etcd.NewFollower(client, keys.ReadyAll(), readyMirror{q, keys, log}, c, r, log),
		etcd.NewFollower(client, keys.TurnsAll(), turnMirror{q, keys}, c, r, log),
		etcd.NewFollower(client, keys.Executors(), executorMirror{q, keys}, c, r, log),
	}
	return q
}

// Run mirrors until ctx is done.
func (q *ReadyQueue) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, f := range q.followers {
		g.Go(func() error {
			f.Run(ctx)
			return nil
		})
	}
	return g.Wait()
}

// Doubt makes sure that etcd is still the one that is mirrored; for an executor whose session came back.
func (q *ReadyQueue) Doubt() {
	for _, f := range q.followers {
		f.Doubt()
	}
}

// Changed delivers when the queue or the turns have changed since it last delivered. It has one receiver.
func (q *ReadyQueue) Changed() <-chan struct{} { return q.changed }

// Len is the number of units queued.
func (q *ReadyQueue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order)
}

// Stale says that what is shown may lag more than usual.
func (q *ReadyQueue) Stale() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.fresh != [3]bool{true, true, true}
}

// Free yields the units whose turns are all free, in the order of service.
func (q *ReadyQueue) Free() iter.Seq[ReadyKV] {
	q.mu.Lock()
	free := make([]ReadyKV, 0, len(q.order))
	for _, key := range q.order {
		if u := q.units[key]; q.held[u.Table]&u.Turns == 0 {
			free = append(free, u.ReadyKV)
		}
	}
	q.mu.Unlock()
	return slices.Values(free)
}

// Strike takes out a unit that is known to be gone, because its executor has just claimed it or was told ErrGone. The news
// of it would do the same, a little later; until then a busy executor would reach for the same unit again and again.
func (q *ReadyQueue) Strike(unit ReadyKV) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.units[unit.Key].ModRevision == unit.ModRevision {
		q.remove(unit.Key)
	}
}

// remove forgets a unit. q.mu is held.
func (q *ReadyQueue) remove(key string) {
	if i, found := slices.BinarySearch(q.order, key); found {
		q.order = slices.Delete(q.order, i, i+1)
		delete(q.units, key)
	}
}

func (q *ReadyQueue) signal() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

func (q *ReadyQueue) setFresh(i int, fresh bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fresh[i] = fresh
	q.signal()
}

// readyMirror is the queue's side of a ReadyQueue.
type readyMirror struct {
	*ReadyQueue
	keys etcd.Keys
	log  hclog.Logger
}

func (m readyMirror) Put(kv *mvccpb.KeyValue) {
	key := string(kv.Key)
	parsed, err := m.keys.ParseReady(key)
	if err != nil {
		m.log.Warn("ignoring a unit in the ready queue", "error", err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.clock.Mono()
	if i, found := slices.BinarySearch(m.order, key); found {
		seen = m.units[key].seen
	} else {
		m.order = slices.Insert(m.order, i, key)
	}
	m.units[key] = candidate{ReadyKV{ReadyKey: parsed, Key: key, Value: kv.Value, ModRevision: kv.ModRevision}, seen, rankOf(key, m.executors, m.executor)}
}

func (m readyMirror) Delete(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(key)
}

func (m readyMirror) All() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for key, u := range m.units {
			if !yield(key, u.ModRevision) {
				return
			}
		}
	}
}

func (m readyMirror) Fresh(int64) { m.setFresh(0, true) }
func (m readyMirror) Stale(error) { m.setFresh(0, false) }

// turnMirror is the turns' side of a ReadyQueue.
type turnMirror struct {
	*ReadyQueue
	keys etcd.Keys
}

func (m turnMirror) Put(kv *mvccpb.KeyValue) {
	table, turn, err := m.keys.ParseTurn(string(kv.Key))
	if err != nil {
		return // nobody can hold what is no turn
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heldAt[string(kv.Key)] = kv.ModRevision
	m.held[table] |= etcd.TurnsOf(turn)
}

func (m turnMirror) Delete(key string) {
	table, turn, err := m.keys.ParseTurn(key)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.heldAt, key)
	if m.held[table] &^= etcd.TurnsOf(turn); m.held[table] == 0 {
		delete(m.held, table)
	}
}

func (m turnMirror) All() iter.Seq2[string, int64] { return maps.All(m.heldAt) }
func (m turnMirror) Fresh(int64)                   { m.setFresh(1, true) }
func (m turnMirror) Stale(error)                   { m.setFresh(1, false) }

// executorMirror is the executors' side of a ReadyQueue. Who comes or goes only changes who reaches for a unit first.
type executorMirror struct {
	*ReadyQueue
	keys etcd.Keys
}

func (m executorMirror) Put(kv *mvccpb.KeyValue) {
	name, err := m.keys.ParseExecutor(string(kv.Key))
	if err != nil {
		return // nobody of that name claims
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.executors[name]
	if m.executors[name] = kv.ModRevision; !known {
		m.rankAll()
	}
}

func (m executorMirror) Delete(key string) {
	name, err := m.keys.ParseExecutor(key)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.executors, name)
	m.rankAll()
}

func (m executorMirror) All() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for name, revision := range m.executors {
			if !yield(m.keys.Executor(name), revision) {
				return
			}
		}
	}
}

func (m executorMirror) Fresh(int64) { m.setFresh(2, true) }
func (m executorMirror) Stale(error) { m.setFresh(2, false) }
