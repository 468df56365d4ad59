package merge

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"

	"tidemark/internal/clock"
	"tidemark/internal/columns/columnstest"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/random"
	"tidemark/internal/table"
	"tidemark/test/readers"
	"tidemark/test/s3/s3test"
)

// joining is how a world merges whose files are joined whatever their size.
func (w *world) joining() Deps {
	d := w.deps()
	d.joinedBytes = 1
	return d
}

// byArrow are the rows of all live files, as arrow-go's own reader reads them, sorted.
func (w *world) byArrow() (rows []string) {
	w.t.Helper()
	for _, path := range w.liveFiles() {
		body, _, err := w.store.Get(w.ctx, tableName+"/"+path)
		if err != nil {
			w.t.Fatal(err)
		}
		f, err := file.NewParquetReader(bytes.NewReader(body))
		if err != nil {
			w.t.Fatal(err)
		}
		r, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
		if err != nil {
			w.t.Fatal(err)
		}
		all, err := r.ReadTable(w.ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		for batches := array.NewTableReader(all, 1<<16); batches.Next(); {
			rows = append(rows, columnstest.Rows(batches.Record())...)
		}
		_ = f.Close() // it was only read
	}
	slices.Sort(rows)
	return rows
}

// Generations in any order, of other columns than the table's among them, give the same rows joined as decoded, file by
// file read by arrow-go.
func TestJoiningGivesTheRowsThatDecodingGives(t *testing.T) {
	older := arrow.NewSchema([]arrow.Field{testSchema.Field(1), testSchema.Field(0)}, nil) // reordered, and without a column
	rapid.Check(t, func(r *rapid.T) {
		joined, decoded := newWorld(t, appendTable()), newWorld(t, appendTable())
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
		for range rapid.IntRange(1, 8).Draw(r, "generations") {
			n := rapid.SampledFrom([]int{1, 50, 2000}).Draw(r, "rows")
			rows := make([]row, n)
			for i := range rows {
				rows[i] = row{key: fmt.Sprintf("k%d", random.IntN(n)), seq: random.Int64N(100), value: random.Int64()}
			}
			shard := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "shard")
			rec := record(memory.DefaultAllocator, rows, false)
			if rapid.IntRange(0, 3).Draw(r, "older") == 0 {
				rec = array.NewRecord(older, []arrow.Array{rec.Column(1), rec.Column(0)}, rec.NumRows())
			}
			joined.sealRecord(shard, rec)
			decoded.sealRecord(shard, rec)
		}
		for _, w := range []*world{joined, decoded} {
			d := w.deps()
			if w == joined {
				d = w.joining()
			}
			out, err := Run(w.ctx, d, w.request("a", "b"))
			if err != nil || len(out.Failures) > 0 {
				r.Fatal(err, out.Failures)
			}
			w.expectNoStrayFiles()
		}
		if !slices.Equal(joined.byArrow(), decoded.byArrow()) {
			r.Fatal("other rows")
		}
	})
}

// A joined file is not decoded, so that its checksum alone keeps damage out of the base.
func TestADamagedFileIsNotJoined(t *testing.T) {
	for at, name := range map[int]string{20: "a page", -30: "the footer", -1: "the magic number"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, appendTable())
			for g := range 3 {
				w.seal("a", row{key: fmt.Sprintf("a%d", g)})
				w.seal("b", row{key: fmt.Sprintf("b%d", g)})
			}
			w.change(w.generationFile("a", 2), func(b []byte) []byte {
				b[(at+len(b))%len(b)] ^= 4
				return b
			})
			out, err := Run(w.ctx, w.joining(), w.request("a", "b"))
			if err != nil {
				t.Fatal(err)
			}
			expectFailures(t, out, "a 2 generation_damaged data")
			w.expect([]row{{key: "a0"}, {key: "b0"}, {key: "b1"}, {key: "b2"}})
			w.expectNoStrayFiles()
		})
	}
}

