package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

var eventsSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "note", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

// rec makes a record from JSON rows.
func rec(t testing.TB, s *arrow.Schema, rows ...string) arrow.Record {
	t.Helper()
	r, _, err := array.RecordFromJSON(memory.DefaultAllocator, s, strings.NewReader("["+strings.Join(rows, ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ids makes an events record of consecutive ids.
func ids(t testing.TB, from, n int) arrow.Record {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id": %d, "note": "row %d"}`, from+i, from+i)
	}
	return rec(t, eventsSchema, rows...)
}

func createTable(t testing.TB, s objstore.Store, name string, columns *arrow.Schema, o table.CreateOptions) *table.Table {
	t.Helper()
	sch, err := schema.FromArrow(columns)
	if err != nil {
		t.Fatal(err)
	}
	o.Schema = sch
	created, err := table.Create(t.Context(), s, name, o, table.Deps{Clock: clock.System(), Random: random.New()})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func events(t testing.TB) (objstore.Store, Deps, *table.Table) {
	s := objstore.NewMemory(clock.System())
	return s, Deps{Store: s, Random: random.Seeded(7)}, createTable(t, s, "events", eventsSchema, table.CreateOptions{})
}

func mustClaim(t testing.TB, c Config, d Deps) *Writer {
	t.Helper()
	if c.Table == "" {
		c.Table = "events"
	}
	if c.Shard == "" {
		c.Shard = "rollout-0"
	}
	w, err := ClaimWith(t.Context(), c, d)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustAppend(t testing.TB, w interface {
	Append(context.Context, arrow.Record) error
}, r arrow.Record) {
	t.Helper()
	if err := w.Append(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func mustSeal(t testing.TB, w *Writer) Sealed {
	t.Helper()
	sealed, err := w.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func latest(t testing.TB, s objstore.Store, tbl *table.Table, shard string) *shardmanifest.Manifest {
	t.Helper()
	m, err := chainOf(s, tbl, shard).Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// read returns the rows of all generations of a shard as JSON, one element per generation.
func read(t testing.TB, s objstore.Store, tbl *table.Table, shard string) []string {
	t.Helper()
	var all []string
	for _, g := range latest(t, s, tbl, shard).Generations {
		all = append(all, readGeneration(t, s, tbl, g))
	}
	return all
}

func readGeneration(t testing.TB, s objstore.Store, tbl *table.Table, g shardmanifest.Generation) string {
	t.Helper()
	if g.Rows == 0 {
		return ""
	}
	r, err := parquetfile.OpenReader(t.Context(), s, tbl.Name+"/"+g.Path, parquetfile.ReaderOptions{Size: g.Bytes, XXH3: g.XXH3})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	var rows strings.Builder
	for {
		batch, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return strings.TrimSpace(rows.String())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := array.RecordToJSON(batch, &rows); err != nil {
			t.Fatal(err)
		}
		batch.Release()
	}
}

func TestSealedRowsAreInTheirGenerationInAppendOrder(t *testing.T) {
	s, d, tbl := events(t)
	w := mustClaim(t, Config{Label: "test"}, d)
	mustAppend(t, w, ids(t, 5, 2))
	mustAppend(t, w, ids(t, 1, 1))
	first := mustSeal(t, w)
	if first.Generation != 1 || first.Rows != 3 || first.Bytes == 0 || first.Pending != 1 || first.Epoch != 1 {
		t.Fatalf("%+v", first)
	}
	if empty := mustSeal(t, w); empty.Generation != 2 || empty.Rows != 0 || empty.Pending != 2 {
		t.Fatalf("an empty seal: %+v", empty)
	}
	mustAppend(t, w, ids(t, 9, 1))
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"id":5,"note":"row 5"}` + "\n" + `{"id":6,"note":"row 6"}` + "\n" + `{"id":1,"note":"row 1"}`, "",
		`{"id":9,"note":"row 9"}`,
	}
	if got := read(t, s, tbl, "rollout-0"); !slices.Equal(got, want) {
		t.Fatalf("%q", got)
	}
	if m := latest(t, s, tbl, "rollout-0"); m.State != shardmanifest.StateClosed || m.WriterLabel != "test" {
		t.Fatalf("%+v", m)
	}
	if err := w.Append(t.Context(), ids(t, 1, 1)); !errors.Is(err, ErrClosed) {
		t.Fatalf("appending to a closed writer: %v", err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatalf("closing again: %v", err)
	}
}

func TestASecondWriterFencesTheFirstWhichGetsBackExactlyItsUnsealedRows(t *testing.T) {
	s, d, tbl := events(t)
	first := mustClaim(t, Config{Label: "first"}, d)
	mustAppend(t, first, ids(t, 1, 2))
	mustSeal(t, first)
	mustAppend(t, first, ids(t, 3, 2))
	mustAppend(t, first, ids(t, 5, 1))
	if _, err := ClaimWith(t.Context(), Config{Table: "events", Shard: "rollout-0", IfFree: true}, d); !errors.Is(err, ErrOpen) {
		t.Fatalf("the shard is not free: %v", err)
	}
	second := mustClaim(t, Config{Label: "second"}, d)
	mustAppend(t, second, ids(t, 9, 1))
	if got := mustSeal(t, second); got.Generation != 2 || got.Epoch != 2 {
		t.Fatalf("numbering does not continue: %+v", got)
	}
	_, err := first.Seal(t.Context())
	var fenced *FencedError
	if !errors.As(err, &fenced) || !errors.Is(err, ErrFenced) || !strings.Contains(fenced.By, "second") || fenced.ByEpoch != 2 {
		t.Fatal(err)
	}
	var back []int64
	for _, r := range fenced.Unsealed {
		back = append(back, r.Column(0).(*array.Int64).Int64Values()...)
	}
	if !slices.Equal(back, []int64{3, 4, 5}) || len(fenced.InDoubt) != 0 {
		t.Fatalf("handed back %v, in doubt %d", back, len(fenced.InDoubt))
	}
	if _, err := first.Seal(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatalf("a fenced writer seals: %v", err)
	}
	for _, r := range fenced.Unsealed {
		mustAppend(t, second, r)
	}
	mustSeal(t, second)
	if got := read(t, s, tbl, "rollout-0"); len(got) != 3 || !strings.Contains(got[2], "row 5") || strings.Contains(got[2], "row 2") {
		t.Fatalf("%q", got)
	}
}

func TestAWriterOfADroppedTableRetiresTheShardItClaimed(t *testing.T) {
	s, d, tbl := events(t)
	w := mustClaim(t, Config{}, d)
	mustAppend(t, w, ids(t, 1, 1))
	if err := table.Drop(t.Context(), s, "events", table.Deps{Clock: clock.System(), Random: random.New()}); err != nil {
		t.Fatal(err)
	}
	var fenced *FencedError
	if _, err := w.Seal(t.Context()); !errors.As(err, &fenced) || !errors.Is(err, ErrRetired) || len(fenced.Unsealed) != 1 {
		t.Fatalf("a live writer: %v", err)
	}
	// A claim that read the table before the drop.
	if _, err := open(t.Context(), Config{Table: "events"}, d); !errors.Is(err, table.ErrDropped) {
		t.Fatalf("a dropped table was opened: %v", err)
	}
	env := &environment{cfg: Config{Table: "events"}, deps: d, table: tbl, snapshot: tbl.Snapshot}
	env.deps.Clock = clock.System()
	if _, err := env.claim(t.Context(), "rollout-1", "", nil, nil); !errors.Is(err, table.ErrDropped) {
		t.Fatalf("claiming: %v", err)
	}
	if m := latest(t, s, tbl, "rollout-1"); m.State != shardmanifest.StateRetired {
		t.Fatalf("the shard is %s", m.State)
	}
}

func TestARecordIsRefusedWholeAndNamesTheColumn(t *testing.T) {
	s, d, tbl := events(t)
	w := mustClaim(t, Config{}, d)
	text := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	op := arrow.NewSchema(append(slices.Clone(eventsSchema.Fields()), arrow.Field{Name: "_op", Type: arrow.BinaryTypes.String}), nil)
	for want, bad := range map[string]arrow.Record{
		"id":  rec(t, text, `{"id": "seven"}`),
		"_op": rec(t, op, `{"id": 1, "note": "a", "_op": "u"}`),
	} {
		if err := w.Append(t.Context(), bad); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "events") {
			t.Errorf("%s: %v", want, err)
		}
	}
	mustAppend(t, w, ids(t, 1, 1))
	mustSeal(t, w)
	if got := read(t, s, tbl, "rollout-0"); len(got) != 1 || got[0] != `{"id":1,"note":"row 1"}` {
		t.Fatalf("%q", got)
	}
}

func TestNewColumnsAndWiderTypesGoIntoTheGeneration(t *testing.T) {
	s := objstore.NewMemory(clock.System())
	narrow := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true}}, nil)
	wide := arrow.NewSchema([]arrow.Field{
		{Name: "more", Type: arrow.FixedWidthTypes.Boolean, Nullable: true}, {Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	}, nil)
	tbl := createTable(t, s, "events", narrow, table.CreateOptions{})
	w := mustClaim(t, Config{}, Deps{Store: s})
	mustAppend(t, w, rec(t, narrow, `{"n": 1}`))
	mustAppend(t, w, rec(t, wide, `{"n": 4294967296, "more": true}`))
	mustAppend(t, w, rec(t, narrow, `{"n": 3}`))
	mustSeal(t, w)
	want := `{"more":null,"n":1}` + "\n" + `{"more":true,"n":4294967296}` + "\n" + `{"more":null,"n":3}`
	if got := read(t, s, tbl, "rollout-0"); got[0] != want {
		t.Fatalf("%s", got[0])
	}
}

func TestUnsealedRowsAreBoundedAndSealingMakesRoom(t *testing.T) {
	_, d, _ := events(t)
	r := ids(t, 1, 100)
	w := mustClaim(t, Config{BufferBytes: 2*recordBytes(r) + 10}, d)
	mustAppend(t, w, r)
	mustAppend(t, w, r)
	if err := w.Append(t.Context(), ids(t, 1, 10)); !errors.Is(err, ErrBufferFull) {
		t.Fatal(err)
	}
	mustSeal(t, w)
	mustAppend(t, w, r)
	if unsealed, inDoubt, err := w.Abandon(); len(unsealed) != 1 || len(inDoubt) != 0 || err != nil || w.room.used.Load() != 0 {
		t.Fatal(unsealed, inDoubt, err, w.room.used.Load())
	}
}

func TestOnlyTheRowsOfASliceCountAgainstTheBuffer(t *testing.T) {
	whole := ids(t, 1, 1000)
	part := whole.NewSlice(500, 510)
	if got, want := recordBytes(part), recordBytes(ids(t, 501, 10)); got != want {
		t.Fatalf("%d bytes for a slice, %d for the same rows", got, want)
	}
}

func chainOf(s objstore.Store, tbl *table.Table, shard string) *shardmanifest.Chain {
	return shardmanifest.Open(s, tbl.Name, tbl.ID, shard, shardmanifest.Options{Clock: clock.System(), Random: random.New()})
}

// trimTo does what cleanup does once executors have merged up to a mark.
func trimTo(t testing.TB, s objstore.Store, tbl *table.Table, shard string, merged uint64) {
	t.Helper()
	if _, err := chainOf(s, tbl, shard).Trim(t.Context(), merged); err != nil {
		t.Fatal(err)
	}
}

func cleanChain(t testing.TB, s objstore.Store, tbl *table.Table, shard string) int {
	t.Helper()
	garbage, err := chainOf(s, tbl, shard).Garbage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deleted, _, err := chainOf(s, tbl, shard).Clean(t.Context(), garbage)
	if err != nil {
		t.Fatal(err)
	}
	return deleted
}
