package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/rowkey"
	"tidemark/internal/table"
	"tidemark/writer"
)

const (
	// WritersDefault and WritersMax are how many writers a demo has; each writes one shard of every table.
	WritersDefault = 4
	WritersMax     = 64
	// SealRowsDefault and SealEveryDefault say when a writer seals, whichever comes first.
	SealRowsDefault  = 10_000
	SealEveryDefault = time.Second

	// batchRows is how many rows a writer makes at a time when nothing holds it back, batchPace how often it makes some
	// when a rate does.
	batchRows = 8192
	batchPace = 100 * time.Millisecond
	// sealTries bounds how often a seal of unknown outcome is settled again; the writer waits between its own attempts.
	sealTries = 8
	// closeTimeout bounds sealing what is buffered after the demo was stopped.
	closeTimeout = 10 * time.Second
)

// Deps are what the demo writes with. Writer.Store, Clock and Random are required; Config says how writers publish and
// are held back, and its Table and Shard are filled in here.
type Deps struct {
	Config writer.Config
	Writer writer.Deps
}

// Options say how much the demo writes, and how fast.
type Options struct {
	Seed    uint64
	Rows    int64   // of all tables together, to within a few per writer; 0 goes on until the context ends
	Rate    float64 // rows per second of all writers together; 0 is as fast as they can
	Writers int     // 0 is WritersDefault
	// SealRows and SealEvery: a writer seals a shard with so many rows, or after so long; 0 is the default.
	SealRows  int
	SealEvery time.Duration
	// Files are replayed once instead of generating rows; they must share one schema. See internal/ingest for formats.
	Files []string
	// OnProgress is told after every seal, one call at a time. It may be nil.
	OnProgress func(Progress)
}

// Progress is what is sealed so far.
type Progress struct {
	Rows, Generations int64
}

// Expectation is what the tables must hold once everything sealed is merged.
type Expectation struct {
	Tables []TableExpectation
}

// TableExpectation is the part of one table. Written counts the rows sealed, versions and deletes included.
type TableExpectation struct {
	Table   string
	Sum     Sum
	Written int64
}

// SumOf sums the rows of a table, to be compared with an expectation.
func SumOf(rows iter.Seq2[arrow.Record, error]) (Sum, error) {
	var total Sum
	for rec, err := range rows {
		if err != nil {
			return total, err
		}
		sum, err := Checksum(rec)
		if err != nil {
			return total, err
		}
		total = total.Plus(sum)
	}
	return total, nil
}

// Verify reads every table and compares it with what was written; it says on out what it found.
func (e Expectation) Verify(out io.Writer, read func(table string) (iter.Seq2[arrow.Record, error], error)) error {
	for _, t := range e.Tables {
		rows, err := read(t.Table)
		if err != nil {
			return err
		}
		got, err := SumOf(rows)
		if err != nil {
			return err
		}
		if got != t.Sum {
			return fmt.Errorf("table %s holds %v, but what was written adds up to %v", t.Table, got, t.Sum)
		}
		fmt.Fprintf(out, "verified %s: %d rows written, %d rows in the table, checksum %016x\n", t.Table, t.Written, got.Rows, got.Hash)
	}
	return nil
}

// Run makes the demo's tables and writes to them until all rows are sealed or ctx ends. When it was ctx, what had been
// made is sealed still, so that the expectation is right whatever the error.
func Run(ctx context.Context, d Deps, o Options) (Expectation, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Expectation{}, err
	}
	if d.Writer.Mem == nil {
		d.Writer.Mem = memory.DefaultAllocator
	}
	r := &run{deps: d, options: o}
	if len(o.Files) > 0 {
		return r.replay(ctx)
	}
	return r.generate(ctx)
}

func (o Options) withDefaults() (Options, error) {
	if o.Writers == 0 {
		o.Writers = WritersDefault
	}
	if o.SealRows == 0 {
		o.SealRows = SealRowsDefault
	}
	if o.SealEvery == 0 {
		o.SealEvery = SealEveryDefault
	}
	if o.Writers < 1 || o.Writers > WritersMax || o.Rows < 0 || !(o.Rate >= 0) || o.SealRows < 1 || o.SealEvery < 0 {
		return o, fmt.Errorf("demo: use 1 to %d writers, and no negative rows, rates or intervals", WritersMax)
	}
	return o, nil
}

