package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow/go/v17/arrow"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/columns"
	"tidemark/internal/random"
	"tidemark/internal/rowkey"
	"tidemark/internal/table"
)

// Router writes to an upsert table: it files every row under the bucket of its key. Of two Routers on one table the one
// opened later has it, and the earlier one is fenced as a whole. A bucket is claimed when the first row for it arrives,
// which fences whoever else wrote to that bucket. It is safe for concurrent use; calls are served one at a time.
type Router struct {
	env    *environment
	id     string        // of its claims; those that take a bucket back add a number, see contest.go
	claims atomic.Int64  // made so far
	turn   chan struct{} // as in Writer; whoever has it may touch what follows

	first   *Writer // of the arbiter
	in      *intake
	room    *room
	writers map[int]*Writer // by bucket; those that were fenced stay
	closed  bool
}

// OpenRouter opens an upsert table for writing. Config.Shard must be empty.
func OpenRouter(ctx context.Context, c Config) (*Router, error) {
	return OpenRouterWith(ctx, c, Deps{})
}

// OpenRouterWith is OpenRouter for programs of this module.
func OpenRouterWith(ctx context.Context, c Config, d Deps) (*Router, error) {
	env, err := open(ctx, c, d)
	if err != nil {
		return nil, err
	}
	r, err := newRouter(env)
	if err == nil {
		r.first, err = r.claimBucket(ctx, arbiter)
	}
	if err != nil {
		return nil, errors.Join(err, env.close())
	}
	r.writers[arbiter] = r.first
	return r, nil
}

func newRouter(env *environment) (*Router, error) {
	switch {
	case env.table.Mode != table.Upsert:
		return nil, fmt.Errorf("table %s is an append table: claim a shard of it with writer.Claim", env.cfg.Table)
	case env.cfg.Shard != "":
		return nil, fmt.Errorf("table %s: a Router claims buckets itself; leave Shard empty instead of %q", env.cfg.Table, env.cfg.Shard)
	}
	in, err := env.intake()
	if err != nil {
		return nil, err
	}
	return &Router{
		env: env, id: random.ID(env.deps.Random), turn: make(chan struct{}, 1), in: in, room: &room{max: env.cfg.BufferBytes}, writers: make(map[int]*Writer),
	}, nil
}

func (r *Router) lock(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.closed {
		r.unlock()
		return fmt.Errorf("table %s: %w", r.env.cfg.Table, ErrClosed)
	}
	return nil
}

func (r *Router) unlock() { <-r.turn }

// Append checks a record and buffers its rows under their buckets; all of them or, on an error, none. It waits for or
// refuses buckets with a backlog, and refuses a record that does not fit, as Writer.Append does. If the writer of a
// bucket has been fenced, rows for it are refused with ErrClosed.
func (r *Router) Append(ctx context.Context, rec arrow.Record) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	if rec.NumRows() == 0 {
		return nil
	}
	before := *r.in
	parts, err := r.split(ctx, rec)
	if err == nil {
		err = r.admit(ctx, parts)
	}
	if err != nil {
		*r.in = before
		for _, p := range parts {
			p.rec.Release()
		}
		return err
	}
	for bucket, p := range parts {
		r.writers[bucket].take(p)
	}
	return nil
}

