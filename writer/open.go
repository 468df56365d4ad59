package writer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/rowkey"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

// environment is what the writers of one table share.
type environment struct {
	cfg   Config
	deps  Deps
	table *table.Table // as loaded when the environment was opened
	close func() error // frees what was opened here

	mu       sync.Mutex         // guards snapshot
	snapshot *deltalog.Snapshot // the newest seen
}

// open checks the configuration, makes what deps lack and loads the table.
func open(ctx context.Context, c Config, d Deps) (*environment, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	env := &environment{cfg: c, deps: d, close: func() error { return nil }}
	if err := env.connect(ctx); err != nil {
		return nil, err
	}
	env.table, err = table.Load(ctx, env.deps.Store, c.Table, table.Deps{Clock: env.deps.Clock, Random: env.deps.Random})
	if err == nil {
		err = env.table.Mergeable()
	}
	if err != nil {
		return nil, errors.Join(err, env.close())
	}
	env.snapshot = env.table.Snapshot
	return env, nil
}

// connect fills in the deps that were not given.
func (env *environment) connect(ctx context.Context) error {
	d, c := &env.deps, env.cfg
	if d.Clock == nil {
		d.Clock = clock.System()
	}
	if d.Random == nil {
		d.Random = random.New()
	}
	if d.Mem == nil {
		d.Mem = memory.DefaultAllocator
	}
	if d.Store == nil {
		store, err := objstore.Open(ctx, c.Root, objstore.Options{
			Clock: d.Clock, Random: d.Random, Log: hclog.NewNullLogger(), S3: objstore.S3Options(c.S3),
		})
		if err != nil {
			return err
		}
		d.Store = store
	}
	if d.Publisher == nil && len(c.Etcd) > 0 {
		publisher, err := dialPublisher(ctx, c, *d)
		if err != nil {
			return err
		}
		d.Publisher, env.close = publisher, publisher.close
	}
	return nil
}

// intake makes the shape that records are brought into.
func (env *environment) intake() (*intake, error) {
	t := env.table
	return newIntake(t.Name, env.deps.Mem, t.Mode == table.Upsert, t.Key, t.Sequence, t.Buckets, t.Schema, t.Snapshot.Metadata.PartitionColumns)
}

// claim takes a shard:
//
//  1. Check that the table can have the shard.
//  2. Claim it in its manifest.
//  3. Only then look at the table again. If its name has another life by now, or none, the shard is one that nobody will
//     ever merge: retire it.
//
// id is the random id of the claim; empty draws one.
func (env *environment) claim(ctx context.Context, shard, id string, in *intake, r *room) (*Writer, error) {
	bucket := -1
	if env.table.Mode == table.Upsert {
		var err error
		if bucket, err = rowkey.ParseBucketShard(shard, env.table.Buckets); err != nil {
			return nil, fmt.Errorf("table %s: %w", env.cfg.Table, err)
		}
	}
	chain := shardmanifest.Open(env.deps.Store, env.cfg.Table, env.table.ID, shard,
		shardmanifest.Options{Clock: env.deps.Clock, Random: env.deps.Random})
	hold, err := chain.Claim(ctx, shardmanifest.ClaimOptions{WriterID: id, Label: env.cfg.Label, IfFree: env.cfg.IfFree})
	if err != nil {
		return nil, err
	}
	snapshot, err := env.refresh(ctx)
	if err == nil {
		err = env.sameLife(snapshot)
		if err != nil {
			_, failed := chain.Retire(ctx)
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("shard %s of table %s: look at the table after claiming: %w", shard, env.cfg.Table, err)
	}
	w := &Writer{env: env, shard: shard, hold: hold, turn: make(chan struct{}, 1), in: in, room: r, bucket: bucket}
	w.backlog.sealed(env, shard, hold.Manifest())
	w.backlog.seen(shard, snapshot)
	return w, nil
}

// sameLife fails unless a snapshot is of the life of the table that the environment was opened for.
func (env *environment) sameLife(snapshot *deltalog.Snapshot) error {
	switch {
	case snapshot.Metadata.Configuration[deltalog.PropertyDropped] != "":
		return table.ErrDropped
	case snapshot.Metadata.ID != env.table.ID:
		return fmt.Errorf("%w and created again since it was opened; open it again", table.ErrDropped)
	}
	return nil
}

// refresh brings the snapshot of the table's log up to date. It is safe for concurrent use.
func (env *environment) refresh(ctx context.Context) (*deltalog.Snapshot, error) {
	env.mu.Lock()
	known := env.snapshot
	env.mu.Unlock()
	fresh, err := env.table.Log.Refresh(ctx, known)
	if err != nil {
		return nil, err
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	if fresh.Version > env.snapshot.Version {
		env.snapshot = fresh
	}
	return fresh, nil
}
