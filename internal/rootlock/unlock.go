package rootlock

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

// ErrNotLocked: nobody holds the root.
var ErrNotLocked = errors.New("nobody holds it")

// UnlockOptions are what unlocking needs. All but Dir are required.
type UnlockOptions struct {
	Store  objstore.Store
	Clock  clock.Clock
	Random random.Source
	Holder string // who unlocks, for people
	Dir    string // of a local root; empty elsewhere
}

// Unlock takes the root from the holder whose lock has exactly this id, and from nobody else. It is for a person who
// knows that the holder is stopped for good. A holder that lives all the same stops when it next looks: a standalone
// server before its next sign of life, masters within 30 s. On a local root a holder that lives is refused.
func Unlock(ctx context.Context, o UnlockOptions, id string) (was Record, err error) {
	found, etag, err := Read(ctx, o.Store)
	switch {
	case err != nil:
		return Record{}, err
	case found == nil || found.Kind == Released:
		return Record{}, fmt.Errorf("root %s is not locked: %w", o.Store.URL(), ErrNotLocked)
	case found.ID != id:
		return Record{}, &HeldError{Root: o.Store.URL(), Record: *found, Reason: fmt.Sprintf("and not by id %s", id)}
	}
	if o.Dir != "" {
		lock, err := Lock(ctx, o.Store, o.Dir, true)
		if err != nil {
			return Record{}, err
		}
		defer lock.Unlock()
	}
	options := Options{Store: o.Store, Clock: o.Clock, Random: o.Random, Holder: o.Holder}
	if found.LeaseMS != 0 {
		if r := putClaim(ctx, options, id); r.Err != nil && !errors.Is(r.Err, objstore.ErrExists) {
			return Record{}, fmt.Errorf("unlocking root %s: %w", o.Store.URL(), r.Err)
		}
	}
	released := options.record(Released, id)
	released.Cluster = found.Cluster
	switch a := replace(ctx, o.Store, released, etag, options.retry()); a.Kind {
	case Done:
		return *found, nil
	case Lost:
		return Record{}, fmt.Errorf("root %s has changed hands meanwhile; run `tidemark root show` and look again", o.Store.URL())
	default:
		return Record{}, fmt.Errorf("unlocking root %s: %w; run `tidemark root show` before you try again", o.Store.URL(), a.Err)
	}
}
