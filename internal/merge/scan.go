package merge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/rowkey"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

// scanHeldBytes is how much of already passed blocks a batch may keep in memory before it is given away.
const scanHeldBytes = 64 << 20

// ScanOptions say what of a table is read.
type ScanOptions struct {
	// Fresh unites the base table with the generations that are sealed and not merged yet: their rows are added, or,
	// in an upsert table, folded with the base's as a merge would.
	Fresh   bool
	Columns []string // in this order; nil for all
}

// Scan reads a table at one version, streaming. It returns the schema of the records and the records; each record is
// valid until the next one is asked for. Rows of an upsert table come bucket by bucket in key order, those of an append
// table file by file. An error ends the iteration; it is an *Error.
//
// Memory holds a few batches of each open file, and with Fresh, per bucket of an upsert table, one row group of each of
// its pending generations.
func Scan(ctx context.Context, d Deps, tableName string, o ScanOptions) (*arrow.Schema, iter.Seq2[arrow.Record, error], error) {
	s, err := newScan(ctx, d, tableName, o)
	if err != nil {
		return nil, nil, whole(ctx, tableName, err)
	}
	return s.columns, func(yield func(arrow.Record, error) bool) {
		if err := s.run(ctx, yield); err != nil && !errors.Is(err, errEnough) {
			yield(nil, whole(ctx, tableName, err))
		}
	}, nil
}

// errEnough: whoever asked for the rows wants no more.
var errEnough = errors.New("enough")

// scan is one reading of a table.
type scan struct {
	*attempt
	columns *arrow.Schema // of the records
	pending []backlog
}

func newScan(ctx context.Context, d Deps, tableName string, o ScanOptions) (*scan, error) {
	x := newExecution(d, Request{Table: tableName})
	pending, err := x.fresh(ctx, o.Fresh)
	if err != nil {
		return nil, err
	}
	evolved, stopped, err := x.evolve(ctx, pending)
	if err == nil && stopped != nil {
		err = stopped
	}
	if err != nil {
		return nil, err
	}
	s := &scan{pending: pending, attempt: &attempt{execution: x, partitions: x.table.Snapshot.Metadata.PartitionColumns}}
	all := evolved.schema.Arrow()
	if s.columns, err = selected(all, o.Columns); err != nil {
		return nil, err
	}
	s.shape = shape{mem: x.Mem, arrow: s.columns, key: x.table.Key, sequence: x.table.Sequence}
	if len(pending) > 0 && x.table.Mode == table.Upsert {
		s.shape.arrow = withColumns(all, s.columns, append(slices.Clone(x.table.Key), x.table.Sequence))
	}
	return s, nil
}

// fresh loads the table and, if asked to, what is pending on all its shards.
func (x *execution) fresh(ctx context.Context, fresh bool) ([]backlog, error) {
	t, err := x.Tables.Load(ctx, x.req.Table)
	if err != nil {
		return nil, err
	}
	if !fresh {
		return nil, x.adopt(t)
	}
	if x.req.Shards, err = shardmanifest.ListShards(ctx, x.store, x.req.Table, t.ID); err != nil {
		return nil, err
	}
	pending, err := x.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range x.req.Shards {
		if s := x.shards[name]; s != nil && s.failure != nil {
			return nil, s.failure
		}
	}
	return pending, nil
}

// selected are some columns of a schema, in the order asked for.
func selected(s *arrow.Schema, names []string) (*arrow.Schema, error) {
	if names == nil {
		return s, nil
	}
	var fields []arrow.Field
	for _, name := range names {
		f, ok := s.FieldsByName(name)
		if !ok {
			var has []string
			for _, f := range s.Fields() {
				has = append(has, f.Name)
			}
			return nil, fmt.Errorf("there is no column %q; the columns are %s", name, strings.Join(has, ", "))
		}
		fields = append(fields, f...)
	}
	return arrow.NewSchema(fields, nil), nil
}

// withColumns is a schema with some more columns of another at its end.
func withColumns(all, s *arrow.Schema, names []string) *arrow.Schema {
	fields := slices.Clone(s.Fields())
	for _, name := range names {
		if f, ok := all.FieldsByName(name); ok && !s.HasField(name) {
			fields = append(fields, f...)
		}
	}
	return arrow.NewSchema(fields, nil)
}

