package maintain

import (
	"fmt"
	"time"

	"tidemark/internal/deltalog"
	"tidemark/internal/shardmanifest"
)

const (
	// cleanupEvery is how long the leftovers of crashed executions and old manifests may lie about although no shard
	// asks for cleanup. Base data files are not swept before they are a day old anyway.
	cleanupEvery = 24 * time.Hour

	// trimDueTable is the number of merged generations of all shards together at which cleanup is due: a table of
	// many shards would otherwise list every one of them for ever.
	trimDueTable = 8 * shardmanifest.TrimDue
)

// Need says whether one kind of maintenance is worth a turn.
type Need struct {
	Due      bool
	Critical bool    // writers will be refused unless it is done
	Score    float64 // 1 and more is due
	Note     string  // why, for people
}

// Needs are what a table needs.
type Needs struct {
	Checkpoint, Cleanup Need
}

// Due says what maintenance a table needs, from its snapshot, the newest manifests of its shards and the time since its
// last cleanup; a negative time is unknown and counts as too long.
func Due(snapshot *deltalog.Snapshot, manifests []*shardmanifest.Manifest, sinceCleanup time.Duration) (Needs, error) {
	properties, err := deltalog.ParseProperties(snapshot.Metadata.Configuration)
	if err != nil {
		return Needs{}, fmt.Errorf("table %s: %w", snapshot.Table(), err)
	}
	return Needs{
		Checkpoint: checkpointNeed(snapshot.Version, snapshot.Checkpoint, properties.CheckpointInterval),
		Cleanup:    cleanupNeed(snapshot, manifests, sinceCleanup),
	}, nil
}

// checkpointNeed: versions since the last checkpoint, against the table's interval. Version 0 counts as a checkpoint: a
// log of a few versions needs none.
func checkpointNeed(version, checkpoint, interval int64) Need {
	since := version - max(checkpoint, 0)
	score := float64(since) / float64(interval)
	return Need{Due: score >= 1, Score: score, Note: fmt.Sprintf("%d versions since the last checkpoint, interval %d", since, interval)}
}

// cleanupNeed: the shard that has most to trim, or all shards together, or time.
func cleanupNeed(snapshot *deltalog.Snapshot, manifests []*shardmanifest.Manifest, since time.Duration) Need {
	total, most, shard := 0, 0, ""
	for _, m := range manifests {
		n := m.Mergeable(uint64(max(0, snapshot.Mark(m.Shard))))
		total += n
		if n > most {
			most, shard = n, m.Shard
		}
	}
	need := Need{
		Score:    max(float64(most)/shardmanifest.TrimDue, float64(total)/trimDueTable),
		Critical: most >= shardmanifest.TrimCritical,
		Note:     fmt.Sprintf("%d merged generations are not trimmed, %d of them of shard %q", total, most, shard),
	}
	if byTime := float64(since) / float64(cleanupEvery); since < 0 {
		need.Score, need.Note = max(need.Score, 1), "no cleanup is known of; "+need.Note
	} else if byTime >= 1 && byTime > need.Score {
		need.Score, need.Note = byTime, fmt.Sprintf("%v since the last cleanup; %s", since.Round(time.Minute), need.Note)
	}
	need.Due = need.Score >= 1
	return need
}
