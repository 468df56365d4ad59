package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/writer"
)

// shard is one shard being written.
type shard struct {
	run     *run
	table   string
	name    string
	w       *writer.Writer
	pending int // rows appended and not sealed
	since   time.Duration
	written int64 // rows sealed
}

func (r *run) shard(table, name string) *shard { return &shard{run: r, table: table, name: name} }

func claim(ctx context.Context, shards ...*shard) error {
	for _, s := range shards {
		config := s.run.deps.Config
		config.Table, config.Shard = s.table, s.name
		if config.Label == "" {
			config.Label = "demo"
		}
		var err error
		if s.w, err = writer.ClaimWith(ctx, config, s.run.deps.Writer); err != nil {
			return err
		}
		s.since = s.run.deps.Writer.Clock.Mono()
	}
	return nil
}

// append waits for executors to catch up if the shard is backlogged; if ctx ends meanwhile, the rows are taken all the
// same.
func (s *shard) append(ctx context.Context, rec arrow.Record) error {
	err := s.w.Append(ctx, rec)
	if err != nil && context.Cause(ctx) != nil {
		ctx, cancel := uncancelled(ctx)
		defer cancel()
		err = s.w.Append(ctx, rec)
	}
	if errors.Is(err, writer.ErrBufferFull) {
		if err = s.seal(ctx); err == nil {
			err = s.w.Append(ctx, rec)
		}
	}
	if err == nil {
		s.pending += int(rec.NumRows())
	}
	return err
}

func (s *shard) sealIfDue(ctx context.Context) error {
	if s.pending < s.run.options.SealRows && s.run.deps.Writer.Clock.Mono()-s.since < s.run.options.SealEvery {
		return nil
	}
	return s.seal(ctx)
}

// seal seals what is buffered, if anything is, and settles it.
func (s *shard) seal(ctx context.Context) error {
	s.since = s.run.deps.Writer.Clock.Mono()
	if s.pending == 0 {
		return nil
	}
	for try := 1; ; try++ {
		sealed, err := s.w.Seal(ctx)
		if errors.Is(err, writer.ErrInDoubt) && try < sealTries {
			continue
		}
		if err != nil {
			return err
		}
		s.pending = 0
		s.written += sealed.Rows
		s.run.sealed(sealed)
		return nil
	}
}

func (r *run) sealed(s writer.Sealed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.Rows += s.Rows
	r.progress.Generations++
	if r.options.OnProgress != nil {
		r.options.OnProgress(r.progress)
	}
}

// finish seals what is left and gives the shards back, also when the demo was stopped. After any other error it gives
// them up.
func finish(ctx context.Context, err error, shards ...*shard) error {
	stopped := err != nil && context.Cause(ctx) != nil
	if stopped {
		var cancel context.CancelFunc
		ctx, cancel = uncancelled(ctx)
		defer cancel()
	}
	errs := []error{err}
	for _, s := range shards {
		if s.w == nil {
			continue
		}
		if err == nil || stopped {
			failed := s.seal(ctx)
			if failed == nil {
				failed = s.w.Close(ctx)
			}
			if failed == nil {
				continue
			}
			errs = append(errs, fmt.Errorf("table %s: the last rows of shard %s are not sealed: %w", s.table, s.name, failed))
		}
		errs = append(errs, s.abandon())
	}
	return errors.Join(errs...)
}

func (s *shard) abandon() error {
	unsealed, inDoubt, err := s.w.Abandon()
	for _, rec := range append(unsealed, inDoubt...) {
		rec.Release()
	}
	return err
}

func uncancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
}