// split brings a record into the table's shape and cuts it by bucket, keeping the order of rows.
func (r *Router) split(ctx context.Context, rec arrow.Record) (map[int]batch, error) {
	shaped, err := r.in.take(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer shaped.Release()
	rows := make(map[int][]int32)
	for row := range r.in.keys.Len() {
		b := rowkey.Bucket(r.in.keys.At(row), r.in.buckets)
		rows[b] = append(rows[b], int32(row))
	}
	parts := make(map[int]batch, len(rows))
	for bucket, indices := range rows {
		part, err := columns.Take(ctx, r.in.mem, shaped, indices)
		if err != nil {
			return parts, err
		}
		parts[bucket] = batch{part, recordBytes(part)}
	}
	return parts, nil
}

// admit claims the buckets that are new, and takes the room for all parts or for none.
func (r *Router) admit(ctx context.Context, parts map[int]batch) error {
	buckets := make([]int, 0, len(parts))
	var bytes int64
	for bucket, p := range parts {
		buckets = append(buckets, bucket)
		bytes += p.bytes
	}
	slices.Sort(buckets)
	if err := r.claim(ctx, buckets); err != nil {
		return err
	}
	for _, bucket := range buckets {
		if err := r.writers[bucket].admit(ctx); err != nil {
			return err
		}
	}
	return r.room.reserve(r.env, bytes)
}

// claim claims those of the buckets that are not claimed yet. Then the table must still be this Router's.
func (r *Router) claim(ctx context.Context, buckets []int) error {
	var mu sync.Mutex // guards r.writers while the claims run
	group, claiming := errgroup.WithContext(ctx)
	group.SetLimit(claimsAtOnce)
	missing := slices.DeleteFunc(slices.Clone(buckets), func(bucket int) bool { return r.writers[bucket] != nil })
	for _, bucket := range missing {
		group.Go(func() error {
			w, err := r.claimBucket(claiming, bucket)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			r.writers[bucket] = w
			return nil
		})
	}
	if err := group.Wait(); err != nil || len(missing) == 0 {
		return err
	}
	return r.holdsTable(ctx)
}

// Seal seals the rows of every bucket that has any, as one generation each, and returns those that are sealed in the
// order of their buckets. The error joins those of all buckets that failed; the others are sealed all the same. It holds
// a *FencedError for each bucket that another writer has claimed.
func (r *Router) Seal(ctx context.Context) ([]Sealed, error) {
	if err := r.lock(ctx); err != nil {
		return nil, err
	}
	defer r.unlock()
	return r.seal(ctx)
}

func (r *Router) seal(ctx context.Context) ([]Sealed, error) {
	if err := r.holdsTable(ctx); err != nil {
		return nil, err
	}
	var sealed []Sealed
	buckets := r.buckets()
	failures := r.sealAll(ctx, buckets, &sealed)
	for range regainsMax {
		again := r.regain(ctx, buckets, failures)
		if len(again) == 0 {
			break
		}
		for i, failure := range r.sealAll(ctx, again, &sealed) {
			failures[slices.Index(buckets, again[i])] = failure
		}
	}
	slices.SortFunc(sealed, func(a, b Sealed) int { return strings.Compare(a.Shard, b.Shard) })
	return sealed, errors.Join(failures...)
}

// sealAll seals those of the buckets that have anything to seal, and adds what is sealed. It returns one error, or nil,
// per bucket.
func (r *Router) sealAll(ctx context.Context, buckets []int, sealed *[]Sealed) []error {
	var mu sync.Mutex // guards sealed
	return r.each(buckets, func(w *Writer) error {
		if !w.dirty() {
			return nil
		}
		s, err := w.Seal(ctx)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		*sealed = append(*sealed, s)
		return nil
	})
}

// each calls f for every one of the buckets, some at once, and returns one error, or nil, per bucket.
func (r *Router) each(buckets []int, f func(*Writer) error) []error {
	failures := make([]error, len(buckets))
	var group errgroup.Group
	group.SetLimit(sealsAtOnce)
	for i, bucket := range buckets {
		group.Go(func() error {
			failures[i] = f(r.writers[bucket])
			return nil
		})
	}
	_ = group.Wait() // the failures are kept apart, so that one does not hide another
	return failures
}

func (r *Router) buckets() []int {
	buckets := make([]int, 0, len(r.writers))
	for bucket := range r.writers {
		buckets = append(buckets, bucket)
	}
	slices.Sort(buckets)
	return buckets
}

// Close seals what is buffered and gives all buckets up. After an error the Router is open still: close it again, or
// Abandon it, as one has to that was fenced while it had rows to seal. Being fenced otherwise is no error.
func (r *Router) Close(ctx context.Context) error {
	if err := r.lock(ctx); err != nil {
		if errors.Is(err, ErrClosed) {
			return nil
		}
		return err
	}
	defer r.unlock()
	if r.dirty() {
		if _, err := r.seal(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(r.each(r.buckets(), func(w *Writer) error { return w.Close(ctx) })...); err != nil {
		return err
	}
	r.closed = true
	return r.env.close()
}

// dirty reports whether any bucket has anything to seal or to settle.
func (r *Router) dirty() bool {
	for _, w := range r.writers {
		if w.dirty() {
			return true
		}
	}
	return false
}

// Abandon ends the Router without sealing anything, and hands back what is not sealed and what is in doubt, as
// Writer.Abandon does.
func (r *Router) Abandon() (unsealed, inDoubt []arrow.Record, err error) {
	r.turn <- struct{}{}
	defer r.unlock()
	if r.closed {
		return nil, nil, nil
	}
	r.closed = true
	for _, bucket := range r.buckets() {
		theirs, doubtful, _ := r.writers[bucket].Abandon() // it owns nothing that could fail to close
		unsealed, inDoubt = append(unsealed, theirs...), append(inDoubt, doubtful...)
	}
	return unsealed, inDoubt, r.env.close()
}
