package maintain

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"tidemark/internal/table"
)

// Report is what maintenance has done.
type Report struct {
	Table, TableID     string
	GenerationsTrimmed int
	ObjectsDeleted     map[Kind]int
	BytesDeleted       int64
	CheckpointVersion  int64 // that was written, or was there already; -1 if none was asked for
	Skipped            []Skipped
	More               bool // another cleanup has more to do
}

// Cleanup trims, deletes and cleans the log. It stops at the first error; what is done stays done, and calling it again
// goes on. The report tells what was done also when there is an error.
func Cleanup(ctx context.Context, d Deps, name string) (Report, error) {
	p, t, err := plan(ctx, d, name)
	if err != nil {
		return Report{}, err
	}
	r := Report{
		Table: name, TableID: t.ID, ObjectsDeleted: map[Kind]int{}, CheckpointVersion: -1, Skipped: p.Skipped, More: p.More,
	}
	if err := r.apply(ctx, d, t, p); err != nil {
		return r, fmt.Errorf("table %s: cleanup: %w", name, err)
	}
	return r, nil
}

func (r *Report) apply(ctx context.Context, d Deps, t *table.Table, p Plan) error {
	if err := sideBySide(ctx, p.Trims, func(ctx context.Context, trim Trim) error {
		_, err := chain(d, t, trim.Shard).Trim(ctx, trim.Through)
		return err
	}, func(trim Trim) {
		r.GenerationsTrimmed += trim.Generations
		d.progress()
	}); err != nil {
		return err
	}
	if err := r.delete(ctx, d, p.Deletions); err != nil {
		return err
	}
	deleted, err := t.Log.CleanLog(ctx, t.Snapshot)
	r.ObjectsDeleted[LogFile] += deleted
	return err
}

func (r *Report) delete(ctx context.Context, d Deps, deletions []Deletion) error {
	return sideBySide(ctx, deletions, func(ctx context.Context, one Deletion) error {
		if err := d.Store.Delete(ctx, one.Key); err != nil {
			return fmt.Errorf("delete %s: %w", one.Key, err)
		}
		return nil
	}, func(one Deletion) {
		r.ObjectsDeleted[one.Kind]++
		r.BytesDeleted += one.Bytes
		d.progress()
	})
}

// sideBySide does something with every item, several at once, and notes one after the other what is done. After the first
// error no more is begun.
func sideBySide[T any](ctx context.Context, items []T, do func(context.Context, T) error, done func(T)) error {
	var mu sync.Mutex // held by done
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(requestsAtOnce)
	for _, item := range items {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := do(ctx, item); err != nil { // what is under way is not cancelled: it may well be done
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			done(item)
			return nil
		})
	}
	return g.Wait()
}

// Checkpoint writes the checkpoint of the table's newest version, unless it is there.
func Checkpoint(ctx context.Context, d Deps, name string) (Report, error) {
	t, err := table.Load(ctx, d.Store, name, d.table())
	if err != nil {
		return Report{}, err
	}
	if err := t.Log.Checkpoint(ctx, t.Snapshot); err != nil {
		return Report{}, err
	}
	d.progress()
	return Report{Table: name, TableID: t.ID, ObjectsDeleted: map[Kind]int{}, CheckpointVersion: t.Snapshot.Version}, nil
}