func (s *scan) run(ctx context.Context, yield func(arrow.Record, error) bool) error {
	give := func(rec arrow.Record) error {
		rows := s.narrow(rec)
		defer rows.Release()
		if !yield(rows, nil) {
			return errEnough
		}
		return nil
	}
	if s.table.Mode == table.Append {
		var sources []source[arrow.Record]
		for add := range s.table.Snapshot.Files() {
			sources = append(sources, s.baseRecords(add))
		}
		for _, b := range s.pending {
			for _, g := range b.generations {
				if g.Rows > 0 {
					sources = append(sources, s.generationRecords(b.shard, g))
				}
			}
		}
		return s.stream(ctx, sources, give)
	}
	bases, err := basesOf(s.table.Snapshot)
	if err != nil {
		return &Error{Table: s.req.Table, Code: CodeTable, Class: Data, Err: err}
	}
	for b := range s.table.Buckets {
		if err := s.bucket(ctx, b, bases, give); err != nil {
			return err
		}
	}
	return nil
}

// narrow takes off the columns that were only needed for ordering.
func (s *scan) narrow(rec arrow.Record) arrow.Record {
	n := s.columns.NumFields()
	return array.NewRecord(s.columns, rec.Columns()[:n], rec.NumRows())
}

// stream gives the records of sources, one source after the other.
func (s *scan) stream(ctx context.Context, sources []source[arrow.Record], give func(arrow.Record) error) error {
	feed := startAhead(ctx, sources, s.Lanes, arrow.Record.Release)
	defer feed.stop()
	for feed.nextSource() {
		for {
			rec, err := feed.next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			err = give(rec)
			rec.Release()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *scan) baseRecords(add deltalog.Add) source[arrow.Record] {
	return func(ctx context.Context, give func(arrow.Record) error) error {
		r, err := s.openBase(ctx, add, names(s.shape.arrow))
		if err != nil {
			return s.baseError(add.Path, err)
		}
		defer r.Close()
		return s.baseError(add.Path, s.baseSource(ctx, r, add.PartitionValues, give))
	}
}

func (s *scan) generationRecords(shard string, g shardmanifest.Generation) source[arrow.Record] {
	return func(ctx context.Context, give func(arrow.Record) error) error {
		if err := s.records(g)(ctx, give); err != nil {
			return s.failed(shard, g.Number, err)
		}
		return nil
	}
}

func (s *scan) baseError(path string, err error) error {
	switch {
	case err == nil || storeFailed(err):
		return err
	case errors.Is(err, objstore.ErrNotFound):
		return &Error{Table: s.req.Table, Code: CodeConflict, Class: Retryable, Err: fmt.Errorf(
			"base file %s is gone: the table was rewritten and vacuumed meanwhile; read it again: %w", path, err)}
	}
	return &Error{Table: s.req.Table, Code: CodeBaseDamaged, Class: Data, Err: fmt.Errorf("base file %s: %w", path, err)}
}

func names(s *arrow.Schema) (out []string) {
	for _, f := range s.Fields() {
		out = append(out, f.Name)
	}
	return out
}

// bucket gives the rows of one bucket: the base files in key order, merged with the pending generations if there are any.
func (s *scan) bucket(ctx context.Context, b int, bases map[string][]baseFile, give func(arrow.Record) error) error {
	name := rowkey.BucketShard(b)
	at := slices.IndexFunc(s.pending, func(p backlog) bool { return p.shard == name })
	if at < 0 {
		var sources []source[arrow.Record]
		for _, f := range bases[name] {
			sources = append(sources, s.baseRecords(f.add))
		}
		return s.stream(ctx, sources, give)
	}
	c := collector{shape: s.shape, held: scanHeldBytes, give: func(_ context.Context, rows sorted) error {
		defer rows.rows.Release()
		return give(rows.rows)
	}}
	m := merger{out: &c}
	defer m.close()
	defer c.drop()
	var sources []source[*block]
	for _, f := range bases[name] {
		sources = append(sources, s.baseBlocks(f.add, names(s.shape.arrow)))
	}
	feed := startAhead(ctx, sources, 1, (*block).release)
	defer feed.stop()
	more := feed.nextSource()
	base := &run{arrival: 0, next: func(ctx context.Context) (*block, error) {
		for more {
			b, err := feed.next(ctx)
			if !errors.Is(err, io.EOF) {
				return b, s.baseError("of "+name, err)
			}
			more = feed.nextSource()
		}
		return nil, io.EOF
	}}
	if err := m.add(ctx, base); err != nil {
		return err
	}
	var inputs []*input
	defer func() { closeAll(inputs) }()
	for i, g := range s.pending[at].generations {
		in, err := s.openInput(ctx, g)
		if err != nil {
			return s.failed(name, g.Number, err)
		}
		inputs = append(inputs, in)
		next := func(ctx context.Context) (*block, error) {
			b, err := in.next(ctx)
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, s.failed(name, g.Number, err)
			}
			return b, err
		}
		if err := m.add(ctx, &run{arrival: i + 1, next: next}); err != nil {
			return err
		}
	}
	if err := m.mergeBelow(ctx, nil); err != nil {
		return err
	}
	return c.flush(ctx)
}
