package merge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/random"
	"tidemark/internal/rowkey"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

// world is a root with one table, its shards, and whoever merges them.
type world struct {
	t      testing.TB
	ctx    context.Context
	clock  clock.Clock
	random random.Source
	mem    *memory.CheckedAllocator
	store  objstore.Store
	table  *table.Table
	holds  map[string]*shardmanifest.Hold
	runs   int

	rowGroupBytes int64 // of base files; 0 is what a merge chooses
}

const tableName = "flights"

// newWorld makes a table; every byte of Arrow memory must be given back when the test ends.
func newWorld(t testing.TB, o table.CreateOptions) *world {
	t.Helper()
	return newWorldOn(t, objstore.NewMemory(clock.System()), o)
}

func newWorldOn(t testing.TB, store objstore.Store, o table.CreateOptions) *world {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	t.Cleanup(func() { mem.AssertSize(t, 0) })
	w := &world{
		t: t, ctx: context.Background(), clock: clock.System(), random: random.Seeded(1), mem: mem,
		holds: map[string]*shardmanifest.Hold{}, store: store,
	}
	w.create(o)
	return w
}

func (w *world) deps() Deps {
	return Deps{Store: w.store, Clock: w.clock, Random: w.random, Mem: w.mem, Lanes: 2, rowGroupBytes: w.rowGroupBytes}
}

func (w *world) tableDeps() table.Deps { return table.Deps{Clock: w.clock, Random: w.random} }

func (w *world) create(o table.CreateOptions) {
	w.t.Helper()
	t, err := table.Create(w.ctx, w.store, tableName, o, w.tableDeps())
	if err != nil {
		w.t.Fatal(err)
	}
	w.table = t
	clear(w.holds)
}

func schemaOf(s *arrow.Schema) *schema.Schema {
	out, err := schema.FromArrow(s)
	if err != nil {
		panic(err)
	}
	return out
}

func appendTable() table.CreateOptions { return table.CreateOptions{Schema: schemaOf(testSchema)} }

func upsertTable(buckets int, sequence bool) table.CreateOptions {
	o := table.CreateOptions{Schema: schemaOf(testSchema), Key: []string{"key"}, Buckets: buckets}
	if sequence {
		o.Sequence = "seq"
	}
	return o
}

func (w *world) hold(shard string) *shardmanifest.Hold {
	w.t.Helper()
	if h := w.holds[shard]; h != nil {
		return h
	}
	h, err := w.chain(shard).Claim(w.ctx, shardmanifest.ClaimOptions{Label: w.t.Name()})
	if err != nil {
		w.t.Fatal(err)
	}
	w.holds[shard] = h
	return h
}

func (w *world) chain(shard string) *shardmanifest.Chain {
	return shardmanifest.Open(w.store, tableName, w.table.ID, shard, shardmanifest.Options{Clock: w.clock, Random: w.random})
}

// sealRecord seals records as the next generation of a shard and returns its number.
func (w *world) sealRecord(shard string, records ...arrow.Record) uint64 {
	w.t.Helper()
	h := w.hold(shard)
	g := shardmanifest.Generation{SealedMS: w.clock.Now().UnixMilli()}
	for _, rec := range records {
		g.Rows += rec.NumRows()
	}
	if g.Rows > 0 {
		g.Path = h.Chain().GenerationPath(h.Next())
		var body bytes.Buffer
		pw, err := parquetfile.NewWriter(&body, records[0].Schema(), parquetfile.WriterOptions{Mem: w.mem})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, rec := range records {
			if err := pw.Write(rec); err != nil {
				w.t.Fatal(err)
			}
		}
		summary, err := pw.Close()
		if err != nil {
			w.t.Fatal(err)
		}
		g.Bytes, g.XXH3, g.Schema = summary.Bytes, summary.XXH3, summary.Schema
		w.put(tableName+"/"+g.Path, body.Bytes())
	}
	if _, err := h.Seal(w.ctx, g); err != nil {
		w.t.Fatal(err)
	}
	return h.Next() - 1
}

func (w *world) put(key string, body []byte) {
	w.t.Helper()
	if r := w.store.PutIfAbsent(w.ctx, key, body); r.Err != nil {
		w.t.Fatal(r.Err)
	}
}

// seal seals rows as the next generation of a shard of an append table.
func (w *world) seal(shard string, rows ...row) uint64 {
	w.t.Helper()
	rec := record(w.mem, rows, false)
	defer rec.Release()
	return w.sealRecord(shard, rec)
}

