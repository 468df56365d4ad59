package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/ingest"
	"tidemark/internal/schema"
	"tidemark/internal/table"
)

// replay writes the rows of files to a new append table, dealt over the writers record by record.
func (r *run) replay(ctx context.Context) (_ Expectation, err error) {
	var inputs []ingest.Input
	for _, file := range r.options.Files {
		inputs = append(inputs, ingest.File(file))
	}
	src, err := ingest.Open(ctx, ingest.Options{Sanitize: true, Mem: r.deps.Writer.Mem}, inputs...)
	if err != nil {
		return Expectation{}, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	t, err := newTable(ctx, r.deps.Writer.Store, r.tableDeps(), replayTable(r.options.Files[0]), src.Schema(), table.CreateOptions{})
	if err != nil {
		return Expectation{}, err
	}
	expected := TableExpectation{Table: t.Name}
	var mu sync.Mutex // guards expected
	group, ctx := errgroup.WithContext(ctx)
	records := make(chan arrow.Record)
	group.Go(func() error { return r.read(ctx, src, records) })
	for i := range r.options.Writers {
		group.Go(func() error {
			s := r.shard(t.Name, fmt.Sprintf("writer-%d", i))
			sum, err := r.writeReplayed(ctx, s, t.Schema.Arrow(), records)
			mu.Lock()
			defer mu.Unlock()
			expected.Sum = expected.Sum.Plus(sum)
			expected.Written += s.written
			return err
		})
	}
	err = group.Wait()
	return Expectation{Tables: []TableExpectation{expected}}, err
}

// read hands out the records of the source, cut to the pace, and closes the channel at their end.
func (r *run) read(ctx context.Context, src *ingest.Source, records chan<- arrow.Record) error {
	pace := r.newPace()
	pace.rate = r.options.Rate // one reader feeds all writers
	made := int64(0)
	for r.options.Rows == 0 || made < r.options.Rows {
		rec, err := src.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		for from := int64(0); from < rec.NumRows() && err == nil; {
			n := min(rec.NumRows()-from, pace.batch())
			if r.options.Rows > 0 {
				n = min(n, r.options.Rows-made)
			}
			if n == 0 {
				break
			}
			if err = pace.wait(ctx, made); err == nil {
				err = send(ctx, records, rec.NewSlice(from, from+n))
			}
			made, from = made+n, from+n
		}
		rec.Release()
		if err != nil {
			return err
		}
	}
	close(records)
	return nil
}

func send(ctx context.Context, records chan<- arrow.Record, rec arrow.Record) error {
	select {
	case records <- rec:
		return nil
	case <-ctx.Done():
		rec.Release()
		return context.Cause(ctx)
	}
}

// writeReplayed is one writer. The sum is that of the rows as the table will hold them.
func (r *run) writeReplayed(ctx context.Context, s *shard, shape *arrow.Schema, records <-chan arrow.Record) (total Sum, err error) {
	err = claim(ctx, s)
	for err == nil {
		var rec arrow.Record
		var ok bool
		select {
		case rec, ok = <-records:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if !ok {
			break
		}
		var sum Sum
		if sum, err = r.appendReplayed(ctx, s, shape, rec); err == nil {
			total = total.Plus(sum)
			err = s.sealIfDue(ctx)
		}
		rec.Release()
	}
	return total, finish(ctx, err, s)
}

func (r *run) appendReplayed(ctx context.Context, s *shard, shape *arrow.Schema, rec arrow.Record) (Sum, error) {
	shaped, err := schema.Project(context.WithoutCancel(ctx), r.deps.Writer.Mem, rec, shape)
	if err != nil {
		return Sum{}, err
	}
	defer shaped.Release()
	sum, err := Checksum(shaped)
	if err != nil {
		return Sum{}, err
	}
	return sum, s.append(ctx, shaped)
}
