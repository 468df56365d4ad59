package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/table"
	"tidemark/writer"
)

// The upsert case: a table of ten million rows takes in changes of 1 % and of 20 % of them, all over the keys and in a
// part of them; a twentieth of the changes are deletes, a tenth are new keys. Each change goes into the table that the one
// before has left; DuckDB and delta-rs get the same files. The table that DuckDB makes must be the same, row by row.
var upsertCases = []benchCase{{"upsert", upserts}}

const (
	upsertRows     = 10_000_000
	upsertSeals    = 4 // generations per bucket and change
	goalRandom     = 1.3
	goalClustered  = 8
	goalDeltaMerge = 5
	goalRowsOut    = 3e6 // per second
)

var orderSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "at", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, Nullable: true},
	{Name: "customer", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "state", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "amount", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	{Name: "items", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
}, nil)

var orderChangeSchema = arrow.NewSchema(append(orderSchema.Fields(),
	arrow.Field{Name: schema.OpColumn, Type: arrow.BinaryTypes.String, Nullable: true}), nil)

// orders are rows of the given ids; changes have operations, every twentieth of them a delete.
func orders(r *rand.Rand, ids []int64, changes bool) arrow.Record {
	s := orderSchema
	if changes {
		s = orderChangeSchema
	}
	states := []string{"new", "paid", "packed", "sent", "returned"}
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	b.Reserve(len(ids))
	for _, id := range ids {
		b.Field(0).(*array.Int64Builder).Append(id)
		b.Field(1).(*array.TimestampBuilder).Append(arrow.Timestamp(1_700_000_000_000_000 + r.Int64N(1e13)))
		b.Field(2).(*array.StringBuilder).Append(fmt.Sprintf("customer-%07d", r.IntN(1_000_000)))
		b.Field(3).(*array.StringBuilder).Append(states[r.IntN(len(states))])
		b.Field(4).(*array.Float64Builder).Append(float64(r.IntN(1_000_000)) / 100)
		b.Field(5).(*array.Int32Builder).Append(int32(r.IntN(20)))
		if changes && r.IntN(20) == 0 {
			b.Field(6).(*array.StringBuilder).Append("d")
		} else if changes {
			b.Field(6).AppendNull()
		}
	}
	return b.NewRecord()
}

// change is one merge of the case.
type change struct {
	name     string
	share    float64 // of the rows that change
	from, of float64 // the part of the keys that the changes are in
	goal     float64
}

var changes = []change{
	{"upsert 1% random", 0.01, 0, 1, goalRandom},
	{"upsert 1% clustered", 0.01, 0.4, 0.05, goalClustered},
	{"upsert 20% random", 0.20, 0, 1, goalRandom},
	{"upsert 20% clustered", 0.20, 0.6, 0.20, goalClustered},
}