// vouch makes a manifest say which version of a generation's file the store vouches for, as a writer does on S3.
func (w *world) vouch(shard string, generation uint64, etag string) {
	w.t.Helper()
	m, err := w.chain(shard).Latest(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	g, ok := m.Generation(generation)
	if !ok {
		w.t.Fatalf("no generation %d", generation)
	}
	key := w.chain(shard).Key(fmt.Sprintf("_shards/%s/%s/manifest/%020d.json", w.table.ID, shard, ^uint64(0)-m.Version))
	w.change(key, func(b []byte) []byte {
		before, after, _ := bytes.Cut(b, []byte(g.Path))
		after = bytes.Replace(after, []byte(`"xxh3":`), []byte(fmt.Sprintf(`"etag":%q,"xxh3":`, etag)), 1)
		return slices.Concat(before, []byte(g.Path), after)
	})
}

// A file that was replaced after it was sealed has another version than the manifest says, and stops its shard.
func TestAReplacedFileIsNotJoined(t *testing.T) {
	w := newWorld(t, appendTable())
	for g := range 3 {
		w.seal("a", row{key: fmt.Sprintf("a%d", g)})
	}
	key := w.generationFile("a", 2)
	before, err := w.store.Head(w.ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	w.vouch("a", 2, before.ETag)
	w.change(key, func(b []byte) []byte { return b }) // the same bytes: only the version tells
	out, err := Run(w.ctx, w.joining(), w.request("a"))
	if err != nil {
		t.Fatal(err)
	}
	expectFailures(t, out, "a 2 generation_damaged data")
	if !strings.Contains(out.Failures[0].Message, "not the version that was sealed") {
		t.Error(out.Failures[0].Message)
	}
	w.expect([]row{{key: "a0"}})
	w.expectNoStrayFiles()
}

// TestAJoinOnS3MovesNoDataThroughTheExecutor counts bytes and requests at a proxy, for full row groups alone and with a
// small generation between them.
func TestAJoinOnS3MovesNoDataThroughTheExecutor(t *testing.T) {
	server := s3test.Start(t)
	proxy := s3test.NewProxy(t, server)
	root := server.Root()
	open := func(endpoint string) objstore.Store {
		s, err := objstore.Open(t.Context(), root, objstore.Options{
			Clock: clock.System(), Random: random.New(), Log: hclog.NewNullLogger(), S3: objstore.S3Options{Endpoint: endpoint, PathStyle: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "value", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	}, nil)
	plain := open(server.Endpoint)
	w := newWorldOn(t, plain, table.CreateOptions{Schema: schemaOf(s)})
	r := rand.New(rand.NewPCG(1, 2))
	rec := repeating(r, s, 800_000, 0) // 12.8 MB
	defer rec.Release()
	small := repeating(r, s, 100, 0)
	defer small.Release()
	seal := func(rec arrow.Record) {
		t.Helper()
		generation := w.sealRecord("a", rec)
		info, err := plain.Head(t.Context(), w.generationFile("a", generation))
		if err != nil {
			t.Fatal(err)
		}
		w.vouch("a", generation, info.ETag)
		delete(w.holds, "a") // of the manifest as it was
	}
	for range 3 {
		seal(rec)
	}
	w.store = open(proxy.Endpoint)
	measure := func() (Outcome, int64, int) {
		before := len(proxy.Requests())
		sent, received := proxy.Bytes()
		out := w.merge("a")
		s2, r2 := proxy.Bytes()
		copies := 0
		for _, r := range proxy.Requests()[before:] {
			if r.Method == http.MethodPut && r.Header.Get("X-Amz-Copy-Source") != "" {
				copies++
			}
		}
		return out, s2 - sent + r2 - received, copies
	}
	out, moved, copies := measure()
	if out.RowsOut != 3*rec.NumRows() || out.BytesOut < 38e6 {
		t.Fatalf("%d rows in %d bytes", out.RowsOut, out.BytesOut)
	}
	// Four footers and their neighbourhood, the log, manifests; not one row group.
	if copies != 3 || moved > 512<<10 {
		t.Errorf("%d bytes were moved through the executor, and the store was asked for %d copies", moved, copies)
	}
	w.store = plain
	seal(rec)
	seal(small)
	seal(rec)
	w.store = open(proxy.Endpoint)
	out, moved, copies = measure()
	if out.RowsOut != 2*rec.NumRows()+100 {
		t.Fatalf("%d rows", out.RowsOut)
	}
	// The small one does not make a part: the first 5 MiB of what follows are read for that, and sent.
	if copies != 2 || moved > 11<<20 {
		t.Errorf("%d bytes were moved with a small generation between, and the store was asked for %d copies", moved, copies)
	}
	w.store = plain
	rows := 0
	for _, path := range w.liveFiles() {
		r, err := parquetfile.OpenReader(t.Context(), plain, tableName+"/"+path, parquetfile.ReaderOptions{Mem: w.mem})
		if err != nil {
			t.Fatal(err)
		}
		rows += int(r.Rows())
		_ = r.Close() // it was only read
	}
	if want := 5*int(rec.NumRows()) + 100; rows != want || len(w.byArrow()) != want {
		t.Errorf("%d rows, want %d", rows, want)
	}
}

// The files of a partitioned table do not hold the columns that a generation holds, so nothing of one is taken as it is.
func TestGenerationsOfAPartitionedTableAreNotJoined(t *testing.T) {
	o := appendTable()
	o.PartitionBy = []string{"seq"}
	w := newWorld(t, o)
	w.seal("a", row{key: "x", seq: 1}, row{key: "y", seq: 2})
	w.seal("a", row{key: "z", seq: 1})
	out, err := Run(w.ctx, w.joining(), w.request("a"))
	if err != nil || len(out.Failures) > 0 {
		t.Fatal(err, out.Failures)
	}
	if files := w.liveFiles(); len(files) != 2 || out.RowsOut != 3 {
		t.Errorf("%d rows in %q, want 3 in a file per partition", out.RowsOut, files)
	}
}

func TestJoinedAndRecodedFilesAreReadByOtherEngines(t *testing.T) {
	for _, joined := range []bool{true, false} {
		w, dir := newLocalWorld(t, appendTable())
		var want []string
		for g := range 3 {
			var rows []row
			for i := range 1500 {
				r := row{key: fmt.Sprintf("k%d-%04d", g, i), seq: int64(i % 7), value: int64(i * i)}
				rows, want = append(rows, r), append(want, fmt.Sprint([]any{r.key, r.seq, r.value}))
			}
			w.seal("a", rows...)
		}
		d := w.deps()
		if joined {
			d = w.joining()
		}
		if out, err := Run(w.ctx, d, w.request("a")); err != nil || len(out.Failures) > 0 {
			t.Fatal(err, out.Failures)
		}
		var seen map[string][][]any
		readers.Run(t, &seen, "testdata/partitions.py", "read", dir, "key", "seq", "value")
		if len(seen) != 2 {
			t.Fatalf("read by %d engines, want delta-rs and DuckDB", len(seen))
		}
		for reader, rows := range seen {
			var got []string
			for _, r := range rows {
				got = append(got, fmt.Sprint(r))
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s sees %d rows, want %d, or they differ: %s, %s", reader, len(got), len(want), got[:min(len(got), 2)], want[:2])
			}
		}
	}
}
