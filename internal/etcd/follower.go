package etcd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/random"
)

const (
	// signEvery is how long a watch is left alone before it is asked for a sign of life. All watches of one client
	// share a stream, so one that asks serves all.
	signEvery = 5 * time.Second
	// signsMissed is how many times in a row no sign may come before the mirror counts as stale.
	signsMissed = 3
	// rereadEvery is how often everything is read again to count what the watch had missed.
	rereadEvery = 10 * time.Minute
	// The wait before a broken follower starts afresh grows between these bounds, with jitter.
	restartMin, restartMax = 50 * time.Millisecond, 5 * time.Second
)

// Mirror is what a Follower keeps equal to the keys under a prefix. All methods are called by the follower's goroutine.
//
// The mirror's owner may read it meanwhile, but nobody else writes it, so All needs no lock of the mirror's.
type Mirror interface {
	// Put says that a key stands so. It may be called again for what the mirror holds already.
	Put(kv *mvccpb.KeyValue)
	// Delete says that a key is gone; the mirror may not hold it.
	Delete(key string)
	// All are the keys that the mirror holds, with the mod revision of each. It may delete while it is iterated.
	All() iter.Seq2[string, int64]
	// Fresh says that the mirror is complete up to a revision.
	Fresh(revision int64)
	// Stale says that the mirror may lag or hold what is gone, until Fresh is called again. After ErrReplaced the mod
	// revisions that follow are of another etcd and not to be compared with those before.
	Stale(cause error)
}

// Follower mirrors a prefix:
//
//  1. Read everything at one revision; delete from the mirror what is not there; Fresh.
//  2. Watch from that revision on; every event and every sign of progress is Fresh.
//  3. The watch was compacted away, cut off, or etcd is another one: Stale, and go to 1.
//  4. From time to time read all keys again, and when the watch has passed that revision compare. Whatever it had
//     missed is drift: count it, and go to 1.
type Follower struct {
	client *clientv3.Client
	prefix string
	mirror Mirror
	clock  clock.Clock
	random random.Source
	log    hclog.Logger
	drift  atomic.Int64
	doubt  chan struct{} // filled by Doubt
	seen   Version       // highest seen; only Run's goroutine

	signEvery, rereadEvery time.Duration // the constants, shorter in tests
}

// NewFollower makes a follower; Run follows.
func NewFollower(client *clientv3.Client, prefix string, mirror Mirror, c clock.Clock, r random.Source, log hclog.Logger) *Follower {
	return &Follower{
		client: client, prefix: prefix, mirror: mirror, clock: c, random: r, log: log,
		doubt: make(chan struct{}, 1), signEvery: signEvery, rereadEvery: rereadEvery,
	}
}

// Drift is how many keys the watch was found to have missed, ever.
func (f *Follower) Drift() int64 { return f.drift.Load() }

// Doubt asks etcd who it is without waiting for a sign to be missed: its caller lost a lease, say, as happens to all
// leases when etcd is replaced.
func (f *Follower) Doubt() {
	select {
	case f.doubt <- struct{}{}:
	default:
	}
}

// Run follows until ctx is done.
func (f *Follower) Run(ctx context.Context) {
	for wait := restartMin; ctx.Err() == nil; {
		fresh, err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, ErrReplaced) {
			f.seen = Version{}
		}
		f.mirror.Stale(err)
		f.log.Warn("following etcd starts afresh", "prefix", f.prefix, "cause", err)
		if fresh {
			wait = restartMin
		}
		if f.clock.Sleep(ctx, random.Jitter(f.random, wait)) != nil {
			return
		}
		wait = min(2*wait, restartMax)
	}
}

// errDrift: a re-read found what the watch had missed.
var errDrift = errors.New("the watch had missed changes")

// errSilent: etcd answers, but the watch says nothing.
var errSilent = errors.New("the watch is silent")

// errEnded: the client ended the watch, as it does when it is closed.
var errEnded = errors.New("the watch ended")

