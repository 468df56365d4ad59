package table

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/shardmanifest"
)

// Drop removes a table: one commit removes its files and marks the log as dropped, then its shards are retired. The data
// files stay until their retention has passed. Dropping what is dropped already retires the shards that are left, so a
// drop that was interrupted can be repeated.
func Drop(ctx context.Context, s objstore.Store, name string, d Deps) error {
	if err := CheckName(name); err != nil {
		return err
	}
	log := d.open(s, name)
	for range planRounds {
		snapshot, err := log.Snapshot(ctx)
		if errors.Is(err, deltalog.ErrNoTable) {
			return unknown(ctx, s, name)
		}
		if err != nil {
			return err
		}
		if !Adopted(snapshot.Metadata) {
			return fmt.Errorf("table %s: %w", name, ErrNotAdopted)
		}
		if snapshot.Metadata.Configuration[deltalog.PropertyDropped] == "" {
			err = commitDrop(ctx, log, snapshot, d.Clock.Now())
		}
		var again *deltalog.PlanAgainError
		if errors.As(err, &again) {
			continue
		}
		if err != nil {
			return err
		}
		return retire(ctx, s, name, snapshot.Metadata.ID, d)
	}
	return fmt.Errorf("table %s: not dropped: others keep committing to it; pause it and try again", name)
}

func commitDrop(ctx context.Context, log *deltalog.Log, snapshot *deltalog.Snapshot, at time.Time) error {
	m := snapshot.Metadata
	m.Configuration = maps.Clone(m.Configuration)
	m.Configuration[deltalog.PropertyDropped] = strconv.FormatInt(at.UnixMilli(), 10)
	delete(m.Configuration, "delta.appendOnly") // which would forbid it
	in := deltalog.Intent{
		TableID: m.ID, Read: snapshot, Metadata: &m, Whole: true, Info: deltalog.CommitInfo{Operation: "DROP TABLE"},
	}
	for f := range snapshot.Files() {
		in.Removes = append(in.Removes, deltalog.Remove{Path: f.Path, DataChange: true})
	}
	_, err := log.Commit(ctx, in)
	return err
}

// retire ends all shards of one life of a table.
func retire(ctx context.Context, s objstore.Store, name, id string, d Deps) error {
	shards, err := shardmanifest.ListShards(ctx, s, name, id)
	if err != nil {
		return fmt.Errorf("table %s is dropped, but its shards could not be listed; drop it again: %w", name, err)
	}
	var failed error
	for _, shard := range shards {
		chain := shardmanifest.Open(s, name, id, shard, shardmanifest.Options{Clock: d.Clock, Random: d.Random})
		if _, err := chain.Retire(ctx); err != nil && !errors.Is(err, shardmanifest.ErrRetired) && !errors.Is(err, shardmanifest.ErrNoShard) {
			failed = errors.Join(failed, fmt.Errorf("table %s is dropped, but shard %s is not retired; drop it again: %w", name, shard, err))
		}
	}
	return failed
}
