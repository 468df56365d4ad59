package maintain_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/clock"
	"tidemark/internal/compaction"
	"tidemark/internal/deltalog"
	"tidemark/internal/maintain"
	"tidemark/internal/merge"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
	"tidemark/writer"
)

// load is a table that is written, merged and maintained for days, under the bubble's clock. The store's own times are of
// the same clock.
type load struct {
	t       *testing.T
	store   objstore.Store
	clock   clock.Clock
	random  random.Source
	rows    *rand.Rand
	writers map[string]*writer.Writer
	cleaned time.Time
	works   int
	did     map[string]int
}

const loaded = "events"

var loadSchema = arrow.NewSchema([]arrow.Field{
	{Name: "key", Type: arrow.PrimitiveTypes.Int64}, {Name: "payload", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

func newLoad(t *testing.T, o table.CreateOptions) *load {
	c := clock.System()
	l := &load{t: t, store: objstore.NewMemory(c), clock: c, random: random.Seeded(1), rows: rand.New(rand.NewPCG(1, 2)),
		writers: map[string]*writer.Writer{}, cleaned: c.Now(), did: map[string]int{}}
	columns, err := schema.FromArrow(loadSchema)
	if err != nil {
		t.Fatal(err)
	}
	o.Schema = columns
	if _, err := table.Create(t.Context(), l.store, loaded, o, l.tableDeps()); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *load) tableDeps() table.Deps { return table.Deps{Clock: l.clock, Random: l.random} }

func (l *load) deps() maintain.Deps {
	return maintain.Deps{Store: l.store, Clock: l.clock, Random: l.random}
}

func (l *load) mergeDeps() merge.Deps {
	return merge.Deps{Store: l.store, Clock: l.clock, Random: l.random, Mem: memory.DefaultAllocator}
}

func (l *load) execution() string {
	l.works++
	return fmt.Sprintf("%08d", l.works)
}

func (l *load) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// seal seals a generation of rows with random payloads, of keys below most.
func (l *load) seal(shard string, rows int, most int64) {
	l.t.Helper()
	w := l.writers[shard]
	if w == nil {
		var err error
		w, err = writer.ClaimWith(l.t.Context(), writer.Config{Table: loaded, Shard: shard}, writer.Deps{
			Store: l.store, Clock: l.clock, Random: l.random, Mem: memory.DefaultAllocator,
		})
		l.must(err)
		l.writers[shard] = w
	}
	keys, payloads := array.NewInt64Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
	for range rows {
		keys.Append(l.rows.Int64N(most))
		payloads.Append(fmt.Sprintf("%016x%016x", l.rows.Uint64(), l.rows.Uint64()))
	}
	rec := array.NewRecord(loadSchema, []arrow.Array{keys.NewArray(), payloads.NewArray()}, int64(rows))
	l.must(w.Append(l.t.Context(), rec))
	_, err := w.Seal(l.t.Context())
	l.must(err)
}

func (l *load) merge(shards ...string) {
	l.t.Helper()
	out, err := merge.Run(l.t.Context(), l.mergeDeps(), merge.Request{Table: loaded, Shards: shards, Execution: l.execution(), Budget: 64 << 20})
	l.must(err)
	if len(out.Failures) > 0 {
		l.t.Fatalf("%+v", out.Failures)
	}
}

func (l *load) table() *table.Table {
	l.t.Helper()
	t, err := table.Load(l.t.Context(), l.store, loaded, l.tableDeps())
	l.must(err)
	return t
}

// maintain does what is due, as masters decide and executors do it, until nothing is.
func (l *load) maintain() {
	l.t.Helper()
	for {
		t := l.table()
		properties, err := deltalog.ParseProperties(t.Snapshot.Metadata.Configuration)
		l.must(err)
		state := maintain.State{
			Version: t.Snapshot.Version, Checkpoint: t.Snapshot.Checkpoint, CheckpointEvery: properties.CheckpointInterval,
			SinceCleanup: l.clock.Now().Sub(l.cleaned), CompactFiles: 32,
			Compaction: compaction.Count(compaction.Plan(t.Snapshot.Files(), compaction.Options{Target: properties.TargetFileSize, Upsert: t.Mode == table.Upsert})),
		}
		for m, err := range shardmanifest.ListLatest(l.t.Context(), l.store, loaded, t.ID, nil) {
			l.must(err)
			n := t.Mark(m.Shard) - m.TrimmedThrough
			state.Untrimmed, state.UntrimmedMost = state.Untrimmed+n, max(state.UntrimmedMost, n)
		}
		switch needs := maintain.Due(state); {
		case needs.Checkpoint.Due:
			_, err := maintain.Checkpoint(l.t.Context(), l.deps(), loaded)
			l.must(err)
			l.did["checkpoint"]++
		case needs.Cleanup.Due:
			r, err := maintain.Cleanup(l.t.Context(), l.deps(), loaded)
			l.must(err)
			l.did["cleanup"]++
			if !r.More {
				l.cleaned = l.clock.Now()
			}
		case needs.Compaction.Due:
			_, err := merge.Compact(l.t.Context(), l.mergeDeps(), merge.CompactRequest{Table: loaded, Execution: l.execution(), Budget: 64 << 20})
			l.must(err)
			l.did["compaction"]++
		default:
			return
		}
	}
}

// below adds up what lies under the table, by kind.
func (l *load) below() (bytes, objects map[string]int64) {
	l.t.Helper()
	bytes, objects = map[string]int64{}, map[string]int64{}
	live := l.table().Snapshot
	for o, err := range objstore.ListAll(l.t.Context(), l.store, loaded+"/") {
		l.must(err)
		kind := "dead data"
		if _, is := live.File(strings.TrimPrefix(o.Key, loaded+"/")); is {
			kind = "live data"
		}
		for _, part := range []string{"_delta_log", "manifest", "gen"} {
			if strings.Contains(o.Key, "/"+part+"/") {
				kind = part
			}
		}
		bytes[kind] += o.Size
		objects[kind]++
	}
	return bytes, objects
}

// crash leaves what an execution leaves that dies in the middle of its work.
func (l *load) crash() {
	l.t.Helper()
	body := make([]byte, 50_000)
	if res := l.store.PutIfAbsent(l.t.Context(), fmt.Sprintf("%s/part-%s-0.parquet", loaded, l.execution()), body); res.Err != nil {
		l.t.Fatal(res.Err)
	}
}

// The constant: what lies under a table beside its live files once its retentions have passed, whatever was written. The log
// has one checkpoint, with a few hundred bytes about each live file, and ten versions at most after it. A shard keeps the 16
// manifests above its boundary, which list what had been merged since the last cleanup when the load ended, and those that
// date its last trims.
const (
	logBytesMax   = 64 << 10
	shardBytesMax = 192 << 10
)

func TestAfterALoadAndItsRetentionTheBytesUnderATableAreThoseOfItsLiveFilesPlusAConstant(t *testing.T) {
	properties := map[string]string{"delta.logRetentionDuration": "interval 2 days", "delta.deletedFileRetentionDuration": "interval 1 day"}
	loads := map[string]struct {
		options table.CreateOptions
		shards  []string
	}{
		"append": {table.CreateOptions{Properties: properties}, []string{"a", "b", "c"}},
		"upsert": {table.CreateOptions{Properties: properties, Key: []string{"key"}, Buckets: 1}, []string{"bucket-0000"}},
	}
	for name, load := range loads {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLoad(t, load.options)
				written := int64(0)
				for round := range 120 { // more than three days
					for _, shard := range load.shards {
						for range 3 {
							l.seal(shard, 300, 20_000)
							written += 300 * 40
						}
					}
					l.merge(load.shards...)
					l.maintain()
					if round%20 == 0 {
						l.crash()
					}
					time.Sleep(40 * time.Minute)
				}
				during, _ := l.below()
				for range 4 { // days, in which nothing is written
					time.Sleep(25 * time.Hour)
					l.maintain()
				}
				after, objects := l.below()
				t.Logf("%d kB of rows were written; %v during the load; %v after it, of %v objects; %v", written>>10, during, after, objects, l.did)
				live := l.table().Snapshot.Bytes()
				total := int64(0)
				for _, n := range after {
					total += n
				}
				if after["live data"] != live || after["gen"] != 0 || after["dead data"] != 0 {
					t.Errorf("%v: the live files are %d bytes", after, live)
				}
				if total > live+logBytesMax+int64(len(load.shards))*shardBytesMax {
					t.Errorf("%d bytes lie under the table, %d of them are live", total, live)
				}
				if l.did["checkpoint"] < 10 || l.did["cleanup"] < 3 || name == "append" && l.did["compaction"] < 3 {
					t.Errorf("maintenance: %v", l.did)
				}
				if rows := countRows(l); name == "append" && rows != 120*9*300 || name == "upsert" && rows > 20_000 {
					t.Errorf("%d rows", rows)
				}
				for _, w := range l.writers {
					l.must(w.Close(t.Context()))
				}
			})
		})
	}
}

func countRows(l *load) (rows int64) {
	for add := range l.table().Snapshot.Files() {
		n, _ := add.Rows()
		rows += n
	}
	return rows
}
