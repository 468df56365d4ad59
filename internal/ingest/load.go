package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/schema"
	"tidemark/internal/table"
	"tidemark/writer"
)

const (
	// DefaultShards is how many shards an append ingest writes at once: enough to keep two cores and a remote store busy.
	DefaultShards = 4
	// DefaultRowsPerGeneration makes generations of a few megabytes from ordinary rows: large enough to encode well,
	// small enough to be merged while the ingest goes on.
	DefaultRowsPerGeneration = 100_000

	// ShardsMax bounds the generations in flight, and so the memory.
	ShardsMax = 64
	// shardNumbersMax bounds the search for a free shard. Only ingests that were killed leave one open, so this many
	// means that something else is wrong.
	shardNumbersMax = 10_000
	// movesMax bounds how often one ingest gives way to writers that take its append shards on purpose.
	movesMax = 16
	// sealTries bounds how often a seal of unknown outcome is settled again; the writer waits between its own attempts.
	sealTries = 8
	// closeTimeout bounds giving the shards back after the ingest was cancelled.
	closeTimeout = 10 * time.Second
)

// Deps are what writing needs. Store is required in Writer; Config says who writes and how writers are held back, and
// its Table and Shard are filled in here.
type Deps struct {
	Config writer.Config
	Writer writer.Deps
}

// Plan says where the rows of a source go.
type Plan struct {
	Table *table.Table
	// Shards is how many shards an append ingest writes at once, 1 to ShardsMax; 0 is DefaultShards. Upsert tables have
	// their buckets instead.
	Shards int
	// RowsPerGeneration is how many rows a generation has; 0 is DefaultRowsPerGeneration. The last one of a shard may
	// have fewer, and so has one that would not fit into the writer's buffer. In upsert tables it is the average over the
	// buckets, which are sealed together.
	RowsPerGeneration int
	// OnProgress is told after every seal, one call at a time. It may be nil.
	OnProgress func(Progress)
}

// Progress is how far an ingest is.
type Progress struct {
	Report
	BytesDone, BytesTotal int64 // of the files, as read
}

// Report is what is durable: it is right after an error too.
type Report struct {
	Rows        int64
	Generations int64
	Shards      []ShardReport // in the order of their names
	// Unpublished is the last reason why etcd could not be told about a seal; a scan will find it.
	Unpublished error
}

// ShardReport is what one shard got.
type ShardReport struct {
	Shard       string
	First, Last uint64 // generations of this ingest; nobody else's lie between
	Rows, Bytes int64
	Pending     uint64 // generations of the shard that were not merged when the last one was sealed
}

// ErrOvertaken: another writer claimed a bucket that this ingest was writing. It wraps the *writer.FencedError that
// names it.
var ErrOvertaken = errors.New("another writer has taken over")

// Load writes all rows of a source to a table and returns what it sealed.
//
// Append tables: rows are dealt out in generations, one shard after the other. The shards are the lowest numbered
// "ingest-<n>" that nobody has open. A shard that another writer takes all the same is left to it, and the unsealed rows
// go to another one.
//
// Upsert tables: every row goes to the shard of its bucket, in the order of the source. If another writer claims a bucket
// meanwhile, the ingest ends with ErrOvertaken: what it sealed stays and will be merged, and running it again is safe,
// because a row that comes twice replaces itself.
func Load(ctx context.Context, d Deps, src *Source, p Plan) (Report, error) {
	if p.Shards == 0 {
		p.Shards = DefaultShards
	}
	if p.RowsPerGeneration == 0 {
		p.RowsPerGeneration = DefaultRowsPerGeneration
	}
	if p.Shards < 1 || p.Shards > ShardsMax {
		return Report{}, fmt.Errorf("%d shards: use 1 to %d", p.Shards, ShardsMax)
	}
	if p.RowsPerGeneration < 1 {
		return Report{}, fmt.Errorf("%d rows per generation: use at least 1", p.RowsPerGeneration)
	}
	if err := fits(src.Schema(), p.Table); err != nil {
		return Report{}, fmt.Errorf("table %s: %w", p.Table.Name, err)
	}
	d.Config.Table, d.Config.Shard = p.Table.Name, ""
	l := &load{deps: d, plan: p, src: src, tally: tally{shards: map[string]*ShardReport{}}}
	var err error
	if p.Table.Mode == table.Upsert {
		err = l.upsert(ctx)
	} else {
		err = l.append(ctx)
	}
	return l.tally.report(), err
}

