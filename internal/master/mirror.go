package master

import (
	"iter"
	"maps"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/etcd"
)

// mirror notes one prefix of etcd in the book. It implements etcd.Mirror; its methods are called by its follower alone.
type mirror struct {
	m    *Master
	held map[string]int64 // mod revisions
	live bool             // the snapshot is complete: what comes now has just been written
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

func (f *mirror) All() iter.Seq2[string, int64] { return maps.All(f.held) }

func (f *mirror) Fresh(int64) {
	if !f.live {
		f.live = true
		f.m.fresh(f, true)
	}
}

func (f *mirror) Stale(error) {
	if f.live {
		f.live = false
		f.m.fresh(f, false)
	}
}
