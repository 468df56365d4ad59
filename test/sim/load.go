package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/schema"
	"tidemark/internal/table"
	"tidemark/writer"
)

// keysOfUpserts is how many keys an upsert table has at most: few, so that versions meet.
const keysOfUpserts = 24

// rowsPerLife bounds the rows of one life of a writer, for ids that say who wrote them.
const rowsPerLife = 1_000_000

// load is one life of a writer process: sessions on one table after the other, until it is told to stop.
type load struct {
	*sim
	p         *process
	r         *rand.Rand
	store     objstore.Store
	publisher writer.Publisher
	next      int64                     // id of the next row
	carried   map[string][]arrow.Record // by table: rows handed back as unsealed, to be written again
}

func (s *sim) writerMain(index int) func(p *process) error {
	return func(p *process) error {
		client, err := s.dial(p)
		if err != nil {
			return err
		}
		defer client.Close()
		l := &load{
			sim: s, p: p, r: s.world.draw(fmt.Sprintf("%s life %d load", p.name, p.life)), store: s.storeOf(p),
			next: int64(index+1)*1_000*rowsPerLife + int64(p.life)*rowsPerLife, carried: map[string][]arrow.Record{},
		}
		for !s.stopped(p) {
			if l.publisher == nil {
				if cluster, err := etcd.ReadCluster(p.ctx, client, keys); err == nil {
					l.publisher = demand.NewPublisher(client, keys, cluster.Slots, p.clock, p.random)
				}
			}
			t := s.world.plan.tables[l.r.IntN(len(s.world.plan.tables))]
			if t.upsert {
				l.routed(t)
			} else {
				l.alone(t)
			}
			l.rest()
		}
		return nil
	}
}

// rest sleeps about as long as a writer does between seals.
func (l *load) rest() {
	_ = l.p.clock.Sleep(l.p.ctx, time.Duration(l.r.ExpFloat64()*float64(l.world.plan.pause)))
}

func (l *load) deps() writer.Deps {
	return writer.Deps{Store: l.store, Publisher: l.publisher, Clock: l.p.clock, Random: l.p.random, Mem: memory.DefaultAllocator}
}

func (l *load) config(t tablePlan, shard string) writer.Config {
	return writer.Config{Table: t.name, Shard: shard, Label: l.p.name, OnBacklog: writer.Refuse, IfFree: l.r.IntN(3) == 0}
}

// patience is the context of one call: most callers wait, some do not.
func (l *load) patience() (context.Context, context.CancelFunc) {
	if l.r.IntN(6) == 0 {
		return context.WithTimeout(l.p.ctx, between(l.r, 10*time.Millisecond, 10*time.Second))
	}
	return context.WithTimeout(l.p.ctx, 5*time.Minute)
}

// alone is one session of a writer on a shard of an append table.
func (l *load) alone(t tablePlan) {
	shard := fmt.Sprintf("s%d", l.r.IntN(t.shards))
	ctx, cancel := l.patience()
	w, err := writer.ClaimWith(ctx, l.config(t, shard), l.deps())
	cancel()
	if err != nil {
		return
	}
	extra := l.extra()
	var waiting []int64 // appended and not acknowledged
	unclear := false    // a seal has failed, so the next answer may be about more than one generation
	for range 1 + l.r.IntN(8) {
		if l.stopped(l.p) {
			break
		}
		waiting = append(waiting, l.appendTo(w, t, extra)...)
		ctx, cancel := l.patience()
		sealed, err := w.Seal(ctx)
		cancel()
		var fenced *writer.FencedError
		switch {
		case err == nil:
			a := ack{table: t.name, shard: shard, generation: sealed.Generation}
			if unclear || sealed.Settled > 0 {
				a.generation = 0
			}
			l.checker.books.acknowledge(a, waiting)
			waiting, unclear = nil, false
		case errors.As(err, &fenced):
			l.world.trace.say(l.p.name, "is fenced on %s %s: %d records unsealed, %d in doubt", t.name, shard, len(fenced.Unsealed), len(fenced.InDoubt))
			l.carry(t, fenced.Unsealed)
			return
		default:
			unclear = true
		}
		l.rest()
	}
	if l.r.IntN(2) == 0 {
		ctx, cancel := l.patience()
		defer cancel()
		if err := w.Close(ctx); err == nil {
			l.checker.books.acknowledge(ack{table: t.name, shard: shard}, waiting)
			return
		}
	}
	unsealed, _, _ := w.Abandon()
	l.carry(t, unsealed)
}

