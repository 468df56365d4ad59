package deltalog

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"tidemark/internal/objstore"
)

const logDir = "_delta_log"

func (l *Log) key(name string) string { return l.table + "/" + logDir + "/" + name }

func commitName(version int64) string { return fmt.Sprintf("%020d.json", version) }

func checkpointName(version int64) string { return fmt.Sprintf("%020d.checkpoint.parquet", version) }

// logName matches what a log holds per version: its commit, its classic checkpoint, a part of a multi-part checkpoint,
// a checkpoint of the second kind, its checksum, and a compaction of the versions from it to another.
var logName = regexp.MustCompile(`^(\d{20})\.(json|crc|checkpoint\.parquet|checkpoint\.(\d{10})\.(\d{10})\.parquet|checkpoint\.([0-9a-f-]{36})\.(json|parquet)|(\d{20})\.compacted\.json)$`)

// logFile is one recognised file of a log.
type logFile struct {
	objstore.Info
	name        string
	version     int64
	commit      bool
	checkpoint  bool
	part, parts int64 // of a multi-part checkpoint; 1 of 1 for a classic one
	v2          bool  // a checkpoint of the v2Checkpoint feature, which is not read
}

func parseLogName(name string) (logFile, bool) {
	m := logName.FindStringSubmatch(name)
	if m == nil {
		return logFile{}, false
	}
	version, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return logFile{}, false
	}
	f := logFile{name: name, version: version, commit: m[2] == "json"}
	switch {
	case m[2] == "checkpoint.parquet":
		f.checkpoint, f.part, f.parts = true, 1, 1
	case m[3] != "":
		// Ten digits always fit.
		f.part, _ = strconv.ParseInt(m[3], 10, 64)
		f.parts, _ = strconv.ParseInt(m[4], 10, 64)
		f.checkpoint = f.part >= 1 && f.part <= f.parts && f.parts <= checkpointPartsMax
	case m[5] != "":
		f.v2 = true
	}
	return f, true
}

// checkpointPartsMax is far above what any engine writes and bounds what a misleading name can make us allocate.
const checkpointPartsMax = 100_000

// checkpointFiles is one complete checkpoint.
type checkpointFiles struct {
	version int64
	parts   []objstore.Info // in order
}

// listing is what a log held from some version on.
type listing struct {
	files       []logFile
	versions    []logFile         // commits, rising
	checkpoints []checkpointFiles // complete ones, rising
	v2          bool              // there are checkpoints of the v2Checkpoint feature
	date        time.Time         // the store's clock at the last page
}

// list reads the names in the log from a version on.
func (l *Log) list(ctx context.Context, from int64) (*listing, error) {
	prefix := l.key("")
	req := objstore.ListRequest{Prefix: prefix}
	if from > 0 {
		req.After = prefix + fmt.Sprintf("%020d", from)
	}
	out := &listing{}
	for {
		page, err := l.store.List(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("table %s: listing its log: %w", l.table, err)
		}
		out.date = page.Date
		done := !page.More
		for _, info := range page.Objects {
			name := info.Key[len(prefix):]
			if name > ":" { // past the digits: _last_checkpoint, _sidecars and the like
				done = true
				break
			}
			if f, ok := parseLogName(name); ok && f.v2 {
				out.v2 = true
			} else if ok {
				f.Info = info
				out.files = append(out.files, f)
			}
		}
		if done {
			break
		}
		req.After = page.Next
	}
	out.sort()
	return out, nil
}

func (l *listing) sort() {
	type set struct {
		version, parts int64
	}
	found := map[set][]logFile{}
	for _, f := range l.files {
		if f.commit {
			l.versions = append(l.versions, f)
		}
		if f.checkpoint {
			k := set{f.version, f.parts}
			found[k] = append(found[k], f)
		}
	}
	slices.SortFunc(l.versions, func(a, b logFile) int { return cmp.Compare(a.version, b.version) })
	for k, parts := range found {
		if int64(len(parts)) != k.parts {
			continue // still being written, or half deleted
		}
		slices.SortFunc(parts, func(a, b logFile) int { return cmp.Compare(a.part, b.part) })
		cp := checkpointFiles{version: k.version}
		for _, p := range parts {
			cp.parts = append(cp.parts, p.Info)
		}
		l.checkpoints = append(l.checkpoints, cp)
	}
	// Of two checkpoints of one version the one in fewer files comes last, and so first into use.
	slices.SortFunc(l.checkpoints, func(a, b checkpointFiles) int {
		return cmp.Or(cmp.Compare(a.version, b.version), len(b.parts)-len(a.parts))
	})
}

func (l *listing) newestCheckpoint() int64 {
	if len(l.checkpoints) == 0 {
		return -1
	}
	return l.checkpoints[len(l.checkpoints)-1].version
}

// etagOf returns the ETag of a version's file, or "".
func (l *listing) etagOf(version int64) string {
	i, ok := slices.BinarySearchFunc(l.versions, version, func(f logFile, v int64) int { return cmp.Compare(f.version, v) })
	if !ok {
		return ""
	}
	return l.versions[i].ETag
}

// after returns the versions above one, which must follow it without a gap.
func (l *listing) after(table string, version int64) ([]logFile, error) {
	versions := l.versions
	for len(versions) > 0 && versions[0].version <= version {
		versions = versions[1:]
	}
	for j, v := range versions {
		if want := version + 1 + int64(j); v.version != want {
			return nil, l.gap(table, want, v.version)
		}
	}
	if len(versions) == 0 && version < 0 {
		return nil, l.gap(table, 0, -1)
	}
	return versions, nil
}

// gap is the failure of a log whose versions do not follow each other: what is missing may stand in a checkpoint that is
// not read.
func (l *listing) gap(table string, missing, next int64) error {
	if l.v2 {
		return &UnsupportedError{table, "the reader feature v2Checkpoint", "its log begins with such a checkpoint; set delta.checkpointPolicy to classic, write a checkpoint and drop the feature"}
	}
	return &GapError{Table: table, Missing: missing, Next: next}
}
