package merge

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/parquetfile"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

var largeSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "body", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

const (
	largeRows  = 36_000
	largeBytes = 64 << 10 // of a text: 2.36 GB in all, which compress to a few megabytes
)

// largeText is the text of a row, which repeats nothing but its end.
func largeText(id int64, version string) string {
	head := fmt.Sprintf("%s %d ", version, id)
	return head + strings.Repeat("x", largeBytes-len(head))
}

// sealLarge seals one generation of the given ids, which are in order, as a stream.
func (w *world) sealLarge(shard, version string, ids []int64) {
	w.t.Helper()
	h := w.hold(shard)
	g := shardmanifest.Generation{Path: h.Chain().GenerationPath(h.Next()), SealedMS: w.clock.Now().UnixMilli()}
	upload, err := w.store.Create(w.ctx, tableName+"/"+g.Path)
	if err != nil {
		w.t.Fatal(err)
	}
	pw, err := parquetfile.NewWriter(upload, largeSchema, parquetfile.WriterOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for len(ids) > 0 {
		n := min(len(ids), 64)
		b := array.NewRecordBuilder(memory.DefaultAllocator, largeSchema)
		for _, id := range ids[:n] {
			b.Field(0).(*array.Int64Builder).Append(id)
			b.Field(1).(*array.StringBuilder).Append(largeText(id, version))
		}
		rec := b.NewRecord()
		err := pw.Write(rec)
		rec.Release()
		b.Release()
		if err != nil {
			w.t.Fatal(err)
		}
		ids = ids[n:]
	}
	summary, err := pw.Close()
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := upload.Complete(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	g.Rows, g.Bytes, g.XXH3, g.Schema = summary.Rows, summary.Bytes, summary.XXH3, summary.Schema
	if _, err := h.Seal(w.ctx, g); err != nil {
		w.t.Fatal(err)
	}
}

// expectLarge reads the table and compares every text.
func (w *world) expectLarge(version func(id int64) string, rows int) {
	w.t.Helper()
	_, records, err := Scan(w.ctx, w.deps(), tableName, ScanOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	seen, bytes := map[int64]bool{}, int64(0)
	for rec, err := range records {
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			id, body := rec.Column(0).(*array.Int64).Value(i), rec.Column(1).(*array.String).Value(i)
			if want := largeText(id, version(id)); body != want {
				w.t.Fatalf("row %d begins with %q, want %q", id, body[:min(len(body), 20)], want[:20])
			}
			seen[id] = true
			bytes += int64(len(body))
		}
	}
	if len(seen) != rows || bytes != int64(rows)*largeBytes {
		w.t.Fatalf("%d rows of %d bytes, want %d", len(seen), bytes, rows)
	}
}

// residentPeak is the most memory that this process has had resident since it was last asked to forget it.
func residentPeak(t *testing.T, forget bool) int64 {
	t.Helper()
	if forget {
		debug.FreeOSMemory()
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
			t.Skipf("the kernel does not measure the peak memory of a part of a process: %v", err)
		}
		return 0
	}
	file, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, " kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// No Arrow array of text holds more than 2 GiB; a column of a generation, of a unit and of a file may. Nothing of it is in
// memory at once.
func TestAColumnOfMoreThanTwoGiBIsMergedWithinTheBudget(t *testing.T) {
	if os.Getenv("TIDEMARK_E2E") == "" {
		t.Skip("moves ten gigabytes through memory; set TIDEMARK_E2E=1")
	}
	const limit = 256 << 20
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(limit))
	ids := make([]int64, largeRows)
	for i := range ids {
		ids[i] = 2 * int64(i)
	}
	merge := func(t *testing.T, w *world, shard string) {
		t.Helper()
		residentPeak(t, true)
		d, req := w.deps(), w.request(shard)
		d.Mem, req.Budget = memory.DefaultAllocator, limit*8/10
		out, err := Run(w.ctx, d, req)
		if err != nil || len(out.Failures) > 0 {
			t.Fatalf("%v %+v", err, out.Failures)
		}
		if peak := residentPeak(t, false); peak > limit*5/4 {
			t.Errorf("%d MiB were resident, with a budget of %d", peak>>20, limit>>20)
		} else {
			t.Logf("%d MiB were resident at most, in %d commits", peak>>20, len(out.Commits))
		}
	}
	t.Run("append", func(t *testing.T) {
		w := newWorld(t, table.CreateOptions{Schema: schemaOf(largeSchema)})
		w.sealLarge("a", "one", ids)
		merge(t, w, "a")
		w.expectLarge(func(int64) string { return "one" }, largeRows)
	})
	t.Run("upsert", func(t *testing.T) {
		w := newWorld(t, table.CreateOptions{Schema: schemaOf(largeSchema), Key: []string{"id"}, Buckets: 1})
		bucket := w.buckets()[0]
		w.sealLarge(bucket, "one", ids)
		merge(t, w, bucket)
		// Changes of more than half of the rows, and new ones between them.
		var even, odd []int64
		for _, id := range ids {
			if id%4 == 0 {
				even = append(even, id)
			}
			if id%16 == 0 {
				odd = append(odd, id+1)
			}
		}
		w.sealLarge(bucket, "two", even)
		w.sealLarge(bucket, "two", odd)
		merge(t, w, bucket)
		w.expectLarge(func(id int64) string {
			if id%2 == 1 || id%4 == 0 {
				return "two"
			}
			return "one"
		}, largeRows+len(odd))
	})
}
