package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"golang.org/x/sync/errgroup"

	"tidemark/writer"
)

// recordsAhead is how many records are read while earlier ones are routed and sealed.
const recordsAhead = 4

// upsert routes every row to its bucket. One goroutine reads, so that decoding and sealing overlap; order is kept.
func (l *load) upsert(ctx context.Context) error {
	router, err := writer.OpenRouterWith(ctx, l.deps.Config, l.deps.Writer)
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	records := make(chan arrow.Record, recordsAhead)
	group.Go(func() error { return l.read(running, records) })
	group.Go(func() error { return l.route(running, router, records) })
	if err := group.Wait(); err != nil {
		unsealed, inDoubt, failed := router.Abandon()
		generation(unsealed).release()
		generation(inDoubt).release()
		return l.overtaken(errors.Join(err, failed))
	}
	return l.overtaken(router.Close(ctx))
}

// read closes the channel only when the source has come to its end.
func (l *load) read(ctx context.Context, records chan<- arrow.Record) error {
	for {
		rec, err := l.src.Next(ctx)
		if err == io.EOF {
			close(records)
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case records <- rec:
		case <-ctx.Done():
			rec.Release()
			return context.Cause(ctx)
		}
	}
}

func (l *load) route(ctx context.Context, router *writer.Router, records <-chan arrow.Record) error {
	rows := int64(0) // routed and not sealed
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case rec, ok := <-records:
			if !ok && rows > 0 {
				return l.sealAll(ctx, router)
			}
			if !ok {
				return nil
			}
			err := l.routeRecord(ctx, router, rec, &rows)
			rec.Release()
			if err != nil {
				return err
			}
		}
	}
}

// routeRecord appends a record, and seals all buckets whenever so many rows are waiting, or as many as fit.
func (l *load) routeRecord(ctx context.Context, router *writer.Router, rec arrow.Record, rows *int64) error {
	atOnce := int64(l.plan.RowsPerGeneration) * int64(l.plan.Table.Buckets)
	for from := int64(0); from < rec.NumRows(); {
		to := min(rec.NumRows(), from+atOnce-*rows)
		part := rec.NewSlice(from, to)
		err := router.Append(ctx, part)
		if errors.Is(err, writer.ErrBufferFull) && *rows > 0 {
			if err = l.sealAll(ctx, router); err == nil {
				*rows = 0
				err = router.Append(ctx, part)
			}
		}
		part.Release()
		if err != nil {
			return err
		}
		*rows += to - from
		from = to
		if *rows == atOnce {
			if err := l.sealAll(ctx, router); err != nil {
				return err
			}
			*rows = 0
		}
	}
	return nil
}

func (l *load) sealAll(ctx context.Context, router *writer.Router) error {
	_, err := settled(ctx, func(ctx context.Context) (struct{}, error) {
		sealed, err := router.Seal(ctx)
		for _, s := range sealed {
			l.sealed(s)
		}
		return struct{}{}, err
	})
	return err
}

// overtaken turns being fenced into what it means for the user.
func (l *load) overtaken(err error) error {
	fenced := (*writer.FencedError)(nil)
	if !errors.As(err, &fenced) || fenced.Retired {
		return err
	}
	generation(fenced.Unsealed).release()
	generation(fenced.InDoubt).release()
	return fmt.Errorf("table %s: %w: writer %s claimed %s; what was sealed before stays and will be merged; run this ingest again once the other one is done: %w",
		l.plan.Table.Name, ErrOvertaken, fenced.By, fenced.Shard, err)
}
