package maintain

import (
	"fmt"
	"time"

	"tidemark/internal/compaction"
	"tidemark/internal/shardmanifest"
)

const (
	// cleanupEvery is how long the leftovers of crashed executions, old manifests and expired log files may lie about
	// although no shard asks for cleanup. Base data files are not swept before they are a day old anyway.
	cleanupEvery = 24 * time.Hour

	// trimDueTable is the number of merged generations of all shards together at which cleanup is due: a table of
	// many shards would otherwise list every one of them for a day.
	trimDueTable = 8 * shardmanifest.TrimDue
)

// State is what storage shows of a table's need for maintenance.
type State struct {
	Version         int64 // of the log
	Checkpoint      int64 // version of the newest checkpoint, or -1
	CheckpointEvery int64 // delta.checkpointInterval, at least 1
	// Untrimmed is the number of merged generations that manifests list: of all shards, and of the one that has most.
	Untrimmed, UntrimmedMost uint64
	// SinceCleanup is the time since the last cleanup ended; negative is unknown and counts as too long.
	SinceCleanup time.Duration
	// Compaction is what joining small base files would amount to, and CompactFiles how many saved files make it due; 0 is
	// never.
	Compaction   compaction.Backlog
	CompactFiles int64
}

// Need says whether one kind of maintenance is worth a turn.
type Need struct {
	Due      bool
	Critical bool    // writers will be refused unless it is done
	Score    float64 // 1 and more is due
	Note     string  // why, for people
}

// Needs are what a table needs.
type Needs struct {
	Checkpoint, Cleanup, Compaction Need
}

// Due says what maintenance a table needs.
func Due(s State) Needs {
	return Needs{Checkpoint: s.checkpoint(), Cleanup: s.cleanup(), Compaction: s.compaction()}
}

// checkpoint: versions since the last checkpoint, against the table's interval. Version 0 counts as a checkpoint: a log of
// a few versions needs none.
func (s State) checkpoint() Need {
	since := s.Version - max(s.Checkpoint, 0)
	score := float64(since) / float64(max(s.CheckpointEvery, 1))
	return Need{
		Due: score >= 1, Score: score,
		Note: fmt.Sprintf("%d versions since the last checkpoint, with an interval of %d", since, s.CheckpointEvery),
	}
}

// cleanup: the shard that has most to trim, or all shards together, or time.
func (s State) cleanup() Need {
	need := Need{
		Score:    max(float64(s.UntrimmedMost)/shardmanifest.TrimDue, float64(s.Untrimmed)/trimDueTable),
		Critical: s.UntrimmedMost >= shardmanifest.TrimCritical,
		Note:     fmt.Sprintf("%d merged generations are not trimmed, %d of them of one shard", s.Untrimmed, s.UntrimmedMost),
	}
	byTime := float64(s.SinceCleanup) / float64(cleanupEvery)
	switch {
	case s.SinceCleanup < 0:
		need.Score, need.Note = max(need.Score, 1), "no cleanup is known of; "+need.Note
	case byTime >= 1 && byTime > need.Score:
		need.Score, need.Note = byTime, fmt.Sprintf("%v since the last cleanup; %s", s.SinceCleanup.Round(time.Minute), need.Note)
	}
	need.Due = need.Score >= 1
	return need
}

// compaction: files that would be saved, against the policy.
func (s State) compaction() Need {
	b := s.Compaction
	if s.CompactFiles <= 0 {
		return Need{Note: "the policy says never"}
	}
	score := float64(b.Saved()) / float64(s.CompactFiles)
	return Need{
		Due: score >= 1, Score: score,
		Note: fmt.Sprintf("%d small files of %d bytes would become %d", b.Files, b.Bytes, b.Bins),
	}
}