// upsert seals rows into the generations of their buckets, in order.
func (w *world) upsert(rows ...row) {
	w.t.Helper()
	byBucket := map[int][]row{}
	for _, r := range rows {
		b := rowkey.Bucket(keyOf(r.key), w.table.Buckets)
		byBucket[b] = append(byBucket[b], r)
	}
	for b := range w.table.Buckets {
		if len(byBucket[b]) > 0 {
			rec := record(w.mem, sortedByKey(byBucket[b]), true)
			w.sealRecord(rowkey.BucketShard(b), rec)
			rec.Release()
		}
	}
}

// keyOf is the encoded key of a test row.
func keyOf(key string) []byte {
	e, err := rowkey.NewEncoder(testSchema, []string{"key"})
	if err != nil {
		panic(err)
	}
	rec := record(memory.DefaultAllocator, []row{{key: key}}, false)
	defer rec.Release()
	var k rowkey.Keys
	if err := e.Encode(rec, &k); err != nil {
		panic(err)
	}
	return k.At(0)
}

func (w *world) bucketOf(key string) string {
	return rowkey.BucketShard(rowkey.Bucket(keyOf(key), w.table.Buckets))
}

func (w *world) buckets() (shards []string) {
	for b := range w.table.Buckets {
		shards = append(shards, rowkey.BucketShard(b))
	}
	return shards
}

func (w *world) request(shards ...string) Request {
	w.runs++
	return Request{
		Table: tableName, Shards: shards, Execution: fmt.Sprintf("%08d", w.runs), Budget: 256 << 20, CommitsMax: 100,
	}
}

// merge merges shards and expects no failure.
func (w *world) merge(shards ...string) Outcome {
	w.t.Helper()
	out, err := Run(w.ctx, w.deps(), w.request(shards...))
	if err != nil {
		w.t.Fatal(err)
	}
	if len(out.Failures) > 0 {
		w.t.Fatalf("failures: %+v", out.Failures)
	}
	return out
}

func (w *world) load() *table.Table {
	w.t.Helper()
	t, err := table.Load(w.ctx, w.store, tableName, w.tableDeps())
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// baseRecords reads the base table file by file.
func (w *world) baseRecords(t *table.Table, visit func(add deltalog.Add, rec arrow.Record)) {
	w.t.Helper()
	for add := range t.Snapshot.Files() {
		r, err := parquetfile.OpenReader(w.ctx, w.store, tableName+"/"+add.Path, parquetfile.ReaderOptions{Mem: w.mem, Size: add.Size})
		if err != nil {
			w.t.Fatal(err)
		}
		for {
			rec, err := r.Next(w.ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				w.t.Fatal(err)
			}
			visit(add, rec)
			rec.Release()
		}
		if err := r.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// base is all rows of the base table, sorted.
func (w *world) base() (rows []row) {
	w.t.Helper()
	w.baseRecords(w.load(), func(_ deltalog.Add, rec arrow.Record) { rows = append(rows, rowsOf(rec)...) })
	sortRows(rows)
	return rows
}

func sortRows(rows []row) {
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.seq, b.seq), cmp.Compare(a.value, b.value))
	})
}

func (w *world) expect(want []row) {
	w.t.Helper()
	want = slices.Clone(want)
	sortRows(want)
	if got := w.base(); !slices.Equal(got, want) {
		w.t.Fatalf("the base table has %d rows, want %d:\n%v\nwant\n%v", len(got), len(want), got, want)
	}
}

// dataFiles are the keys of all base data files in the store, live or not.
func (w *world) dataFiles() (keys []string) {
	w.t.Helper()
	for info, err := range objstore.ListAll(w.ctx, w.store, tableName+"/part-") {
		if err != nil {
			w.t.Fatal(err)
		}
		keys = append(keys, strings.TrimPrefix(info.Key, tableName+"/"))
	}
	return keys
}

// liveFiles are the paths of the table's files.
func (w *world) liveFiles() (paths []string) {
	for add := range w.load().Snapshot.Files() {
		paths = append(paths, add.Path)
	}
	return paths
}

// expectNoStrayFiles fails if there is a data file that is neither live nor a tombstone of the table.
func (w *world) expectNoStrayFiles() {
	w.t.Helper()
	s := w.load().Snapshot
	for _, path := range w.dataFiles() {
		_, live := s.File(path)
		if _, dead := s.Tombstone(path); !live && !dead {
			w.t.Errorf("%s was left behind", path)
		}
	}
}
