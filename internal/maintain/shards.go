package maintain

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

// Codes of Skipped.
const (
	CodeMarkRegressed = "mark_regressed"
	CodeUnreadable    = "manifest_unreadable"
)

// looks is how many snapshots in a row, loaded after a manifest, must show a mark below it before it counts as regressed.
const looks = 2

// planShards plans every shard of the table's present life, several at once. The marks come from a snapshot that was loaded
// before the manifests are read; a mark that is too old trims less, never too much.
func planShards(ctx context.Context, d Deps, t *table.Table, p *Plan) error {
	var manifests []*shardmanifest.Manifest
	for m, err := range shardmanifest.ListLatest(ctx, d.Store, t.Name, t.ID, nil) {
		var one *shardmanifest.ShardError
		if errors.As(err, &one) {
			p.Skipped = append(p.Skipped, Skipped{one.Shard, CodeUnreadable, one.Err.Error()})
			continue
		}
		if err != nil {
			return err
		}
		manifests = append(manifests, m)
	}
	plans := make([]Plan, len(manifests))
	indexes := make([]int, len(manifests))
	for i := range indexes {
		indexes[i] = i
	}
	if err := sideBySide(ctx, indexes, func(ctx context.Context, i int) error {
		return planShard(ctx, d, t, manifests[i], &plans[i])
	}, func(int) { d.progress() }); err != nil {
		return err
	}
	for _, one := range plans { // in the order of the shards
		p.Skipped = append(p.Skipped, one.Skipped...)
		p.Trims = append(p.Trims, one.Trims...)
		p.Deletions = append(p.Deletions, one.Deletions...)
	}
	return nil
}

// lookAgain reads a mark again, uncached, after the manifest that it seems to contradict.
func lookAgain(ctx context.Context, t *table.Table, shard string) (uint64, error) {
	snapshot, err := t.Log.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	if snapshot.Metadata.ID != t.ID {
		return 0, fmt.Errorf("table %s: %w and created again during cleanup", t.Name, table.ErrDropped)
	}
	return uint64(max(0, snapshot.Mark(shard))), nil
}

// planShard plans one shard.
func planShard(ctx context.Context, d Deps, t *table.Table, m *shardmanifest.Manifest, p *Plan) (err error) {
	mark := t.Mark(m.Shard)
	for range looks {
		if mark >= m.TrimmedThrough {
			break
		}
		if mark, err = lookAgain(ctx, t, m.Shard); err != nil {
			return err
		}
	}
	if mark < m.TrimmedThrough {
		p.Skipped = append(p.Skipped, Skipped{m.Shard, CodeMarkRegressed, fmt.Sprintf(
			"the Delta log says that generations up to %d are merged, and those up to %d were trimmed as merged; "+
				"somebody expired transactions or replaced the log", mark, m.TrimmedThrough)})
		return nil
	}
	if n := m.Mergeable(mark); n > 0 {
		through := m.Generations[n-1]
		p.Trims = append(p.Trims, Trim{Shard: m.Shard, Through: through.Number, Generations: n, Bytes: through.CumBytes - m.TrimmedBytes})
	}
	garbage, err := chain(d, t, m.Shard).Garbage(ctx)
	if err != nil {
		return err
	}
	for _, g := range garbage {
		kind := Generation
		if g.Manifest {
			kind = Manifest
		}
		p.Deletions = append(p.Deletions, Deletion{Kind: kind, Key: g.Key, Bytes: g.Bytes, Why: g.Why})
	}
	return nil
}

func chain(d Deps, t *table.Table, shard string) *shardmanifest.Chain {
	return shardmanifest.Open(d.Store, t.Name, t.ID, shard, shardmanifest.Options{Clock: d.Clock, Random: d.Random})
}
