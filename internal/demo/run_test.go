package demo

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/merge"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/random"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
	"tidemark/writer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newDeps() Deps {
	c := clock.System()
	return Deps{Writer: writer.Deps{Store: objstore.NewMemory(c), Clock: c, Random: random.Seeded(5), Mem: memory.DefaultAllocator}}
}

// mergedRows merges everything sealed of a table and yields the rows of its base files.
func mergedRows(t *testing.T, d Deps, name string) iter.Seq2[arrow.Record, error] {
	t.Helper()
	ctx := context.Background()
	tbl, err := table.Load(ctx, d.Writer.Store, name, table.Deps{Clock: d.Writer.Clock, Random: d.Writer.Random})
	if err != nil {
		t.Fatal(err)
	}
	shards, err := shardmanifest.ListShards(ctx, d.Writer.Store, name, tbl.ID)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := merge.Run(ctx, merge.Deps{Store: d.Writer.Store, Clock: d.Writer.Clock, Random: d.Writer.Random, Mem: d.Writer.Mem},
		merge.Request{Table: name, Shards: shards, Execution: "test", Budget: 256 << 20, CommitsMax: 1000})
	if err != nil || len(outcome.Failures) > 0 {
		t.Fatalf("merge of %s: %v, failures %+v", name, err, outcome.Failures)
	}
	snapshot, err := tbl.Log.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(arrow.Record, error) bool) {
		for add := range snapshot.Files() {
			r, err := parquetfile.OpenReader(ctx, d.Writer.Store, name+"/"+add.Path, parquetfile.ReaderOptions{})
			if err != nil {
				yield(nil, err)
				return
			}
			for {
				rec, err := r.Next(ctx)
				if err == io.EOF {
					break
				}
				more := yield(rec, err)
				if err != nil || !more {
					return
				}
				rec.Release()
			}
			if err := r.Close(); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

func wantMerged(t *testing.T, d Deps, expected Expectation) {
	t.Helper()
	for _, e := range expected.Tables {
		got, err := SumOf(mergedRows(t, d, e.Table))
		if err != nil {
			t.Fatal(err)
		}
		if got != e.Sum {
			t.Errorf("%s holds %v, expected %v", e.Table, got, e.Sum)
		}
	}
}

// TestTheMergedTablesHoldWhatTheDemoExpects is invariant 1 through writer, merge and Delta log.
func TestTheMergedTablesHoldWhatTheDemoExpects(t *testing.T) {
	d := newDeps()
	last := Progress{}
	expected, err := Run(context.Background(), d, Options{Seed: 1, Rows: 50_000, SealRows: 3000, OnProgress: func(p Progress) { last = p }})
	if err != nil {
		t.Fatal(err)
	}
	written := expected.Tables[0].Written + expected.Tables[1].Written
	if written > 50_000 || written < 50_000-WritersDefault*rowsPerStepMax || last.Rows != written {
		t.Errorf("wrote %d rows, the last progress was %+v", written, last)
	}
	if expected.Tables[1].Sum.Rows == 0 || expected.Tables[0].Sum.Rows != expected.Tables[0].Written {
		t.Errorf("expectation %+v", expected)
	}
	wantMerged(t, d, expected)
}

func TestASecondDemoStartsFromEmptyTables(t *testing.T) {
	d := newDeps()
	for seed := range uint64(2) {
		expected, err := Run(context.Background(), d, Options{Seed: seed, Rows: 5000, Writers: 2})
		if err != nil {
			t.Fatal(err)
		}
		wantMerged(t, d, expected)
	}
}

func TestATableOfTheUsersIsNeverDropped(t *testing.T) {
	d := newDeps()
	columns, err := newTable(context.Background(), d.Writer.Store, table.Deps{Clock: d.Writer.Clock, Random: d.Writer.Random}, "demo/other", EventSchema, table.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Create(context.Background(), d.Writer.Store, EventTable, table.CreateOptions{Schema: columns.Schema}, table.Deps{Clock: d.Writer.Clock, Random: d.Writer.Random}); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(context.Background(), d, Options{Rows: 100}); err == nil || !strings.Contains(err.Error(), "not made by the demo") {
		t.Errorf("got %v", err)
	}
}

func TestStoppingTheDemoSealsWhatWasMade(t *testing.T) {
	d := newDeps()
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("enough")
	expected, err := Run(ctx, d, Options{Seed: 3, SealRows: 2000, Writers: 2, OnProgress: func(p Progress) {
		if p.Generations == 7 {
			cancel(stop)
		}
	}})
	if !errors.Is(err, stop) {
		t.Fatalf("got %v", err)
	}
	wantMerged(t, d, expected)
}

func TestTheRateIsKeptAndSealsComeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeps()
		start, first := d.Writer.Clock.Mono(), time.Duration(0)
		_, err := Run(context.Background(), d, Options{Rows: 4000, Rate: 1000, Writers: 2, OnProgress: func(p Progress) {
			if first == 0 {
				first = d.Writer.Clock.Mono() - start
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if took := d.Writer.Clock.Mono() - start; took < 3800*time.Millisecond || took > 4*time.Second {
			t.Errorf("4000 rows at 1000 a second took %v", took)
		}
		if first < time.Second || first > 1200*time.Millisecond {
			t.Errorf("the first seal came after %v", first)
		}
	})
}

func TestFilesAreReplayed(t *testing.T) {
	d := newDeps()
	path := filepath.Join(t.TempDir(), "my orders.csv")
	var b strings.Builder
	b.WriteString("order id,note,at\n")
	for i := range 20_000 {
		b.WriteString(strings.Repeat("9", 1+i%5) + `,"",2024-01-31` + "\n")
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{0, 12_345} {
		expected, err := Run(context.Background(), d, Options{Files: []string{path}, SealRows: 1000, Rows: limit})
		if err != nil {
			t.Fatal(err)
		}
		want := int64(20_000)
		if limit > 0 {
			want = limit
		}
		if e := expected.Tables[0]; e.Table != "demo/my_orders" || e.Sum.Rows != want || e.Written != want {
			t.Errorf("expectation %+v", expected)
		}
		wantMerged(t, d, expected)
	}
}

func TestImpossibleOptionsAreRefused(t *testing.T) {
	for _, o := range []Options{{Writers: 65}, {Writers: -1}, {Rows: -1}, {Rate: -1}, {SealRows: -1}, {SealEvery: -1}} {
		if _, err := Run(context.Background(), newDeps(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
