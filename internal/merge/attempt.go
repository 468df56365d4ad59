package merge

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/deltalog"
	"tidemark/internal/parquetfile"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
)

// attempt turns the plan of one commit into files that are not committed yet.
type attempt struct {
	*execution
	shape          shape
	target         int64 // bytes at which a data file is full
	rowGroupBytes  int64
	indexedColumns int
	partitions     []string // the table's partition columns, which its files do not hold
	lanes          int      // jobs that run side by side
	share          int64    // of the budget, for each of them
}

// divide shares the budget out among the lanes on which so many jobs run.
func (a *attempt) divide(jobs int) {
	a.lanes = lanes(a.req.Budget, min(a.Lanes, jobs))
	a.share = a.req.Budget / int64(a.lanes)
	a.rowGroupBytes = min(max(a.share/16, rowGroupBytesMin), rowGroupBytesMax)
}

// key is the store's key of a path in the table.
func (x *execution) key(path string) string { return x.req.Table + "/" + path }

// job is a part of an attempt that runs by itself: a piece of an append, or a bucket.
type job interface {
	// run writes the job's files. If it fails for some shards alone, the error is their stops.
	run(context.Context) (result, error)
	backlogs() []backlog
	// with is the same job for less, but not for nothing.
	with([]backlog) job
}

// stops are the shards that cannot be merged any further for now, each with the failure of the generation at which it
// stops. They are what a job fails with when the rest can go on without them.
type stops map[string]*Error

func (s stops) Error() string {
	errs := make([]error, 0, len(s))
	for _, shard := range slices.Sorted(maps.Keys(s)) {
		errs = append(errs, s[shard])
	}
	return errors.Join(errs...).Error()
}

// add takes in a failure if it is a shard's own, and keeps the earliest of each shard.
func (s *stops) add(err error) bool {
	var found stops
	var e *Error
	switch {
	case errors.As(err, &found):
	case errors.As(err, &e) && e.Shard != "":
		found = stops{e.Shard: e}
	default:
		return false
	}
	if *s == nil {
		*s = stops{}
	}
	for shard, e := range found {
		if old, ok := (*s)[shard]; !ok || e.Generation < old.Generation {
			(*s)[shard] = e
		}
	}
	return true
}

// cut is what remains of backlogs before the generations at which their shards stop.
func (s stops) cut(backlogs []backlog) (out []backlog, changed bool) {
	for _, b := range backlogs {
		if e, ok := s[b.shard]; ok && b.through() >= e.Generation {
			changed = true
			if e.Generation <= b.mark+1 {
				continue
			}
			b = b.before(e.Generation)
		}
		out = append(out, b)
	}
	return out, changed
}

// execute runs the jobs, as many at once as there are lanes. A job that holds a generation at or past a shard's stop is
// cut there and run again, its files thrown away: nothing of a damaged generation, or of what follows it, may be
// committed. Every pass stops at least one shard at an earlier generation than before, so passes are bounded.
func (a *attempt) execute(ctx context.Context, jobs []job) ([]result, stops, error) {
	var stopped stops
	results := make([]result, len(jobs))
	todo := make([]int, len(jobs))
	for i := range jobs {
		todo[i] = i
	}
	for len(todo) > 0 {
		failures := make([]error, len(jobs))
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(a.lanes)
		for _, i := range todo {
			g.Go(func() (err error) {
				results[i], err = jobs[i].run(gctx)
				if new(stops).add(err) {
					failures[i] = err
					return nil
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, nil, err
		}
		todo = todo[:0]
		for _, err := range failures {
			if err != nil {
				stopped.add(err)
			}
		}
		for i, j := range jobs {
			if j == nil {
				continue
			}
			rest, changed := stopped.cut(j.backlogs())
			if !changed {
				continue
			}
			a.discard(ctx, results[i].adds)
			results[i], jobs[i] = result{}, nil
			if len(rest) > 0 {
				jobs[i] = j.with(rest)
				todo = append(todo, i)
			}
		}
	}
	return results, stopped, nil
}

// discard deletes files that will not be committed. What cannot be deleted now is tried again at the end.
func (a *attempt) discard(ctx context.Context, adds []deltalog.Add) {
	for _, add := range adds {
		if a.mayDelete && a.Store.Delete(ctx, a.key(add.Path)) == nil {
			a.files.forget(a.key(add.Path))
		}
	}
}

// openGeneration opens a generation's file; its checksum is compared when it is read.
func (a *attempt) openGeneration(ctx context.Context, g shardmanifest.Generation) (*parquetfile.Reader, error) {
	return parquetfile.OpenReader(ctx, a.store, a.key(g.Path), parquetfile.ReaderOptions{
		Mem: a.shape.mem, BatchRows: batchRowsMax, Size: g.Bytes, XXH3: g.XXH3,
	})
}

// openBase opens a base file for some of its columns, or for all if they are nil. A file that is older than a column
// does not have it.
func (a *attempt) openBase(ctx context.Context, add deltalog.Add, columns []string) (*parquetfile.Reader, error) {
	options := parquetfile.ReaderOptions{Mem: a.shape.mem, BatchRows: batchRowsMax, Size: add.Size}
	r, err := parquetfile.OpenReader(ctx, a.store, a.key(add.Path), options)
	if err != nil || columns == nil {
		return r, err
	}
	for _, f := range r.Schema().Fields() {
		if slices.Contains(columns, f.Name) {
			options.Columns = append(options.Columns, f.Name)
		}
	}
	switch len(options.Columns) {
	case r.Schema().NumFields():
		return r, nil
	case 0:
		options.Columns = []string{r.Schema().Field(0).Name} // for the number of rows
	}
	_ = r.Close() // it was only opened
	return parquetfile.OpenReader(ctx, a.store, a.key(add.Path), options)
}

// records gives a generation's records in the table's schema.
func (a *attempt) records(g shardmanifest.Generation) source[arrow.Record] {
	return func(ctx context.Context, give func(arrow.Record) error) error {
		r, err := a.openGeneration(ctx, g)
		if err != nil {
			return err
		}
		defer r.Close()
		return a.project(ctx, r, give)
	}
}

// project gives what a reader reads in the schema of the attempt.
func (a *attempt) project(ctx context.Context, r *parquetfile.Reader, give func(arrow.Record) error) error {
	return a.projectTo(ctx, r, a.shape.arrow, give)
}

func (a *attempt) projectTo(ctx context.Context, r *parquetfile.Reader, target *arrow.Schema, give func(arrow.Record) error) error {
	for {
		rec, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		rows, err := schema.Project(ctx, a.shape.mem, rec, target)
		rec.Release()
		if err != nil {
			return err
		}
		a.meter.add(Progress{RowsRead: rows.NumRows()})
		if err := give(rows); err != nil {
			rows.Release()
			return err
		}
	}
}

// reserved is what an upsert needs besides its open generations: the row group being written, encoded and on its way
// out, dictionaries and open pages, and the batches of one base file.
func (a *attempt) reserved() int64 { return a.share / 2 }
