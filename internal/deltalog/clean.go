package deltalog

import (
	"context"
	"fmt"
)

// cleanMax bounds the deletions of one call, so that it fits into a turn. What is left is found by the next one.
const cleanMax = 10_000

// CleanLog deletes the versions, checkpoints and checksums that are older than the table's log retention and lie below
// a checkpoint that is kept, as the protocol describes it:
//
//  1. The newest version older than the retention is the cut-off; everything from it on stays.
//  2. The newest complete checkpoint at or below it, which must not be newer than what _last_checkpoint names, is what
//     older snapshots are made from: it, its version and everything after it stay.
//  3. That checkpoint is read. Only if it is sound is anything below it deleted, oldest first.
//
// Ages compare the store's own times with the store's own clock. It returns how many files were deleted.
func (l *Log) CleanLog(ctx context.Context, s *Snapshot) (deleted int, err error) {
	if err := s.Writable(); err != nil {
		return 0, err
	}
	p, err := ParseProperties(s.Metadata.Configuration)
	if err != nil || !p.CleanLog {
		return 0, err
	}
	list, err := l.list(ctx, 0)
	if err != nil {
		return 0, err
	}
	cutoff := list.date.Add(-p.LogRetention)
	oldest := int64(-1) // the newest version older than the retention
	for _, v := range list.versions {
		// The store's times of two versions may be out of order; the first young one ends what is old.
		if !v.Modified.Before(cutoff) {
			break
		}
		oldest = v.version
	}
	if hint := l.lastCheckpoint(ctx); hint >= 0 {
		oldest = min(oldest, hint)
	}
	keep := -1
	for i, cp := range list.checkpoints {
		if cp.version <= oldest {
			keep = i
		}
	}
	if keep < 0 || list.checkpoints[keep].version <= list.files[0].version {
		return 0, nil
	}
	base := list.checkpoints[keep]
	if _, err := l.readCheckpoint(ctx, base); err != nil {
		return 0, fmt.Errorf("table %s: its log is not cleaned below version %d: %w", l.table, base.version, err)
	}
	for _, f := range list.files {
		if f.version >= base.version || deleted == cleanMax {
			break
		}
		if !f.Modified.Before(cutoff) {
			continue // a late put of an old number: let it age
		}
		if err := l.store.Delete(ctx, f.Key); err != nil {
			return deleted, fmt.Errorf("table %s: cleaning its log: %w", l.table, err)
		}
		deleted++
	}
	if deleted > 0 {
		l.log.Info("cleaned the log", "below", base.version, "files", deleted)
	}
	return deleted, nil
}
