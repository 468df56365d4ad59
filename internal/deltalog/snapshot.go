package deltalog

import (
	"iter"
	"time"
)

// Snapshot is a table at one version. It is immutable and safe for concurrent use; the maps and slices it hands out
// must not be changed.
type Snapshot struct {
	Version    int64
	Protocol   Protocol
	Metadata   Metadata
	Checkpoint int64     // version of the newest complete checkpoint seen, or -1
	LoadedAt   time.Time // when storage last said that this is the newest version, by the reader's wall clock

	table      string
	checked    instant // the same, before the request was sent
	etag       string  // of the version's file, if known: tells a log that was replaced
	files      tree[*dataFile]
	tombstones tree[tombstone]
	txns       tree[mark]
	size       int64 // bytes of all files
	weight     int64 // see Memory
	foreign    *ForeignWriteError
}

// dataFile is an Add, kept small: a table may have hundreds of thousands.
type dataFile struct {
	path       string
	uri        string
	stats      string
	tags       []string // key, value, key, value …
	partitions []string // likewise
	size       int64
	modified   int64
	dataChange bool
}

type tombstone struct {
	at   int64 // deletion, ms since 1970
	size int64
	uri  string
}

type mark struct{ version, updated int64 }

// Rough overheads of an entry in memory, measured by TestMemoryIsEstimated: a tree node and what it points to.
const (
	fileWeight      = 240
	tombstoneWeight = 110
	markWeight      = 100
)

// Table is the name of the table.
func (s *Snapshot) Table() string { return s.table }

// Files yields the data files in the order of their paths.
func (s *Snapshot) Files() iter.Seq[Add] {
	return func(yield func(Add) bool) {
		for _, f := range s.files.all() {
			if !yield(f.add()) {
				return
			}
		}
	}
}

// File returns the data file of a path.
func (s *Snapshot) File(path string) (Add, bool) {
	f, ok := s.files.get(path)
	if !ok {
		return Add{}, false
	}
	return f.add(), true
}

// FileCount is the number of data files.
func (s *Snapshot) FileCount() int { return s.files.len }

// Bytes is the size of all data files.
func (s *Snapshot) Bytes() int64 { return s.size }

// Memory estimates the bytes that this snapshot keeps in memory, counting what it shares with others.
func (s *Snapshot) Memory() int64 { return s.weight }

// Tombstones yields the removed files that the log still remembers, in the order of their paths.
func (s *Snapshot) Tombstones() iter.Seq[Remove] {
	return func(yield func(Remove) bool) {
		for path, t := range s.tombstones.all() {
			if !yield(Remove{Path: path, DeletionTimestamp: t.at, Size: t.size, uri: t.uri}) {
				return
			}
		}
	}
}

// Tombstone returns the removal of a path that the log still remembers.
func (s *Snapshot) Tombstone(path string) (Remove, bool) {
	t, ok := s.tombstones.get(path)
	return Remove{Path: path, DeletionTimestamp: t.at, Size: t.size, uri: t.uri}, ok
}

// Txn is how far an application has come.
func (s *Snapshot) Txn(appID string) (version int64, ok bool) {
	m, ok := s.txns.get(appID)
	return m.version, ok
}

// Mark is the merged mark of a shard of this table; 0 if nothing was ever merged.
func (s *Snapshot) Mark(shard string) int64 {
	m, _ := s.txns.get(AppID(s.Metadata.ID, shard))
	return m.version
}

// Txns yields all transactions in the order of their names.
func (s *Snapshot) Txns() iter.Seq[Txn] {
	return func(yield func(Txn) bool) {
		for id, m := range s.txns.all() {
			if !yield(Txn{AppID: id, Version: m.version, LastUpdated: m.updated}) {
				return
			}
		}
	}
}

// Foreign returns a *ForeignWriteError if the table is an upsert table and another engine has changed its data.
func (s *Snapshot) Foreign() error {
	if s.foreign == nil {
		return nil
	}
	return s.foreign
}

func newFile(a Add) *dataFile {
	return &dataFile{
		path: a.Path, uri: a.uri, stats: a.Stats, tags: packPairs(a.Tags), partitions: packPairs(a.PartitionValues),
		size: a.Size, modified: a.ModificationTime, dataChange: a.DataChange,
	}
}

func (f *dataFile) add() Add {
	return Add{
		Path: f.path, uri: f.uri, Stats: f.stats, Tags: unpackPairs(f.tags), PartitionValues: unpackPairs(f.partitions),
		Size: f.size, ModificationTime: f.modified, DataChange: f.dataChange,
	}
}

func (f *dataFile) memory() int64 {
	n := fileWeight + len(f.path) + len(f.uri) + len(f.stats)
	for _, s := range f.tags {
		n += 16 + len(s)
	}
	for _, s := range f.partitions {
		n += 16 + len(s)
	}
	return int64(n)
}

func packPairs(m map[string]string) []string {
	if len(m) == 0 {
		return nil
	}
	out := make([]string, 0, 2*len(m))
	for k, v := range m {
		switch k { // the usual keys share one string
		case TagBucket:
			k = TagBucket
		case TagKeyMin:
			k = TagKeyMin
		case TagKeyMax:
			k = TagKeyMax
		}
		out = append(out, k, v)
	}
	return out
}

func unpackPairs(pairs []string) map[string]string {
	if len(pairs) == 0 {
		return nil
	}
	m := make(map[string]string, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}
