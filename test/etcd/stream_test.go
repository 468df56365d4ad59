package etcd_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"tidemark/internal/demand"
	"tidemark/internal/merge"
	"tidemark/internal/schema"
	"tidemark/internal/table"
	"tidemark/writer"
)

const (
	sealEvery = 100 * time.Millisecond
	// keyCount is how many keys an upsert stream writes again and again.
	keyCount = 20
)

// rowSchema: n numbers the rows of a stream from 0, and k is n modulo keyCount.
var rowSchema = arrow.NewSchema([]arrow.Field{
	{Name: "k", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
}, nil)

// stream is the only writer of one table, and knows what the table must hold.
type stream struct {
	f      *fleet
	table  string
	rows   int64             // written, and durable
	sealed map[string]uint64 // by shard
	upsert bool
	append func(context.Context, arrow.Record) error
	seal   func(context.Context) ([]writer.Sealed, error)
}

// stream creates a table and a writer for it; the writer ends with the test.
func (f *fleet) stream(name string, key ...string) {
	f.t.Helper()
	columns, err := schema.FromArrow(rowSchema)
	if err != nil {
		f.t.Fatal(err)
	}
	s := &stream{f: f, table: name, sealed: map[string]uint64{}, upsert: len(key) > 0}
	options := table.CreateOptions{Schema: columns, Properties: map[string]string{"tidemark.policy.min_generations": "1"}}
	if s.upsert {
		options.Key, options.Buckets = key, 2
	}
	if _, err := table.Create(f.ctx, f.store, name, options, f.tableDeps()); err != nil {
		f.t.Fatal(err)
	}
	c := wrongBy(len(f.streams))
	deps := writer.Deps{Store: f.store, Clock: c, Random: f.random, Mem: f.mem,
		Publisher: demand.NewPublisher(f.dial(), keys, slots, c, f.random)}
	if s.upsert {
		r, err := writer.OpenRouterWith(f.ctx, writer.Config{Table: name}, deps)
		if err != nil {
			f.t.Fatal(err)
		}
		s.append, s.seal = r.Append, r.Seal
	} else {
		w, err := writer.ClaimWith(f.ctx, writer.Config{Table: name, Shard: "a"}, deps)
		if err != nil {
			f.t.Fatal(err)
		}
		s.append = w.Append
		s.seal = func(ctx context.Context) ([]writer.Sealed, error) {
			sealed, err := w.Seal(ctx)
			return []writer.Sealed{sealed}, err
		}
	}
	f.streams = append(f.streams, s)
}

// write seals a generation now and then until it is told to stop, and then until one is published.
func (s *stream) write(stop <-chan struct{}) {
	for stopped := false; ; {
		published := s.one()
		if stopped && published {
			return
		}
		select {
		case <-stop:
			stopped = true
		default:
		}
		time.Sleep(sealEvery)
	}
}

// one appends and seals a few rows, and says whether etcd knows.
func (s *stream) one() (published bool) {
	const rows = keyCount // every key, so every bucket
	k, n := array.NewInt64Builder(s.f.mem), array.NewInt64Builder(s.f.mem)
	defer k.Release()
	defer n.Release()
	for i := range int64(rows) {
		k.Append((s.rows + i) % keyCount)
		n.Append(s.rows + i)
	}
	columns := []arrow.Array{k.NewArray(), n.NewArray()}
	rec := array.NewRecord(rowSchema, columns, rows)
	defer rec.Release()
	for _, c := range columns {
		c.Release()
	}
	if err := s.append(s.f.ctx, rec); err != nil {
		s.f.t.Errorf("appending to %s: %v", s.table, err)
		return true
	}
	sealed, err := s.seal(s.f.ctx)
	if err != nil {
		s.f.t.Errorf("sealing on %s: %v", s.table, err)
		return true
	}
	s.rows += rows
	published = true
	for _, g := range sealed {
		s.sealed[g.Shard] = g.Generation
		published = published && g.Unpublished == nil
	}
	return published
}

// check reads the table: every row is there once or, in an upsert table, the newest of every key.
func (s *stream) check(t *testing.T) {
	t.Helper()
	_, records, err := merge.Scan(t.Context(), merge.Deps{Store: s.f.store, Clock: s.f.clock, Random: s.f.random, Mem: s.f.mem, Log: s.f.log},
		s.table, merge.ScanOptions{Columns: []string{"n"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for rec, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rec.Column(0).(*array.Int64).Int64Values()...)
	}
	slices.Sort(got)
	first := int64(0)
	if s.upsert {
		first = s.rows - keyCount
	}
	var want []int64
	for n := first; n < s.rows; n++ {
		want = append(want, n)
	}
	if !slices.Equal(got, want) {
		t.Errorf("table %s has %d rows, want the %d from %d to %d, each once", s.table, len(got), len(want), first, s.rows-1)
	}
}