// appender is a writer or a router.
type appender interface {
	Append(ctx context.Context, rec arrow.Record) error
}

// appendTo appends what was carried over and up to three new records, and returns the ids of their rows.
func (l *load) appendTo(w appender, t tablePlan, extra []arrow.Field) (ids []int64) {
	var recs []arrow.Record
	recs, l.carried[t.name] = l.carried[t.name], nil
	if l.r.IntN(8) > 0 { // else an empty generation
		for range 1 + l.r.IntN(3) {
			recs = append(recs, l.record(t, extra))
		}
	}
	for i, rec := range recs {
		ctx, cancel := l.patience()
		err := w.Append(ctx, rec)
		cancel()
		if err != nil {
			l.carry(t, recs[i:])
			return ids
		}
		ids = append(ids, idsOf(rec)...)
	}
	return ids
}

func idsOf(rec arrow.Record) []int64 {
	return rec.Column(rec.Schema().FieldIndices("id")[0]).(*array.Int64).Int64Values()
}

// carry keeps rows that are known to be unsealed for the next session.
func (l *load) carry(t tablePlan, recs []arrow.Record) {
	l.carried[t.name] = append(l.carried[t.name], recs...)
}

// routed is one session on all buckets of an upsert table.
func (l *load) routed(t tablePlan) {
	c := l.config(t, "")
	c.IfFree = false
	ctx, cancel := l.patience()
	w, err := writer.OpenRouterWith(ctx, c, l.deps())
	cancel()
	if err != nil {
		return
	}
	extra := l.extra()
	var waiting []int64
	for range 1 + l.r.IntN(8) {
		if l.stopped(l.p) {
			break
		}
		waiting = append(waiting, l.appendTo(w, t, extra)...)
		ctx, cancel := l.patience()
		_, err := w.Seal(ctx)
		cancel()
		if err == nil {
			l.checker.books.acknowledge(ack{table: t.name}, waiting)
			waiting = nil
		} else if fenced := fencedIn(err); len(fenced) > 0 {
			for _, f := range fenced {
				l.carry(t, f.Unsealed)
			}
			l.world.trace.say(l.p.name, "is fenced on %d buckets of %s", len(fenced), t.name)
			break
		}
		l.rest()
	}
	unsealed, _, _ := w.Abandon()
	l.carry(t, unsealed)
}

// fencedIn finds all fences in a joined error.
func fencedIn(err error) (all []*writer.FencedError) {
	switch e := err.(type) {
	case *writer.FencedError:
		return []*writer.FencedError{e}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, fencedIn(inner)...)
		}
	case interface{ Unwrap() error }:
		return fencedIn(e.Unwrap())
	}
	return all
}

