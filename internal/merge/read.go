package merge

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"tidemark/internal/deltalog"
	"tidemark/internal/rowkey"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

const (
	// manifestsAtOnce is how many manifests are read side by side.
	manifestsAtOnce = 8
	// livesMax bounds how often a table may be dropped and created again while it is being read.
	livesMax = 3
)

// read finds out what is pending: the manifests first, then the snapshot, so that no generation is taken for pending
// that the snapshot has merged, nor one for missing that was trimmed in between.
func (x *execution) read(ctx context.Context) ([]backlog, error) {
	for range livesMax {
		first, err := x.Tables.Load(ctx, x.req.Table)
		if err != nil {
			return nil, err
		}
		manifests, err := x.manifests(ctx, first.ID)
		if err != nil {
			return nil, err
		}
		now, err := x.Tables.Load(ctx, x.req.Table)
		if err != nil {
			return nil, err
		}
		if now.ID != first.ID {
			continue
		}
		if err := x.adopt(now); err != nil {
			return nil, err
		}
		return x.backlogs(ctx, manifests)
	}
	return nil, fmt.Errorf("the table was dropped and created again %d times while its shards were read", livesMax)
}

// adopt makes a view of the table the one that plans are made from.
func (x *execution) adopt(t *table.Table) error {
	properties, err := deltalog.ParseProperties(t.Snapshot.Metadata.Configuration)
	if err != nil {
		return err
	}
	if x.table != nil && x.table.ID != t.ID {
		clear(x.shards) // of the table's former life
		clear(x.missing)
	}
	x.table, x.properties = t, properties
	x.out.TableID, x.out.Incarnation = t.ID, t.Incarnation
	x.lifetime = properties.DeletedFileRetention / 2
	x.store.SetDeadline(x.began.mono + x.lifetime)
	return nil
}

// manifests reads the newest manifest of every requested shard that exists in this life of the table.
func (x *execution) manifests(ctx context.Context, tableID string) (map[string]*shardmanifest.Manifest, error) {
	found := make([]*shardmanifest.Manifest, len(x.req.Shards))
	damaged := make([]error, len(x.req.Shards))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(manifestsAtOnce)
	for i, name := range x.req.Shards {
		g.Go(func() error {
			chain := shardmanifest.Open(x.store, x.req.Table, tableID, name, shardmanifest.Options{Clock: x.Clock, Random: x.Random})
			m, err := chain.Latest(gctx)
			switch {
			case err == nil:
				found[i] = m
			case errors.Is(err, shardmanifest.ErrNoShard):
			case errors.Is(err, shardmanifest.ErrDamaged), errors.Is(err, shardmanifest.ErrFormat):
				damaged[i] = err
			default:
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := map[string]*shardmanifest.Manifest{}
	for i, name := range x.req.Shards {
		if found[i] != nil {
			out[name] = found[i]
		}
		if damaged[i] != nil {
			x.fail(&Error{Table: x.req.Table, Shard: name, Code: CodeShardDamaged, Class: Data, Err: damaged[i]})
		}
	}
	return out, nil
}

// backlogs compares manifests with the snapshot's marks.
func (x *execution) backlogs(ctx context.Context, manifests map[string]*shardmanifest.Manifest) ([]backlog, error) {
	regressed, err := x.regressed(ctx, manifests)
	if err != nil {
		return nil, err
	}
	var out []backlog
	for _, name := range x.req.Shards {
		m, ok := manifests[name]
		if !ok {
			continue
		}
		s := &shard{manifest: m, mark: x.table.Mark(name)}
		if old := x.shards[name]; old != nil {
			s.failure = old.failure
		}
		x.shards[name] = s
		if why, ok := regressed[name]; ok {
			x.fail(&Error{Table: x.req.Table, Shard: name, Code: CodeMarkRegressed, Class: Data, Err: why})
			continue
		}
		if x.table.Mode == table.Upsert {
			if _, err := rowkey.ParseBucketShard(name, x.table.Buckets); err != nil {
				x.fail(&Error{Table: x.req.Table, Shard: name, Code: CodeWrongBucket, Class: Data, Err: err})
				continue
			}
		}
		b, err := newBacklog(name, s.mark, m.Pending(s.mark))
		if err != nil {
			x.fail(&Error{Table: x.req.Table, Shard: name, Code: CodeShardDamaged, Class: Data, Err: err})
			continue
		}
		if b = s.usable(b); len(b.generations) > 0 {
			out = append(out, b)
		}
	}
	return out, nil
}

// regressed finds the shards whose merged mark went down: below what was trimmed, which only happens after a merge, or
// below a mark that this execution has seen. A stale read must not look like it, so a suspicion is confirmed by two
// snapshots in a row that are loaded from storage alone, after the manifests.
func (x *execution) regressed(ctx context.Context, manifests map[string]*shardmanifest.Manifest) (map[string]error, error) {
	suspects := x.suspects(manifests)
	for range 2 {
		if len(suspects) == 0 {
			return nil, nil
		}
		x.Tables.Forget(x.req.Table)
		t, err := x.Tables.Load(ctx, x.req.Table)
		if err != nil {
			return nil, err
		}
		if t.ID != x.table.ID {
			return nil, &deltalog.PlanAgainError{Table: x.req.Table, Reason: "it was dropped and created again"}
		}
		if err := x.adopt(t); err != nil {
			return nil, err
		}
		suspects = x.suspects(manifests)
	}
	return suspects, nil
}

func (x *execution) suspects(manifests map[string]*shardmanifest.Manifest) map[string]error {
	const remedy = "somebody expired the table's transactions or replaced its log, and merging now would repeat rows; " +
		"restore the log, or retire the shard and load its rows again"
	out := map[string]error{}
	for name, m := range manifests {
		mark := x.table.Mark(name)
		if mark < m.TrimmedThrough {
			out[name] = fmt.Errorf("the merged mark is %d, but generations up to %d were merged and cleaned up: %s", mark, m.TrimmedThrough, remedy)
		} else if seen := x.shards[name]; seen != nil && mark < seen.mark {
			out[name] = fmt.Errorf("the merged mark is %d, and was %d before: %s", mark, seen.mark, remedy)
		}
	}
	return out
}