func upserts(ctx context.Context, b *bench) error {
	const name = "upsert"
	if err := b.create(name, orderSchema, "--key", "id"); err != nil {
		return err
	}
	rows := int64(b.scaled(upsertRows))
	random := rand.New(rand.NewPCG(1, 2))
	// Keys are even, so that there are others between them.
	ids := make([]int64, rows)
	for i := range ids {
		ids[i] = 2 * int64(i)
	}
	if err := b.upsert(ctx, name, random, ids, 4, false); err != nil {
		return err
	}
	m, err := b.merge(name)
	if err != nil {
		return err
	}
	fmt.Printf("%-22s %d rows in %.2f s, %.2f M rows/s, peak %d MiB of %d\n", "upsert base", m.rows, m.took.Seconds(),
		float64(m.rows)/m.took.Seconds()/1e6, m.peakMiB, b.memoryMiB)
	for _, c := range changes {
		if err := b.change(ctx, name, c, random, rows); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// upsert seals changes of the given ids, in so many generations per bucket.
func (b *bench) upsert(ctx context.Context, name string, r *rand.Rand, ids []int64, seals int, changes bool) error {
	router, err := writer.OpenRouter(ctx, writer.Config{Root: b.root, Table: name, Etcd: []string{b.etcd}, MaxPending: 4096, BufferBytes: 1 << 30})
	if err != nil {
		return err
	}
	defer router.Close(ctx) // everything was sealed
	const slice = 250_000
	for part := range slices.Chunk(ids, (len(ids)+seals-1)/seals) {
		for some := range slices.Chunk(part, slice) {
			rec := orders(r, some, changes)
			err := router.Append(ctx, rec)
			rec.Release()
			if err != nil {
				return err
			}
		}
		if _, err := router.Seal(ctx); err != nil {
			return err
		}
	}
	return nil
}

// drawIDs draws n different ids, a tenth of them new ones, in no order.
func (c change) drawIDs(r *rand.Rand, rows int64) []int64 {
	n := int(c.share * float64(rows))
	from, of := int64(c.from*float64(rows)), int64(c.of*float64(rows))
	drawn := map[int64]bool{}
	ids := make([]int64, 0, n)
	for len(ids) < n {
		id := 2 * (from + r.Int64N(of))
		if r.IntN(10) == 0 {
			id++
		}
		if !drawn[id] {
			drawn[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

func (b *bench) change(ctx context.Context, name string, c change, r *rand.Rand, rows int64) error {
	earlier, _, err := b.sealed(name)
	if err != nil {
		return err
	}
	ids := c.drawIDs(r, rows)
	if int(c.of*float64(rows)) == len(ids) {
		slices.Sort(ids) // everything in a range
	}
	if err := b.upsert(ctx, name, r, ids, upsertSeals, true); err != nil {
		return err
	}
	sealed, _, err := b.sealed(name)
	if err != nil {
		return err
	}
	sealed = slices.DeleteFunc(sealed, func(f string) bool { return slices.Contains(earlier, f) })
	before, err := b.live(ctx, name)
	if err != nil {
		return err
	}
	size := int64(0)
	for _, f := range sealed {
		info, err := os.Stat(f)
		if err != nil {
			return err
		}
		size += info.Size()
	}
	m, err := b.merge(name)
	if err != nil {
		return err
	}
	after, err := b.live(ctx, name)
	if err != nil {
		return err
	}
	out := filepath.Join(filepath.Dir(b.root), "duckdb.parquet")
	defer os.Remove(out)
	duckdb := runBaseline(ctx, "DuckDB", baselineJob{Kind: "duckdb", SQL: fmt.Sprintf(
		`copy (with changes as (select * from %s)
			select * from %s where id not in (select id from changes)
			union all select * exclude (_op) from changes where _op is null
			order by id) to '%s' (format parquet, compression zstd)`, parquetFiles(sealed), parquetFiles(before), out)})
	if duckdb.err == nil {
		if err := same(ctx, after, out); err != nil {
			return err
		}
	}
	delta := b.deltaMerge(ctx, before, sealed)
	b.report(c.name, len(sealed), size, m, duckdb.ratio(m.took, c.goal), delta.ratio(m.took, goalDeltaMerge),
		fmt.Sprintf("%.2f M rows of the table/s, goal %.2g", float64(rows)/m.took.Seconds()/1e6, goalRowsOut/1e6))
	return nil
}

// live are the data files of a table.
func (b *bench) live(ctx context.Context, name string) (files []string, err error) {
	c, r := clock.System(), random.New()
	store, err := objstore.NewLocal(b.root, c, r)
	if err != nil {
		return nil, err
	}
	t, err := table.Load(ctx, store, name, table.Deps{Clock: c, Random: r, Log: hclog.NewNullLogger()})
	if err != nil {
		return nil, err
	}
	for add := range t.Snapshot.Files() {
		files = append(files, filepath.Join(b.root, name, add.Path))
	}
	return files, nil
}

// same compares the rows of files with those of another one.
func same(ctx context.Context, files []string, other string) error {
	const sums = `select count(*), bit_xor(hash(id, "at", customer, state, amount, items)), sum(id) from `
	compared := runBaseline(ctx, "DuckDB", baselineJob{Kind: "duckdb", SQL: fmt.Sprintf(
		"select case when (select s from (%s) s) = (select s from (%s) s) then 0 else error('DuckDB made another table') end",
		sums+parquetFiles(files), sums+parquetFiles([]string{other}))})
	return compared.err
}

// deltaMerge has delta-rs merge changes into a table of the same files.
func (b *bench) deltaMerge(ctx context.Context, base, changes []string) baseline {
	dir := filepath.Join(filepath.Dir(b.root), "delta-rs")
	defer os.RemoveAll(dir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return baseline{name: "delta-rs", err: err}
	}
	return runBaseline(ctx, "delta-rs", baselineJob{Kind: "delta-rs-merge", Files: base, Changes: changes, Dir: dir})
}