// record makes a record of one to four new rows.
func (l *load) record(t tablePlan, extra []arrow.Field) arrow.Record {
	fields := fieldsOf(t)
	fields = append(fields, extra...)
	if t.upsert {
		fields = append(fields, arrow.Field{Name: "_op", Type: arrow.BinaryTypes.String, Nullable: true})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for range 1 + l.r.IntN(4) {
		l.next++
		key, seq, deletes := int64(l.r.IntN(keysOfUpserts)), int64(l.r.IntN(1000)), l.r.IntN(4) == 0
		for i, f := range fields {
			switch f.Name {
			case "id":
				b.Field(i).(*array.Int64Builder).Append(l.next)
			case "k":
				b.Field(i).(*array.Int64Builder).Append(key)
			case "seq":
				b.Field(i).(*array.Int64Builder).Append(seq)
			case "x", "w":
				appendExtra(b.Field(i), l.next%7)
			case "_op":
				if deletes {
					b.Field(i).(*array.StringBuilder).Append("d")
				} else {
					b.Field(i).AppendNull()
				}
			}
		}
	}
	return b.NewRecord()
}

// extra draws the columns of one session that the table was not created with.
func (l *load) extra() (fields []arrow.Field) {
	if l.r.IntN(4) == 0 {
		x := arrow.Field{Name: "x", Type: arrow.BinaryTypes.String, Nullable: true}
		if l.world.plan.clashes && l.r.IntN(2) == 0 {
			x.Type = arrow.PrimitiveTypes.Int64 // one of the two comes first, and the other cannot be merged
		}
		fields = append(fields, x)
	}
	if l.world.plan.widens && l.r.IntN(3) == 0 {
		w := arrow.Field{Name: "w", Type: arrow.PrimitiveTypes.Int32, Nullable: true}
		if l.r.IntN(2) == 0 {
			w.Type = arrow.PrimitiveTypes.Int64
		}
		fields = append(fields, w)
	}
	return fields
}

func appendExtra(b array.Builder, n int64) {
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(fmt.Sprint("x", n))
	case *array.Int32Builder:
		b.Append(int32(n))
	case *array.Int64Builder:
		b.Append(n)
	}
}

func fieldsOf(t tablePlan) []arrow.Field {
	fields := []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}
	if t.upsert {
		fields = append(fields, arrow.Field{Name: "k", Type: arrow.PrimitiveTypes.Int64, Nullable: true})
		if t.sequence {
			fields = append(fields, arrow.Field{Name: "seq", Type: arrow.PrimitiveTypes.Int64, Nullable: true})
		}
	}
	return fields
}

// create creates a table, however often it takes.
func (s *sim) create(p *process, store objstore.Store, t tablePlan) error {
	shape, err := schema.FromArrow(arrow.NewSchema(fieldsOf(t), nil))
	if err != nil {
		return err
	}
	o := table.CreateOptions{Schema: shape, Mode: table.Append, Properties: map[string]string{
		"delta.checkpointInterval": itoa(t.checkpoints), "delta.logRetentionDuration": fmt.Sprintf("interval %d hours", t.logHours),
	}}
	if s.world.plan.foreign {
		o.Properties["delta.deletedFileRetentionDuration"] = fmt.Sprintf("interval %d minutes", int(foreignRetention.Minutes()))
	}
	for k, v := range t.policy {
		o.Properties[k] = v
	}
	if t.upsert {
		o.Mode, o.Key, o.Buckets = table.Upsert, []string{"k"}, t.buckets
		if t.sequence {
			o.Sequence = "seq"
		}
	}
	return s.insist(p, func() error {
		_, err := table.Create(p.ctx, store, t.name, o, table.Deps{Clock: p.clock, Random: p.random})
		if errors.Is(err, table.ErrTableExists) {
			return nil
		}
		return err
	})
}

// insist repeats what fails until it succeeds or the process ends.
func (s *sim) insist(p *process, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		if p.clock.Sleep(p.ctx, time.Second) != nil {
			return err
		}
	}
}

// adminMain creates the tables, and drops and creates again those whose time has come. What is interrupted is done by
// the next life of the process.
func (s *sim) adminMain(p *process) error {
	store := s.storeOf(p)
	for _, t := range s.world.plan.tables {
		if !s.created[t.name] {
			if err := s.create(p, store, t); err != nil {
				return err
			}
			s.created[t.name] = true
		}
	}
	for _, t := range s.world.plan.tables {
		if t.dropAt == 0 || s.dropped[t.name] {
			continue
		}
		if err := p.clock.Sleep(p.ctx, t.dropAt-s.world.now()); err != nil {
			return err
		}
		if err := s.insist(p, func() error {
			return table.Drop(p.ctx, store, t.name, table.Deps{Clock: p.clock, Random: p.random})
		}); err != nil {
			return err
		}
		s.dropped[t.name] = true
		if err := s.create(p, store, t); err != nil {
			return err
		}
	}
	return nil
}
