package deltalog

import (
	"slices"
	"strings"
	"time"
)

// apply returns the snapshot after a commit that follows it. What the commit does not touch is shared.
func (s *Snapshot) apply(c Commit) *Snapshot {
	next := *s
	next.Version = c.Version
	if c.Protocol != nil {
		next.Protocol = *c.Protocol
	}
	if c.Metadata != nil {
		next.Metadata = *c.Metadata
	}
	for _, r := range c.Removes {
		next.dropFile(r.Path)
		next.setTombstone(r.Path, tombstone{at: r.DeletionTimestamp, size: r.Size, uri: r.uri})
	}
	for _, a := range c.Adds {
		next.dropTombstone(a.Path)
		next.setFile(newFile(a))
	}
	for _, t := range c.Txns {
		next.setTxn(t)
	}
	if next.foreign == nil {
		next.foreign = s.foreignWrite(c)
	}
	if c.Metadata != nil && c.Metadata.ID != s.Metadata.ID {
		next.foreign = nil // a new life of the name
	}
	return &next
}

// foreignWrite recognises a commit of another engine that changes the data of an upsert table.
func (s *Snapshot) foreignWrite(c Commit) *ForeignWriteError {
	if s.Metadata.Configuration[PropertyMode] != modeUpsert || c.Info.Own() || !c.changesData() {
		return nil
	}
	return &ForeignWriteError{Table: s.table, Version: c.Version, Engine: c.Info.Engine}
}

func (s *Snapshot) setFile(f *dataFile) {
	s.dropFile(f.path)
	s.files = s.files.set(f.path, f)
	s.size += f.size
	s.weight += f.memory()
}

func (s *Snapshot) dropFile(path string) {
	if old, ok := s.files.get(path); ok {
		s.files = s.files.delete(path)
		s.size -= old.size
		s.weight -= old.memory()
	}
}

func (s *Snapshot) setTombstone(path string, t tombstone) {
	s.dropTombstone(path)
	s.tombstones = s.tombstones.set(path, t)
	s.weight += int64(tombstoneWeight + len(path))
}

func (s *Snapshot) dropTombstone(path string) {
	if _, ok := s.tombstones.get(path); ok {
		s.tombstones = s.tombstones.delete(path)
		s.weight -= int64(tombstoneWeight + len(path))
	}
}

func (s *Snapshot) setTxn(t Txn) {
	before := s.txns.len
	s.txns = s.txns.set(t.AppID, mark{version: t.Version, updated: t.LastUpdated})
	if s.txns.len > before {
		s.weight += int64(markWeight + len(t.AppID))
	}
}

// withoutExpired returns the snapshot without the tombstones whose files may be deleted since.
func (s *Snapshot) withoutExpired(now time.Time) *Snapshot {
	if s.tombstones.len == 0 {
		return s
	}
	limit := now.Add(-s.retention()).UnixMilli()
	kept := make([]treeEntry[tombstone], 0, s.tombstones.len)
	weight := s.weight
	for path, t := range s.tombstones.all() {
		if t.at > limit {
			kept = append(kept, treeEntry[tombstone]{path, t})
		} else {
			weight -= int64(tombstoneWeight + len(path))
		}
	}
	if len(kept) == s.tombstones.len {
		return s
	}
	next := *s
	next.tombstones, next.weight = buildTree(kept), weight
	return &next
}

// retention is how long tombstones are kept. A table whose property cannot be parsed is refused before it is written
// to, so here the default may stand in.
func (s *Snapshot) retention() time.Duration {
	p, err := ParseProperties(s.Metadata.Configuration)
	if err != nil {
		return deletedFileRetentionDefault
	}
	return p.DeletedFileRetention
}

// diff is the commit that leads from one snapshot to a later one, whatever happened in between. It has no commitInfo.
func diff(from, to *Snapshot) Commit {
	c := Commit{Version: to.Version, Info: CommitInfo{Engine: Engine, readVersion: -1}}
	if !to.Protocol.Equal(from.Protocol) {
		c.Protocol = &to.Protocol
	}
	if !to.Metadata.Equal(from.Metadata) {
		c.Metadata = &to.Metadata
	}
	for path, f := range to.files.all() {
		if _, ok := from.files.get(path); !ok {
			c.Adds = append(c.Adds, f.add())
		}
	}
	for path, f := range from.files.all() {
		if _, ok := to.files.get(path); !ok {
			a := f.add()
			c.Removes = append(c.Removes, Remove{Path: path, Size: a.Size, Tags: a.Tags, DataChange: true, uri: a.uri})
		}
	}
	for id, m := range to.txns.all() {
		if old, ok := from.txns.get(id); !ok || old.version != m.version {
			c.Txns = append(c.Txns, Txn{AppID: id, Version: m.version, LastUpdated: m.updated})
		}
	}
	for id := range from.txns.all() {
		if _, ok := to.txns.get(id); !ok {
			c.Txns = append(c.Txns, Txn{AppID: id}) // somebody expired it: back to nothing
		}
	}
	return c
}

// content collects the actions of a checkpoint, whose order means nothing, into a snapshot.
type content struct {
	protocol   *Protocol
	metadata   *Metadata
	files      []treeEntry[*dataFile]
	tombstones []treeEntry[tombstone]
	txns       []treeEntry[mark]
}

func (c *content) snapshot(table string, version int64) *Snapshot {
	s := &Snapshot{
		table: table, Version: version, Protocol: *c.protocol, Metadata: *c.metadata, Checkpoint: version,
		files: sortedTree(c.files), tombstones: sortedTree(c.tombstones), txns: sortedTree(c.txns),
	}
	for _, f := range s.files.all() {
		s.size += f.size
		s.weight += f.memory()
		if s.foreign == nil && c.metadata.Configuration[PropertyMode] == modeUpsert && !slices.Contains(f.tags, TagBucket) {
			// The commit itself is gone, but no file of ours is without its bucket.
			s.foreign = &ForeignWriteError{Table: table, Version: version, Checkpoint: true}
		}
	}
	for path := range s.tombstones.all() {
		s.weight += int64(tombstoneWeight + len(path))
	}
	for id := range s.txns.all() {
		s.weight += int64(markWeight + len(id))
	}
	return s
}

func sortedTree[V any](entries []treeEntry[V]) tree[V] {
	slices.SortStableFunc(entries, func(a, b treeEntry[V]) int { return strings.Compare(a.key, b.key) })
	entries = slices.CompactFunc(entries, func(a, b treeEntry[V]) bool { return a.key == b.key })
	return buildTree(entries)
}
