package merge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
)

// generationFile is the key of a generation's file.
func (w *world) generationFile(shard string, generation uint64) string {
	w.t.Helper()
	m, err := w.chain(shard).Latest(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	g, ok := m.Generation(generation)
	if !ok {
		w.t.Fatalf("no generation %d", generation)
	}
	return tableName + "/" + g.Path
}

// change replaces an object by what edit makes of it.
func (w *world) change(key string, edit func([]byte) []byte) {
	w.t.Helper()
	body, _, err := w.store.Get(w.ctx, key)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.Delete(w.ctx, key); err != nil {
		w.t.Fatal(err)
	}
	w.put(key, edit(slices.Clone(body)))
}

func TestADamagedGenerationStopsItsShardAndNothingElse(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"a flipped bit": func(b []byte) []byte { b[20] ^= 4; return b },
		"cut short":     func(b []byte) []byte { return b[:len(b)-7] },
		"no bytes":      func([]byte) []byte { return nil },
		"not parquet":   func(b []byte) []byte { return []byte(strings.Repeat("x", len(b))) },
	} {
		t.Run("append, "+name, func(t *testing.T) {
			w := newWorld(t, appendTable())
			var want []row
			for g := range 4 {
				for _, shard := range []string{"a", "b", "c"} {
					r := row{key: fmt.Sprintf("%s%d", shard, g)}
					w.seal(shard, r)
					if shard == "a" || shard == "b" && g < 2 {
						want = append(want, r)
					}
				}
			}
			w.change(w.generationFile("b", 3), damage)
			w.change(w.generationFile("c", 1), damage)
			out, err := Run(w.ctx, w.deps(), w.request("a", "b", "c"))
			if err != nil {
				t.Fatal(err)
			}
			expectFailures(t, out, "b 3 generation_damaged data", "c 1 generation_damaged data")
			var file *parquetfile.FileError
			if strings.Contains(out.Failures[0].Message, "parquet file "+w.generationFile("b", 3)) == errors.As(err, &file) {
				t.Errorf("the message does not name the file: %s", out.Failures[0].Message)
			}
			w.expect(want)
			w.expectNoStrayFiles()
			if len(out.Commits) != 1 {
				t.Fatalf("%+v", out)
			}
		})
		t.Run("upsert, "+name, func(t *testing.T) {
			w := newWorld(t, upsertTable(2, false))
			m := model{}
			for g := range 4 {
				var rows []row
				for i := range 8 {
					rows = append(rows, row{key: fmt.Sprintf("k%d", i), value: int64(g)})
				}
				w.upsert(rows...)
				for _, r := range rows {
					if w.bucketOf(r.key) == "bucket-0000" || g < 2 {
						m.apply([]row{r}, false)
					}
				}
			}
			w.change(w.generationFile("bucket-0001", 3), damage)
			out, err := Run(w.ctx, w.deps(), w.request(w.buckets()...))
			if err != nil {
				t.Fatal(err)
			}
			expectFailures(t, out, "bucket-0001 3 generation_damaged data")
			w.expect(m.rows())
			w.expectNoStrayFiles()
			w.expectSortedBase()
		})
	}
}

func expectFailures(t *testing.T, out Outcome, want ...string) {
	t.Helper()
	var got []string
	for _, f := range out.Failures {
		got = append(got, fmt.Sprintf("%s %d %s %s", f.Shard, f.Generation, f.Code, f.Class))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("failures %v, want %v\n%+v", got, want, out.Failures)
	}
}

func TestAMissingGenerationIsLookedForAgainThenReported(t *testing.T) {
	w := newWorld(t, appendTable())
	w.seal("a", row{key: "1"})
	w.seal("a", row{key: "2"})
	if err := w.store.Delete(w.ctx, w.generationFile("a", 2)); err != nil {
		t.Fatal(err)
	}
	out, err := Run(w.ctx, w.deps(), w.request("a"))
	if err != nil {
		t.Fatal(err)
	}
	expectFailures(t, out, "a 2 generation_missing data")
	w.expect([]row{{key: "1"}})
	w.expectNoStrayFiles()
}