// load is one call of Load.
type load struct {
	deps  Deps
	plan  Plan
	src   *Source
	tally tally
}

// fits says early, and in terms of columns, why rows could not go to the table.
func fits(s *arrow.Schema, t *table.Table) error {
	var names []string
	var fields []arrow.Field
	for _, f := range s.Fields() {
		names = append(names, f.Name)
		if f.Name != schema.OpColumn || t.Mode != table.Upsert {
			fields = append(fields, f)
		}
	}
	needed := slices.Clone(t.Key)
	if t.Sequence != "" {
		needed = append(needed, t.Sequence)
	}
	for _, name := range needed {
		if !slices.Contains(names, name) {
			return fmt.Errorf("the input has no column %q, which the table needs as key or sequence; its columns are %s", name, strings.Join(names, ", "))
		}
	}
	incoming, err := schema.FromArrow(arrow.NewSchema(fields, nil))
	if err != nil {
		return err
	}
	_, _, err = schema.Evolve(t.Schema, incoming)
	return err
}

// tally adds up what is sealed.
type tally struct {
	mu          sync.Mutex // guards what follows, and serialises OnProgress
	shards      map[string]*ShardReport
	unpublished error
}

// sealed takes down a seal and reports progress.
func (l *load) sealed(s writer.Sealed) {
	l.tally.mu.Lock()
	defer l.tally.mu.Unlock()
	r := l.tally.shards[s.Shard]
	if r == nil {
		r = &ShardReport{Shard: s.Shard, First: s.Generation}
		l.tally.shards[s.Shard] = r
	}
	r.Last, r.Pending = s.Generation, s.Pending
	r.Rows += s.Rows
	r.Bytes += s.Bytes
	if s.Unpublished != nil {
		l.tally.unpublished = s.Unpublished
	}
	if l.plan.OnProgress != nil {
		done, total := l.src.Progress()
		l.plan.OnProgress(Progress{Report: l.tally.reportLocked(), BytesDone: done, BytesTotal: total})
	}
}

func (t *tally) report() Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reportLocked()
}

func (t *tally) reportLocked() Report {
	r := Report{Unpublished: t.unpublished}
	for _, s := range t.shards {
		r.Rows += s.Rows
		r.Generations += int64(s.Last - s.First + 1)
		r.Shards = append(r.Shards, *s)
	}
	slices.SortFunc(r.Shards, func(a, b ShardReport) int { return strings.Compare(a.Shard, b.Shard) })
	return r
}

// generation is a run of rows that are to be sealed together. Whoever receives one releases it.
type generation []arrow.Record

func (g generation) release() {
	for _, rec := range g {
		rec.Release()
	}
}

// cutter cuts a source into generations of a number of rows.
type cutter struct {
	src  *Source
	size int64
	rest arrow.Record // read and not handed out
}

// next returns up to size rows, fewer only at the end, and io.EOF after it.
func (c *cutter) next(ctx context.Context) (g generation, err error) {
	for rows := int64(0); rows < c.size; {
		if c.rest == nil {
			if c.rest, err = c.src.Next(ctx); err == io.EOF && len(g) > 0 {
				return g, nil
			}
			if err != nil {
				c.rest = nil
				g.release()
				return nil, err
			}
		}
		take := min(c.size-rows, c.rest.NumRows())
		g = append(g, c.rest.NewSlice(0, take))
		rest := arrow.Record(nil)
		if take < c.rest.NumRows() {
			rest = c.rest.NewSlice(take, c.rest.NumRows())
		}
		c.rest.Release()
		c.rest = rest
		rows += take
	}
	return g, nil
}

func (c *cutter) release() {
	if c.rest != nil {
		c.rest.Release()
	}
}

// settled calls seal until it knows the outcome.
func settled[T any](ctx context.Context, seal func(context.Context) (T, error)) (result T, err error) {
	for range sealTries {
		if result, err = seal(ctx); !errors.Is(err, writer.ErrInDoubt) {
			return result, err
		}
	}
	return result, err
}

// uncancelled is for giving back what is held after ctx has ended.
func uncancelled(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
}