// follow is one snapshot and the watch that follows it. It says whether the snapshot succeeded.
func (f *Follower) follow(ctx context.Context) (fresh bool, err error) {
	at, err := f.snapshot(ctx)
	if err != nil {
		return false, err
	}
	replaced := f.seen != (Version{}) && at.before(f.seen)
	f.seen = at
	if replaced {
		return false, ErrReplaced // what the mirror holds has the revisions of the other; it forgets them first
	}
	f.mirror.Fresh(at.Revision)

	// A member that has lost its leader must say so instead of keeping silent.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	changes, err := f.open(ctx, cancel, at.Revision)
	if err != nil {
		return true, err
	}
	w := &watching{Follower: f, known: at.Revision, changes: changes}
	// Every follower at its own time, so that one of them asks for the sign that serves all.
	w.sign, w.stopSign = f.clock.After(random.Jitter(f.random, f.signEvery))
	w.reread, w.stopReread = f.clock.After(random.Jitter(f.random, f.rereadEvery))
	defer func() {
		w.stopSign()
		w.stopReread()
		cancel()
		for range w.changes { // the client closes it
		}
	}()
	for {
		select {
		case change, open := <-w.changes:
			if !open {
				return true, errors.Join(errEnded, context.Cause(ctx))
			}
			if err := w.apply(change); err != nil {
				return true, err
			}
		case <-w.sign:
			if err := w.askForSign(ctx); err != nil {
				return true, err
			}
		case <-w.doubt:
			if at, err := w.probe(ctx); err == nil && at.before(w.seen) {
				return true, ErrReplaced
			}
		case <-w.reread:
			if err := w.readAgain(ctx); err != nil {
				return true, err
			}
		case <-ctx.Done():
			return true, context.Cause(ctx)
		}
	}
}

// open opens the watch. The client waits until etcd has acknowledged it; where etcd is silent that is for ever, and until
// then the mirror is blind.
//
// The watch begins with the revision of the snapshot, whose events are known: etcd gives no sign of life to a watch of a
// revision that is still to come, and where nothing is written that would be silence for ever.
func (f *Follower) open(ctx context.Context, cancel context.CancelFunc, revision int64) (clientv3.WatchChan, error) {
	opened := make(chan clientv3.WatchChan, 1)
	go func() { opened <- f.client.Watch(ctx, f.prefix, clientv3.WithPrefix(), clientv3.WithRev(revision)) }()
	late, stop := f.clock.After(signsMissed * f.signEvery)
	defer stop()
	select {
	case changes := <-opened:
		return changes, nil
	case <-late:
	}
	cancel()
	for range <-opened { // the client closes it
	}
	return nil, errSilent
}

// snapshot makes the mirror equal to what stands under the prefix now.
func (f *Follower) snapshot(ctx context.Context) (Version, error) {
	there := map[string]struct{}{}
	at, err := ReadPages(ctx, f.client, f.prefix, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			there[string(kv.Key)] = struct{}{}
			f.mirror.Put(kv)
		}
		return nil
	})
	if err != nil {
		return at, err
	}
	for key := range f.mirror.All() {
		if _, ok := there[key]; !ok {
			f.mirror.Delete(key)
		}
	}
	return at, nil
}

// watching is one watch.
type watching struct {
	*Follower
	known      int64 // revision of the snapshot
	changes    clientv3.WatchChan
	sign       <-chan time.Time
	stopSign   func()
	missed     int // signs asked for since the last answer
	reread     <-chan time.Time
	stopReread func()
	again      *reread
}

// reread is what stood under the prefix at a revision.
type reread struct {
	revision int64
	there    map[string]int64    // mod revisions
	deleted  map[string]struct{} // by the watch, since the re-read was begun
}