// reader is a store that calls back before a generation is read for the first time.
type reader struct {
	objstore.Store
	first func()
}

func (r *reader) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	r.saw(key)
	return r.Store.Get(ctx, key)
}

func (r *reader) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	r.saw(key)
	return r.Store.GetRange(ctx, key, offset, length)
}

func (r *reader) saw(key string) {
	if first := r.first; first != nil && strings.Contains(key, "/gen/") {
		r.first = nil
		first()
	}
}

func TestAGenerationThatWasMergedAndTrimmedMeanwhileIsNotMissed(t *testing.T) {
	w := newWorld(t, appendTable())
	w.seal("a", row{key: "1"})
	file := w.generationFile("a", 1)
	d := w.deps()
	d.Lanes = 1
	d.Store = &reader{w.store, func() {
		w.merge("a")
		if _, err := w.chain("a").Trim(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		if err := w.store.Delete(w.ctx, file); err != nil {
			t.Fatal(err)
		}
		delete(w.holds, "a")
		w.seal("a", row{key: "2"})
	}}
	out, err := Run(w.ctx, d, w.request("a"))
	if err != nil {
		t.Fatal(err)
	}
	expectFailures(t, out)
	w.expect([]row{{key: "1"}, {key: "2"}})
}

func TestARegressedMarkStopsTheShard(t *testing.T) {
	w := newWorld(t, appendTable())
	w.seal("a", row{key: "1"})
	w.seal("a", row{key: "2"})
	w.seal("b", row{key: "3"})
	// The manifest says that generation 1 was merged and cleaned up, the table has never heard of it.
	if _, err := w.chain("a").Trim(w.ctx, 1); err != nil {
		t.Fatal(err)
	}
	out, err := Run(w.ctx, w.deps(), w.request("a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	expectFailures(t, out, "a 0 mark_regressed data")
	w.expect([]row{{key: "3"}})
}

func TestAShardThatIsNoBucketIsRefused(t *testing.T) {
	w := newWorld(t, upsertTable(2, false))
	w.upsert(row{key: "x"})
	rec := record(w.mem, []row{{key: "y"}}, true)
	defer rec.Release()
	w.sealRecord("stray", rec)
	out, err := Run(w.ctx, w.deps(), w.request(append(w.buckets(), "stray", "never claimed")...))
	if err != nil {
		t.Fatal(err)
	}
	expectFailures(t, out, "stray 0 wrong_bucket data")
	w.expect([]row{{key: "x"}})
}

func TestRowsThatBreakTheRulesStopTheirShard(t *testing.T) {
	build := func(w *world, key any, op string) arrow.Record {
		fields := testGenerationSchema.Fields()
		fields[0].Nullable = true
		b := array.NewRecordBuilder(w.mem, arrow.NewSchema(fields, nil))
		defer b.Release()
		if key == nil {
			b.Field(0).AppendNull()
		} else {
			b.Field(0).(*array.StringBuilder).Append(key.(string))
		}
		b.Field(1).(*array.Int64Builder).Append(0)
		b.Field(2).AppendNull()
		b.Field(3).(*array.StringBuilder).Append(op)
		return b.NewRecord()
	}
	for name, c := range map[string]struct {
		key any
		op  string
	}{
		"a null key":           {nil, "u"},
		"an unknown operation": {"a", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, upsertTable(1, false))
			w.upsert(row{key: "fine"})
			rec := build(w, c.key, c.op)
			defer rec.Release()
			w.sealRecord(w.buckets()[0], rec)
			out, err := Run(w.ctx, w.deps(), w.request(w.buckets()...))
			if err != nil {
				t.Fatal(err)
			}
			expectFailures(t, out, "bucket-0000 2 rows_refused data")
			w.expect([]row{{key: "fine"}})
		})
	}
}

func TestAnExecutionOlderThanHalfTheRetentionDoesNotCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := appendTable()
		o.Properties = map[string]string{"delta.deletedFileRetentionDuration": "interval 1 hour"}
		w := newWorld(t, o)
		w.seal("a", row{key: "x"})
		d := w.deps()
		d.Lanes = 1
		d.Store = &reader{w.store, func() { time.Sleep(30 * time.Minute) }}
		_, err := Run(w.ctx, d, w.request("a"))
		if CodeOf(err) != CodeTooOld || ClassOf(err) != Retryable {
			t.Fatal(err)
		}
		w.expect(nil)
		w.expectNoStrayFiles()
		w.merge("a")
		w.expect([]row{{key: "x"}})
	})
}

