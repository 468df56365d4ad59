package writer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/rowkey"
	"tidemark/internal/table"
)

var stateFields = []arrow.Field{
	{Name: "key", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "at", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
}

var (
	statesSchema = arrow.NewSchema(stateFields, nil)
	opsSchema    = arrow.NewSchema(append(slices.Clone(stateFields), arrow.Field{Name: "_op", Type: arrow.BinaryTypes.String, Nullable: true}), nil)
)

func states(t testing.TB, buckets int) (objstore.Store, Deps, *table.Table) {
	s := objstore.NewMemory(clock.System())
	tbl := createTable(t, s, "states", statesSchema, table.CreateOptions{Key: []string{"key"}, Sequence: "at", Buckets: buckets})
	return s, Deps{Store: s}, tbl
}

func TestAnUpsertGenerationIsSortedByKeyAndKeepsArrivalOrderAmongEqualKeys(t *testing.T) {
	s, d, tbl := states(t, 1)
	w := mustClaim(t, Config{Table: "states", Shard: "bucket-0000"}, d)
	mustAppend(t, w, rec(t, statesSchema, `{"key": "c", "at": 1}`, `{"key": "a", "at": 9}`))
	mustAppend(t, w, rec(t, opsSchema, `{"key": "c", "at": 2, "_op": "d"}`, `{"key": "b", "at": 3}`, `{"key": "a", "at": 4, "_op": "u"}`))
	mustAppend(t, w, rec(t, statesSchema, `{"key": "c", "at": 0}`))
	mustSeal(t, w)
	mustAppend(t, w, rec(t, opsSchema, `{"key": "z", "at": 1, "_op": "u"}`))
	mustSeal(t, w)
	got := read(t, s, tbl, "bucket-0000")
	want := `{"_op":null,"at":9,"key":"a"}
{"_op":"u","at":4,"key":"a"}
{"_op":null,"at":3,"key":"b"}
{"_op":null,"at":1,"key":"c"}
{"_op":"d","at":2,"key":"c"}
{"_op":null,"at":0,"key":"c"}`
	if got[0] != want {
		t.Fatalf("%s", got[0])
	}
	if got[1] != `{"at":1,"key":"z"}` {
		t.Fatalf("a generation without deletes has no _op: %s", got[1])
	}
	m := latest(t, s, tbl, "bucket-0000")
	var keys rowkey.Keys
	encoder, err := rowkey.NewEncoder(statesSchema, []string{"key"})
	if err != nil {
		t.Fatal(err)
	}
	if err := encoder.Encode(rec(t, statesSchema, `{"key": "a"}`, `{"key": "c"}`), &keys); err != nil {
		t.Fatal(err)
	}
	if g := m.Generations[0]; string(g.KeyMin) != string(keys.At(0)) || string(g.KeyMax) != string(keys.At(1)) {
		t.Fatalf("key range %x to %x", g.KeyMin, g.KeyMax)
	}
}

func TestRowsThatCannotBeUpsertedAreRefusedNamingColumnAndRow(t *testing.T) {
	_, d, _ := states(t, 2)
	key := keyOf(t, 0, 2)
	w := mustClaim(t, Config{Table: "states", Shard: "bucket-0000"}, d)
	good := fmt.Sprintf(`{"key": %q, "at": 1}`, key)
	for _, bad := range []struct{ row, column, says string }{
		{`{"key": null, "at": 1}`, "key", "null"},
		{fmt.Sprintf(`{"key": %q, "at": null}`, key), "at", "sequence"},
		{fmt.Sprintf(`{"key": %q, "at": 1, "_op": "x"}`, key), "_op", `"x"`},
		{fmt.Sprintf(`{"key": %q, "at": 1}`, keyOf(t, 1, 2)), "key", "bucket-0001"},
	} {
		err := w.Append(t.Context(), rec(t, opsSchema, good, bad.row))
		if err == nil || !strings.Contains(err.Error(), bad.column) || !strings.Contains(err.Error(), bad.says) || !strings.Contains(err.Error(), "row 1") {
			t.Errorf("%s: %v", bad.row, err)
		}
	}
	if sealed := mustSeal(t, w); sealed.Rows != 0 {
		t.Fatalf("%d rows of refused records were taken", sealed.Rows)
	}
	if _, err := ClaimWith(t.Context(), Config{Table: "states", Shard: "rollout-0"}, d); err == nil || !strings.Contains(err.Error(), "rollout-0") {
		t.Fatalf("a shard that is no bucket: %v", err)
	}
}

// keyOf finds a key that belongs to a bucket.
func keyOf(t testing.TB, bucket, buckets int) string {
	encoder, err := rowkey.NewEncoder(statesSchema, []string{"key"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		key := fmt.Sprint("key-", i)
		var keys rowkey.Keys
		if err := encoder.Encode(rec(t, statesSchema, fmt.Sprintf(`{"key": %q}`, key)), &keys); err != nil {
			t.Fatal(err)
		}
		if rowkey.Bucket(keys.At(0), buckets) == bucket {
			return key
		}
	}
	t.Fatal("no key")
	return ""
}

func manyStates(t testing.TB, from, n int) arrow.Record {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"key": "key-%d", "at": %d}`, (from+i)%50, from+i)
	}
	return rec(t, statesSchema, rows...)
}

func TestARouterFilesEveryRowUnderItsBucketOnce(t *testing.T) {
	const buckets = 4
	s, d, tbl := states(t, buckets)
	r, err := OpenRouterWith(t.Context(), Config{Table: "states", Label: "router"}, d)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, r, manyStates(t, 0, 100))
	mustAppend(t, r, manyStates(t, 100, 1))
	sealed, err := r.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var rows int64
	for i, one := range sealed {
		rows += one.Rows
		if one.Generation != 1 || i > 0 && one.Shard <= sealed[i-1].Shard {
			t.Fatalf("%+v", sealed)
		}
	}
	if rows != 101 || len(sealed) != buckets {
		t.Fatalf("%d rows in %d buckets", rows, len(sealed))
	}
	if again, err := r.Seal(t.Context()); err != nil || len(again) != 0 {
		t.Fatalf("buckets without rows were sealed: %+v, %v", again, err)
	}
	mustAppend(t, r, manyStates(t, 200, 50))
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for b := range buckets {
		for _, generation := range read(t, s, tbl, rowkey.BucketShard(b)) {
			for row := range strings.Lines(generation) {
				seen[strings.TrimSpace(row)]++
			}
		}
	}
	if len(seen) != 151 {
		t.Fatalf("%d different rows", len(seen))
	}
	if _, err := r.Seal(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func openRouter(t *testing.T, d Deps, label string) *Router {
	t.Helper()
	r, err := OpenRouterWith(t.Context(), Config{Table: "states", Label: label}, d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// abandon ends a Router and returns how many rows it hands back.
func abandon(t *testing.T, r *Router) int64 {
	t.Helper()
	unsealed, inDoubt, err := r.Abandon()
	if err != nil || len(inDoubt) > 0 {
		t.Fatal(inDoubt, err)
	}
	return countRows(unsealed)
}

func TestOfTwoRoutersTheOneOpenedLaterHasTheTableAndNothingSealedIsLost(t *testing.T) {
	s, d, tbl := states(t, 2)
	first := openRouter(t, d, "first")
	mustAppend(t, first, manyStates(t, 0, 20))
	if _, err := first.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, first, manyStates(t, 20, 20))
	second := openRouter(t, d, "second")
	sealed, err := first.Seal(t.Context())
	var fenced *FencedError
	if !errors.As(err, &fenced) || fenced.Shard != "bucket-0000" || !strings.Contains(fenced.By, "second") || len(sealed) != 0 {
		t.Fatal(sealed, err)
	}
	if back := countRows(fenced.Unsealed) + abandon(t, first); back != 20 {
		t.Fatalf("%d rows were handed back", back)
	}
	mustAppend(t, second, manyStates(t, 40, 5))
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := latest(t, s, tbl, "bucket-0000").Rows + latest(t, s, tbl, "bucket-0001").Rows; rows != 25 {
		t.Fatalf("%d rows", rows)
	}
}

func TestARouterTakesABucketBackFromOneThatHasLostTheTable(t *testing.T) {
	s, d, tbl := states(t, 2)
	row := func(at int) arrow.Record {
		return rec(t, statesSchema, fmt.Sprintf(`{"key": %q, "at": %d}`, keyOf(t, 1, 2), at))
	}
	first, second := openRouter(t, d, "first"), openRouter(t, d, "second")
	mustAppend(t, second, row(1))
	late := row(2)
	err := first.Append(t.Context(), late) // claims the bucket, and only then sees that the table is lost
	late.Release()
	var fenced *FencedError
	if !errors.As(err, &fenced) || !strings.Contains(fenced.By, "second") {
		t.Fatal(err)
	}
	abandon(t, first)
	if sealed, err := second.Seal(t.Context()); err != nil || len(sealed) != 1 || sealed[0].Rows != 1 {
		t.Fatal(sealed, err)
	}

	// Whoever claims the bucket alone does so on purpose.
	mustAppend(t, second, row(3))
	alone, err := ClaimWith(t.Context(), Config{Table: "states", Shard: "bucket-0001", Label: "alone"}, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Seal(t.Context()); !errors.As(err, &fenced) || !strings.Contains(fenced.By, "alone") || countRows(fenced.Unsealed) != 1 {
		t.Fatal(err)
	}
	abandon(t, second)
	if err := alone.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rows := latest(t, s, tbl, "bucket-0001").Rows; rows != 1 {
		t.Fatalf("%d rows", rows)
	}
}

func TestOfRoutersOpenedAtOnceExactlyTheLastFinishes(t *testing.T) {
	const rounds, routers, buckets = 30, 3, 4
	for range rounds {
		s, d, tbl := states(t, buckets)
		var group, opened sync.WaitGroup
		failures := make([]error, routers)
		opened.Add(routers)
		for i := range routers {
			group.Go(func() {
				r, err := OpenRouterWith(t.Context(), Config{Table: "states", Label: fmt.Sprintf("router-%d", i)}, d)
				opened.Done()
				opened.Wait() // one that has ended before another is opened was not in its way
				if failures[i] = err; err == nil {
					failures[i] = useRouter(t, r)
				}
			})
		}
		group.Wait()
		winner := latest(t, s, tbl, "bucket-0000").WriterLabel
		for i, err := range failures {
			if label := fmt.Sprintf("router-%d", i); (err == nil) != (label == winner) {
				t.Fatalf("%s has the arbiter, but %s ended with %v", winner, label, err)
			}
		}
	}
}

// useRouter writes three times to all buckets, and closes the Router.
func useRouter(t *testing.T, r *Router) error {
	write := func() error {
		for round := range 3 {
			record := manyStates(t, round*40, 40)
			err := r.Append(t.Context(), record)
			record.Release()
			if err != nil {
				return err
			}
			if _, err := r.Seal(t.Context()); err != nil {
				return err
			}
		}
		return r.Close(t.Context())
	}
	err := write()
	if err != nil {
		if fenced := (*FencedError)(nil); errors.As(err, &fenced) {
			countRows(fenced.Unsealed)
		}
		unsealed, _, _ := r.Abandon()
		countRows(unsealed)
	}
	return err
}

func TestARouterTakesARecordWholeOrNotAtAll(t *testing.T) {
	_, d, _ := states(t, 4)
	r, err := OpenRouterWith(t.Context(), Config{Table: "states", BufferBytes: 200}, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Append(t.Context(), manyStates(t, 0, 100)); !errors.Is(err, ErrBufferFull) {
		t.Fatal(err)
	}
	if sealed, err := r.Seal(t.Context()); err != nil || len(sealed) != 0 || r.room.used.Load() != 0 {
		t.Fatal(sealed, err)
	}
	mustAppend(t, r, manyStates(t, 0, 2))
	unsealed, _, err := r.Abandon()
	if err != nil || countRows(unsealed) != 2 {
		t.Fatal(unsealed, err)
	}
}

func TestARouterIsForUpsertTables(t *testing.T) {
	_, d, _ := events(t)
	if _, err := OpenRouterWith(t.Context(), Config{Table: "events"}, d); err == nil || !strings.Contains(err.Error(), "append table") {
		t.Fatal(err)
	}
}

func TestADeletesOnlyRecordNeedsNoMoreThanTheKey(t *testing.T) {
	s, d, tbl := states(t, 1)
	w := mustClaim(t, Config{Table: "states", Shard: "bucket-0000"}, d)
	only := arrow.NewSchema([]arrow.Field{
		{Name: "_op", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}},
		{Name: "at", Type: arrow.PrimitiveTypes.Int32}, {Name: "key", Type: arrow.BinaryTypes.LargeString},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, only)
	if err := b.Field(0).(*array.BinaryDictionaryBuilder).AppendString("d"); err != nil {
		t.Fatal(err)
	}
	b.Field(1).(*array.Int32Builder).Append(7)
	b.Field(2).(*array.LargeStringBuilder).Append("gone")
	mustAppend(t, w, b.NewRecord())
	mustSeal(t, w)
	if got := read(t, s, tbl, "bucket-0000"); got[0] != `{"_op":"d","at":7,"key":"gone"}` {
		t.Fatalf("%q", got)
	}
}