func (w *watching) apply(change clientv3.WatchResponse) error {
	if err := change.Err(); err != nil {
		return err
	}
	now := Version{change.Header.ClusterId, change.Header.Revision}
	if now.before(w.seen) {
		return ErrReplaced
	}
	w.missed = 0
	w.noteDeletes(change.Events)
	for _, ev := range change.Events {
		switch {
		case ev.Kv.ModRevision <= w.known:
		case ev.Type == clientv3.EventTypeDelete:
			w.mirror.Delete(string(ev.Kv.Key))
		default:
			w.mirror.Put(ev.Kv)
		}
	}
	// Events come in order of revision; the header of events may run ahead of them.
	if n := len(change.Events); n > 0 {
		w.seen.Revision = change.Events[n-1].Kv.ModRevision
	} else if change.IsProgressNotify() {
		w.seen.Revision = now.Revision
	}
	w.mirror.Fresh(w.seen.Revision)
	return w.compare()
}

// noteDeletes remembers what was deleted while a re-read waits to be compared.
func (w *watching) noteDeletes(events []*clientv3.Event) {
	if w.again == nil {
		return
	}
	for _, ev := range events {
		if ev.Type == clientv3.EventTypeDelete {
			w.again.deleted[string(ev.Kv.Key)] = struct{}{}
		}
	}
}

// askForSign asks the watch how far it is. When the last sign did not come, etcd itself is asked who it is: one that was
// replaced has nothing to say to a watch of the one before. When no sign comes for long, the mirror is stale; when etcd
// answers all the same, the watch is of no use any more.
func (w *watching) askForSign(ctx context.Context) error {
	w.sign, w.stopSign = w.clock.After(random.Jitter(w.random, w.signEvery))
	if w.missed > 0 {
		at, err := w.probe(ctx)
		if err == nil && at.before(w.seen) {
			return ErrReplaced
		}
		if w.missed >= signsMissed {
			w.mirror.Stale(errSilent)
			if err == nil {
				return errSilent
			}
		}
	}
	w.missed++
	w.requestProgress(ctx)
	return nil
}

// probe asks for one key, to see where etcd stands.
func (w *watching) probe(ctx context.Context) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, w.signEvery/5)
	defer cancel()
	got, err := w.client.Get(ctx, w.prefix)
	if err != nil {
		return Version{}, err
	}
	return Version{got.Header.ClusterId, got.Header.Revision}, nil
}

// requestProgress asks the watch how far it is. The answer comes as a change, an error shows as silence. While the
// watch's stream is broken the client would wait for another, so this does not wait for long.
func (w *watching) requestProgress(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.signEvery/5)
	defer cancel()
	_ = w.client.RequestProgress(ctx)
}

// readAgain reads all keys, without their values, for compare.
func (w *watching) readAgain(ctx context.Context) error {
	w.reread, w.stopReread = w.clock.After(random.Jitter(w.random, w.rereadEvery))
	w.again = &reread{there: map[string]int64{}, deleted: map[string]struct{}{}}
	at, err := ReadPages(ctx, w.client, w.prefix, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			w.again.there[string(kv.Key)] = kv.ModRevision
		}
		return nil
	}, clientv3.WithKeysOnly())
	if errors.Is(err, ErrReplaced) || err == nil && at.before(w.seen) {
		return ErrReplaced
	}
	if err != nil {
		w.again = nil // etcd is slow or away; the next one will do
		return nil
	}
	w.again.revision = at.Revision
	w.requestProgress(ctx)
	return w.compare()
}

// compare counts what the watch had missed of the re-read, once it has passed its revision.
func (w *watching) compare() error {
	if w.again == nil || w.again.revision == 0 || w.seen.Revision < w.again.revision {
		return nil
	}
	again := w.again
	w.again = nil
	missed := 0
	for key, revision := range w.mirror.All() {
		there, ok := again.there[key]
		if ok && revision < there || !ok && revision <= again.revision {
			missed++
		}
		delete(again.there, key)
	}
	for key := range again.there {
		if _, deleted := again.deleted[key]; !deleted {
			missed++
		}
	}
	if missed == 0 {
		return nil
	}
	w.drift.Add(int64(missed))
	return fmt.Errorf("%w: %d keys", errDrift, missed)
}