func TestAFencedExecutionIsLostNotFailed(t *testing.T) {
	w := newWorld(t, appendTable())
	w.seal("a", row{key: "x"})
	scope := objstore.NewScope(w.store, w.clock)
	d := w.deps()
	d.Store = &gate{scope, func() { scope.Fence(errors.New("the lease is gone")) }}
	_, err := Run(w.ctx, d, w.request("a"))
	if ClassOf(err) != Lost {
		t.Fatalf("class %s of %v", ClassOf(err), err)
	}
	w.expect(nil)
}

func TestATableWhoseBaseWasDamagedStopsTheBucket(t *testing.T) {
	w := newWorld(t, upsertTable(2, false))
	var rows []row
	for i := range 10 {
		rows = append(rows, row{key: fmt.Sprintf("k%d", i)})
	}
	w.upsert(rows...)
	w.merge(w.buckets()...)
	m := model{}
	m.apply(rows, false)
	for add := range w.load().Snapshot.Files() {
		if add.Tags["tidemark.bucket"] == "bucket-0001" {
			w.change(tableName+"/"+add.Path, func(b []byte) []byte { return b[:len(b)/2] })
		}
	}
	for i := range rows {
		rows[i].value = 7
	}
	w.upsert(rows...)
	out, err := Run(w.ctx, w.deps(), w.request(w.buckets()...))
	if err != nil {
		t.Fatal(err)
	}
	expectFailures(t, out, "bucket-0001 2 base_file_damaged data")
	if mark := w.load().Mark("bucket-0000"); mark != 2 {
		t.Fatalf("the other bucket's mark is %d", mark)
	}
}

func TestWhatPrecedesABadGenerationIsMergedInHoweverManyCommits(t *testing.T) {
	w := newWorld(t, evolvingTable("key"))
	shard := w.buckets()[0]
	for g := range 5 {
		fields, value := []arrow.Field{fieldKey, fieldInt, fieldOp}, fmt.Sprint(g)
		if g == 3 {
			fields, value = []arrow.Field{fieldKey, fieldText, fieldOp}, `"text"`
		}
		w.sealJSON(shard, fields, fmt.Sprintf(`[{"key":"k%d","n":%s}]`, g, value))
	}
	req := w.request(shard)
	req.Budget = 1 // one generation at a time
	out, err := Run(w.ctx, w.deps(), req)
	if err != nil {
		t.Fatal(err)
	}
	expectFailures(t, out, "bucket-0000 4 schema_clash data")
	if len(out.Commits) != 3 || out.Merged[0].Mark.Gen != 3 || out.Merged[0].Remaining != 2 {
		t.Fatalf("%+v", out)
	}
}

func TestATableWithAChangedSettingIsNotRetriedBlindly(t *testing.T) {
	w := newWorld(t, appendTable())
	w.seal("a", row{key: "x"})
	s := w.load().Snapshot
	m := s.Metadata
	m.Configuration = maps.Clone(m.Configuration)
	m.Configuration["tidemark.mode"] = "upsert"
	log := deltalog.Open(w.store, tableName, deltalog.Options{Clock: w.clock, Random: w.random})
	_, err := log.Commit(w.ctx, deltalog.Intent{
		TableID: w.table.ID, Read: s, Metadata: &m, Info: deltalog.CommitInfo{Operation: "SET TBLPROPERTIES"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Run(w.ctx, w.deps(), w.request("a"))
	if CodeOf(err) != CodeTable || ClassOf(err) != Data {
		t.Fatalf("%s %s: %v", CodeOf(err), ClassOf(err), err)
	}
}
