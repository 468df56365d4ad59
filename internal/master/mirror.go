package master

import (
	"errors"
	"iter"
	"maps"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/etcd"
)

// mirror notes one prefix of etcd in the book. It implements etcd.Mirror; its methods are called by its follower alone.
type mirror struct {
	m     *Master
	held  map[string]int64 // mod revisions
	ready bool             // it is the ready queue's
	live  bool             // the snapshot is complete: what comes now has just been written
}

var _ etcd.Mirror = (*mirror)(nil)

func (f *mirror) Put(kv *mvccpb.KeyValue) {
	key := string(kv.Key)
	f.held[key] = kv.ModRevision
	f.m.note(func(b *book) { b.put(key, kv.Value, kv.ModRevision, f.m.nowMS(), f.live) })
}

func (f *mirror) Delete(key string) {
	delete(f.held, key)
	f.m.note(func(b *book) { b.delete(key) })
}

// All includes the units that the planner has noted before the watch could tell of them: one that was claimed while the
// watch was broken is in no snapshot, and nobody else would take it out of the book.
func (f *mirror) All() iter.Seq2[string, int64] {
	if !f.ready {
		return maps.All(f.held)
	}
	all := maps.Clone(f.held)
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	for _, e := range f.m.book.tables {
		for key, u := range e.ready {
			all[key] = u.revision
		}
	}
	return maps.All(all)
}

func (f *mirror) Fresh(revision int64) {
	if f.ready {
		f.m.mu.Lock()
		f.m.readySeen = revision
		f.m.mu.Unlock()
	}
	if !f.live {
		f.live = true
		f.m.fresh(f, true)
	}
}

// Stale after etcd was replaced takes everything out of the book: what is noted has the high revisions of the old one, and
// the outcomes, turns and requests of the new would count as older.
func (f *mirror) Stale(cause error) {
	if errors.Is(cause, etcd.ErrReplaced) {
		for key := range f.All() {
			f.Delete(key)
		}
	}
	if f.live {
		f.live = false
		f.m.fresh(f, false)
	}
}