// run is one call of Run.
type run struct {
	deps    Deps
	options Options

	mu       sync.Mutex // guards progress, and serialises OnProgress
	progress Progress
}

func (r *run) tableDeps() table.Deps {
	return table.Deps{Clock: r.deps.Writer.Clock, Random: r.deps.Writer.Random}
}

// generate runs the writers of generated rows and adds up what each expects.
func (r *run) generate(ctx context.Context) (Expectation, error) {
	_, err := newTable(ctx, r.deps.Writer.Store, r.tableDeps(), EventTable, EventSchema, table.CreateOptions{})
	if err == nil {
		_, err = newTable(ctx, r.deps.Writer.Store, r.tableDeps(), StateTable, StateSchema,
			table.CreateOptions{Key: []string{"order_id"}, Sequence: "updated_at", Buckets: r.options.Writers})
	}
	if err != nil {
		return Expectation{}, err
	}
	expected := []TableExpectation{{Table: EventTable}, {Table: StateTable}}
	var mu sync.Mutex // guards expected
	group, ctx := errgroup.WithContext(ctx)
	for i := range r.options.Writers {
		group.Go(func() error {
			g, err := NewGenerator(r.deps.Writer.Mem, r.options.Seed, i, r.options.Writers)
			if err != nil {
				return err
			}
			defer g.Release()
			events, states := r.shard(EventTable, fmt.Sprintf("writer-%d", i)), r.shard(StateTable, rowkey.BucketShard(i))
			err = r.writeGenerated(ctx, g, events, states)
			eventSum, stateSum := g.Expected()
			mu.Lock()
			defer mu.Unlock()
			for t, sum := range []Sum{eventSum, stateSum} {
				expected[t].Sum = expected[t].Sum.Plus(sum)
			}
			expected[0].Written += events.written
			expected[1].Written += states.written
			return err
		})
	}
	err = group.Wait()
	return Expectation{Tables: expected}, err
}

// writeGenerated is one writer: it makes rows until it has its share of them or ctx ends, and seals both shards.
func (r *run) writeGenerated(ctx context.Context, g *Generator, events, states *shard) error {
	share := r.options.Rows / int64(r.options.Writers)
	pace := r.newPace()
	err := claim(ctx, events, states)
	for made := int64(0); err == nil && (r.options.Rows == 0 || made+rowsPerStepMax <= share); {
		batch := pace.batch()
		if r.options.Rows > 0 {
			batch = min(batch, share-made)
		}
		if err = pace.wait(ctx, made); err != nil {
			break
		}
		var eventRows, stateRows arrow.Record
		if eventRows, stateRows, err = g.Next(int(batch)); err != nil {
			break
		}
		made += eventRows.NumRows() + stateRows.NumRows()
		// Rows that are made are expected, so they are written even if ctx has ended meanwhile.
		err = errors.Join(events.append(ctx, eventRows), states.append(ctx, stateRows))
		eventRows.Release()
		stateRows.Release()
		if err == nil {
			err = errors.Join(events.sealIfDue(ctx), states.sealIfDue(ctx))
		}
	}
	return finish(ctx, err, events, states)
}

// pace spreads one writer's rows over time.
type pace struct {
	run   *run
	rate  float64 // rows per second of this writer; 0 for no limit
	start time.Duration
}

func (r *run) newPace() pace {
	return pace{run: r, rate: r.options.Rate / float64(r.options.Writers), start: r.deps.Writer.Clock.Mono()}
}

// batch is how many rows to make at a time.
func (p pace) batch() int64 {
	if p.rate == 0 {
		return batchRows
	}
	return min(batchRows, max(rowsPerStepMax, int64(p.rate*batchPace.Seconds())))
}

// wait returns when it is time for the next rows after so many.
func (p pace) wait(ctx context.Context, made int64) error {
	if p.rate == 0 {
		return context.Cause(ctx)
	}
	due := p.start + time.Duration(float64(made)/p.rate*float64(time.Second))
	return p.run.deps.Writer.Clock.Sleep(ctx, due-p.run.deps.Writer.Clock.Mono())
}
