package executor

import (
	"context"
	"iter"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/etcd"
)

// drains says whether this executor is to claim nothing: because its process is asked to end, or because a person has
// left a request for it in etcd. The request is durable, so the next process of the same id heeds it before its first
// claim; until etcd has said whether there is one, nothing is claimed.
type drains struct {
	key     string // of the request
	changed chan struct{}

	mu       sync.Mutex // guards the following
	ending   bool       // the process drains, and ends with its last execution
	known    bool       // etcd has said whether there is a request
	revision int64      // of the request; 0 is none
}

func newDrains(key string) *drains { return &drains{key: key, changed: make(chan struct{}, 1)} }

// draining says that nothing is claimed because somebody wants it so.
func (d *drains) draining() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ending || d.revision != 0
}

// mayClaim says that nobody wants that nothing is claimed.
func (d *drains) mayClaim() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.ending && d.known && d.revision == 0
}

// end notes that the process drains.
func (d *drains) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ending = true
}

func (d *drains) isEnding() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ending
}

func (d *drains) note(change func()) {
	d.mu.Lock()
	change()
	d.mu.Unlock()
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// watchDrain mirrors the request until ctx is done.
func (e *Executor) watchDrain(ctx context.Context) error {
	d := e.deps
	etcd.NewFollower(d.Client, e.drains.key, e.drains, d.Clock, d.Random, d.Log).Run(ctx)
	return nil
}

// drains implements etcd.Mirror for the one key. The prefix that is followed covers executors whose ids begin with this
// one's; they are not ours.
var _ etcd.Mirror = (*drains)(nil)

// Put is called by the follower alone, as are the methods below.
func (d *drains) Put(kv *mvccpb.KeyValue) {
	if string(kv.Key) == d.key {
		d.note(func() { d.revision = kv.ModRevision })
	}
}

// Delete notes that the request was taken away.
func (d *drains) Delete(key string) {
	if key == d.key {
		d.note(func() { d.revision = 0 })
	}
}

// All is the request, if there is one.
func (d *drains) All() iter.Seq2[string, int64] {
	d.mu.Lock()
	revision := d.revision
	d.mu.Unlock()
	return func(yield func(string, int64) bool) {
		if revision != 0 {
			yield(d.key, revision)
		}
	}
}

// Fresh makes what is known complete.
func (d *drains) Fresh(int64) {
	d.mu.Lock()
	known := d.known
	d.mu.Unlock()
	if !known {
		d.note(func() { d.known = true })
	}
}

// Stale changes nothing: a request holds until etcd says that it is gone.
func (d *drains) Stale(error) {}
