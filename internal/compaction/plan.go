package compaction

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"iter"
	"maps"
	"slices"
	"strings"

	"tidemark/internal/deltalog"
)

// TargetDefault is the size in bytes at which a data file is full unless the table says otherwise.
const TargetDefault = 128 << 20

// binFilesMax bounds the files of one bin, and with it the removals of a commit: at about a kilobyte of statistics each
// that is 4 MB. What a larger bin would hold is joined by the next compaction.
const binFilesMax = 4096

// Options say how a table's files are packed.
type Options struct {
	Target int64 // bytes at which a file is full; 0 is TargetDefault
	Upsert bool  // files are tagged with a bucket and their range of keys
	// Busy says that a bucket of an upsert table is left to its merges, which rewrite its small files by the way.
	Busy func(bucket string) bool
}

// Bin is some files that become one, in the order in which their rows are to follow each other.
type Bin struct {
	Files []deltalog.Add
	Bytes int64
}

// Backlog is what a plan amounts to.
type Backlog struct {
	Bins  int
	Files int   // that would be rewritten
	Bytes int64 // of them
}

// Saved is how many files fewer the table would have.
func (b Backlog) Saved() int { return b.Files - b.Bins }

// Count adds a plan up.
func Count(bins []Bin) (b Backlog) {
	for _, bin := range bins {
		b.Bins++
		b.Files += len(bin.Files)
		b.Bytes += bin.Bytes
	}
	return b
}

// file is a base file with its place among the others.
type file struct {
	add deltalog.Add
	key []byte // lowest key, in an upsert table
}

// Plan packs the files of a table. It has no side effect, and the same files give the same plan in whatever order they
// come. Work is linear in the files, and sorts the small ones; memory is that of the small ones, and of all of an upsert
// table, whose large files stand between small ones.
func Plan(files iter.Seq[deltalog.Add], o Options) []Bin {
	if o.Target <= 0 {
		o.Target = TargetDefault
	}
	places := map[string][]file{}
	for add := range files {
		place, f, ok := o.place(add)
		switch {
		case !ok && o.Upsert:
			return nil // nobody knows where its rows belong
		case ok:
			places[place] = append(places[place], f)
		}
	}
	var bins []Bin
	for _, place := range slices.Sorted(maps.Keys(places)) {
		for _, run := range o.runs(places[place]) {
			bins = append(bins, o.pack(run)...)
		}
	}
	return bins
}

// place says where a file belongs; false for one that is left alone.
func (o Options) place(add deltalog.Add) (place string, f file, ok bool) {
	if !o.Upsert {
		return partition(add), file{add: add}, o.small(add) && !add.Absolute()
	}
	key, err := base64.StdEncoding.DecodeString(add.Tags[deltalog.TagKeyMin])
	bucket := add.Tags[deltalog.TagBucket]
	return bucket, file{add, key}, err == nil && bucket != "" && !add.Absolute()
}

// small says that a file is worth joining with others. Two that are not small would not fit into one.
func (o Options) small(add deltalog.Add) bool { return add.Size < o.Target/2 }

// partition names a file's partition: its values in the order of their columns.
func partition(add deltalog.Add) string {
	var b strings.Builder
	for _, column := range slices.Sorted(maps.Keys(add.PartitionValues)) {
		b.WriteString(column)
		b.WriteByte(0)
		b.WriteString(add.PartitionValues[column])
		b.WriteByte(0)
	}
	return b.String()
}

// runs are the small files of one place that may be joined, in order: of a partition the oldest first, so that rows which
// came together stay together; of a bucket each stretch without a large file in between.
func (o Options) runs(files []file) [][]file {
	if !o.Upsert {
		slices.SortFunc(files, func(a, b file) int {
			return cmp.Or(cmp.Compare(a.add.ModificationTime, b.add.ModificationTime), cmp.Compare(a.add.Path, b.add.Path))
		})
		return [][]file{files}
	}
	if o.Busy != nil && o.Busy(files[0].add.Tags[deltalog.TagBucket]) {
		return nil
	}
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.add.Path, b.add.Path))
	})
	var runs [][]file
	var run []file
	for _, f := range files {
		small := o.small(f.add)
		if !small || len(run) > 0 && partition(run[0].add) != partition(f.add) {
			runs, run = append(runs, run), nil
		}
		if small {
			run = append(run, f)
		}
	}
	return append(runs, run)
}

// pack fills bins one after the other. A bin ends where the next file would not fit, so it is more than half full then,
// and what it becomes is not small any more.
func (o Options) pack(run []file) (bins []Bin) {
	from, size := 0, int64(0)
	for i, f := range run {
		if size+f.add.Size > o.Target || i-from == binFilesMax {
			bins = append(bins, o.worthwhile(run[from:i])...)
			from, size = i, 0
		}
		size += f.add.Size
	}
	return append(bins, o.worthwhile(run[from:])...)
}

// worthwhile makes a bin of files, unless that would rewrite much to join little: of files that do not make half a file
// together, the largest stays out for as long as it is larger than all others. In an upsert table what is before it and
// what is behind it are then no neighbours any more.
func (o Options) worthwhile(files []file) []Bin {
	if len(files) < 2 {
		return nil
	}
	bin := Bin{Files: make([]deltalog.Add, 0, len(files))}
	largest := 0
	for i, f := range files {
		bin.Files = append(bin.Files, f.add)
		bin.Bytes += f.add.Size
		if f.add.Size > files[largest].add.Size {
			largest = i
		}
	}
	if bin.Bytes >= o.Target/2 || 2*files[largest].add.Size <= bin.Bytes {
		return []Bin{bin}
	}
	if o.Upsert {
		return append(o.worthwhile(files[:largest]), o.worthwhile(files[largest+1:])...)
	}
	return o.worthwhile(slices.Concat(files[:largest], files[largest+1:]))
}
