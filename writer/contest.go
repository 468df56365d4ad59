package writer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tidemark/internal/rowkey"
	"tidemark/internal/shardmanifest"
)

// Two Routers that are opened at once each claim many buckets, and each may be the last to claim some of them. Who has the
// table is settled by one bucket alone:
//
//  1. A Router claims the arbiter first. Whoever claims it later fences it.
//  2. Having claimed further buckets, and before each seal, it looks whether the arbiter is still its own. If not, it has
//     lost the table, and says to whom.
//  3. A Router that is fenced on another bucket although it has the arbiter was fenced by one that has lost the table and
//     does not know it yet, if that one claimed the arbiter before it: it takes the bucket back, and its rows are sealed
//     under the new claim. Whoever else claimed the bucket did so on purpose, and keeps it.
//
// A Router that has lost the table may seal one generation more in between. That is as if it had sealed it before.

const (
	// arbiter is the bucket that settles who has the table.
	arbiter = 0
	// regainsMax bounds how often one seal takes buckets back. Every time, another Router must have claimed them between
	// two of its own looks at the arbiter, and it does so once.
	regainsMax = 4
)

// holdsTable looks whether the arbiter is still ours. If not, the error is that of its writer: a *FencedError with the
// arbiter's rows, or ErrClosed once that was returned.
func (r *Router) holdsTable(ctx context.Context) error {
	w := r.first
	if err := w.lock(ctx); err != nil {
		return err
	}
	defer w.unlock()
	if w.ended != nil {
		return w.ended
	}
	if err := w.hold.Refresh(ctx); err != nil {
		return fmt.Errorf("table %s: look whether another Router has taken it over: %w", r.env.cfg.Table, err)
	}
	if err := w.hold.Admits(); errors.Is(err, ErrFenced) || errors.Is(err, ErrRetired) {
		return w.failed(err)
	}
	return nil
}

// regain takes back the buckets of which a Router that has lost the table has fenced us, and clears their failures. Their
// rows go to the new writers.
func (r *Router) regain(ctx context.Context, buckets []int, failures []error) (again []int) {
	for i, bucket := range buckets {
		var fenced *FencedError
		if !errors.As(failures[i], &fenced) || bucket == arbiter || len(fenced.InDoubt) > 0 || !r.outranks(fenced.byID) ||
			r.holdsTable(ctx) != nil {
			continue
		}
		w, err := r.claimBucket(ctx, bucket)
		if err != nil {
			failures[i] = errors.Join(failures[i], err)
			continue
		}
		for _, rec := range fenced.Unsealed {
			bytes := recordBytes(rec)
			r.room.used.Add(bytes) // it was free until now: these are the rows that had it
			w.take(batch{rec, bytes})
		}
		r.writers[bucket], failures[i] = w, nil
		again = append(again, bucket)
	}
	return again
}

// claimBucket claims a bucket, again if a Router that we outrank claims it in the same moment.
func (r *Router) claimBucket(ctx context.Context, bucket int) (*Writer, error) {
	shard := rowkey.BucketShard(bucket)
	for try := 0; ; try++ {
		id := r.id
		if n := r.claims.Add(1); bucket != arbiter {
			id = fmt.Sprintf("%s.%d", r.id, n) // an id is used once in a shard
		}
		w, err := r.env.claim(ctx, shard, id, r.in, r.room)
		var fenced *shardmanifest.FencedError
		if !errors.As(err, &fenced) {
			return w, err
		}
		if bucket == arbiter || try == regainsMax || !r.outranks(fenced.By.WriterID) {
			return nil, &FencedError{
				Table: r.env.cfg.Table, Shard: shard, By: describe(fenced.By), ByEpoch: fenced.By.Epoch, byID: fenced.By.WriterID,
			}
		}
	}
}

// outranks reports whether a claim is that of a Router that claimed the arbiter before us.
func (r *Router) outranks(writerID string) bool {
	theirs, _, _ := strings.Cut(writerID, ".")
	hold := r.first.hold
	for _, claim := range hold.Manifest().Claims {
		if claim.WriterID == theirs && claim.Epoch < hold.Epoch() {
			return true
		}
	}
	return false
}
