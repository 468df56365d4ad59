package table

import (
	"context"
	"fmt"

	"tidemark/internal/objstore"
	"tidemark/internal/shardmanifest"
)

// ShardState is where one shard of a table stands, as storage has it.
type ShardState struct {
	Manifest *shardmanifest.Manifest
	Merged   uint64 // the merged mark
}

// Pending is the number of generations that are sealed and not merged.
func (s ShardState) Pending() uint64 {
	return s.Manifest.SealedThrough - min(s.Merged, s.Manifest.SealedThrough)
}

// Shards reads a table and where each of its shards stands, in order of their names. The manifests are read before the
// marks, so a shard that has nothing pending had nothing pending when its manifest was read.
func Shards(ctx context.Context, s objstore.Store, name string, d Deps) (*Table, []ShardState, error) {
	t, err := Load(ctx, s, name, d)
	if err != nil {
		return nil, nil, err
	}
	id := t.ID
	var shards []ShardState
	for m, err := range shardmanifest.ListLatest(ctx, s, name, id, nil) {
		if err != nil {
			return nil, nil, err
		}
		shards = append(shards, ShardState{Manifest: m})
	}
	if t, err = Load(ctx, s, name, d); err != nil {
		return nil, nil, err
	}
	if t.ID != id {
		return nil, nil, fmt.Errorf("table %s was dropped and created again while it was read; try again", name)
	}
	for i := range shards {
		shards[i].Merged = t.Mark(shards[i].Manifest.Shard)
	}
	return t, shards, nil
}
