package parquetfile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/zeebo/xxh3"

	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/schema"
)

var errDisk = errors.New("disk full")

// limited takes a number of bytes, then fails once and for all, or only once.
type limited struct {
	left int
	once bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left >= 0 && len(p) > l.left {
		l.left = -1
		return 0, errDisk
	}
	if l.left < 0 && !l.once {
		return 0, errDisk
	}
	if l.left >= 0 {
		l.left -= len(p)
	}
	return len(p), nil
}

// arrow-go forgets some write errors, of the footer for one, and a sink that recovers would hide them.
func TestAWriteErrorAtAnyByteIsReported(t *testing.T) {
	rec := flights(50)
	defer rec.Release()
	body, _ := encode(t, rec)
	const footer = 700 // its bytes are tried one by one, the others here and there
	for at := 0; at < len(body); at++ {
		if at > 4 && at < len(body)-footer {
			at += 36
		}
		for _, once := range []bool{false, true} {
			w, err := parquetfile.NewWriter(&limited{left: at, once: once}, rec.Schema(), parquetfile.WriterOptions{})
			if err == nil {
				err = w.Write(rec)
				if err == nil {
					_, err = w.Close()
				}
				w.Abort()
			}
			if !errors.Is(err, errDisk) {
				t.Fatalf("the write of byte %d failed (once: %v), and the writer said: %v", at, once, err)
			}
		}
	}
}

func TestAnAbortedFileFreesItsMemoryAndWritesNothingMore(t *testing.T) {
	mem, done := checked(t)
	defer done()
	rec := flights(5000)
	defer rec.Release()
	var buf bytes.Buffer
	w, err := parquetfile.NewWriter(&buf, rec.Schema(), parquetfile.WriterOptions{Mem: mem})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	before := buf.Len()
	w.Abort()
	w.Abort()
	if buf.Len() != before {
		t.Fatalf("%d bytes after the abort", buf.Len()-before)
	}
	if err := w.Write(rec); err == nil {
		t.Fatal("an aborted file took rows")
	}
	if _, err := w.Close(); err == nil {
		t.Fatal("an aborted file was closed")
	}
}

func TestARefusedRecordLeavesTheFileGood(t *testing.T) {
	sch := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "s", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, sch)
	defer b.Release()
	record := func(null bool, text string) arrow.Record {
		b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2}, []bool{true, !null})
		b.Field(1).(*array.StringBuilder).AppendValues([]string{"é", text}, nil)
		return b.NewRecord()
	}
	var buf bytes.Buffer
	w, err := parquetfile.NewWriter(&buf, sch, parquetfile.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, c := range []struct {
		rec    arrow.Record
		column string
	}{{record(true, ""), "id"}, {record(false, "\xff"), "s"}, {record(false, "fine"), ""}} {
		err := w.Write(c.rec)
		c.rec.Release()
		var value *schema.ValueError
		if c.column == "" && err == nil {
			continue
		}
		if !errors.As(err, &value) || value.Column != c.column || value.Row != 1 {
			t.Fatalf("%v, want one about column %q, row 1", err, c.column)
		}
	}
	other := flights(1)
	defer other.Release()
	if err := w.Write(other); err == nil {
		t.Fatal("took rows of other columns")
	}
	summary, err := w.Close()
	if err != nil || summary.Rows != 2 {
		t.Fatalf("%d rows, %v", summary.Rows, err)
	}
	if err := readsOrSaysWhere(t, buf.Bytes(), parquetfile.ReaderOptions{XXH3: summary.XXH3}); err != nil {
		t.Fatal(err)
	}
}

func TestTypesThatAreNotStoredAreRefusedByName(t *testing.T) {
	for _, dt := range []arrow.DataType{arrow.PrimitiveTypes.Uint8, arrow.BinaryTypes.LargeString, arrow.FixedWidthTypes.Timestamp_ns, arrow.Null} {
		_, err := parquetfile.NewWriter(io.Discard, arrow.NewSchema([]arrow.Field{{Name: "odd", Type: dt, Nullable: true}}, nil), parquetfile.WriterOptions{})
		if err == nil || !strings.Contains(err.Error(), `"odd"`) {
			t.Errorf("%s: %v", dt, err)
		}
	}
	if _, err := parquetfile.NewWriter(io.Discard, arrow.NewSchema(nil, nil), parquetfile.WriterOptions{}); err == nil {
		t.Error("a file without columns")
	}
}

func TestTheSummaryDescribesTheFile(t *testing.T) {
	rec := flights(100)
	defer rec.Release()
	body, summary := encode(t, rec)
	if want := fmt.Sprintf("%016x", xxh3.Hash(body)); summary.XXH3 != want || summary.Bytes != int64(len(body)) ||
		summary.Rows != 100 || summary.Schema != schema.Fingerprint(rec.Schema()) {
		t.Fatalf("%+v; the bytes have %s", summary, want)
	}
	again, _ := encode(t, rec)
	if !bytes.Equal(body, again) {
		t.Fatal("the same rows gave other bytes")
	}
}

// texts is a record of n equal or distinct texts of size bytes.
func texts(n, size int, distinct bool) arrow.Record {
	sch := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, sch)
	defer b.Release()
	text := strings.Repeat("x", size-8)
	for i := range n {
		if !distinct {
			i = 0
		}
		b.Field(0).(*array.StringBuilder).Append(text + fmt.Sprintf("%08d", i))
	}
	return b.NewRecord()
}

// A dictionary, and compression, make gigabytes of text a small file. Neither a row group nor a batch may hold them all.
func TestRowGroupsAndBatchesAreCutByBytes(t *testing.T) {
	for _, distinct := range []bool{false, true} {
		rec := texts(16, 1<<20, distinct)
		defer rec.Release()
		var buf bytes.Buffer
		w, err := parquetfile.NewWriter(&buf, rec.Schema(), parquetfile.WriterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		const records = 18 // 288 MiB of text
		for range records {
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
		}
		summary, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d MiB of text are %d bytes", records*16, summary.Bytes)
		r, err := parquetfile.OpenReader(context.Background(), put(t, buf.Bytes()), "f", parquetfile.ReaderOptions{XXH3: summary.XXH3})
		if err != nil {
			t.Fatal(err)
		}
		rows, largest := int64(0), int64(0)
		for {
			got, err := r.Next(context.Background())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			rows += got.NumRows()
			largest = max(largest, got.NumRows())
			got.Release()
		}
		if rows != records*16 || largest > 17 {
			t.Fatalf("%d rows, %d in the largest batch", rows, largest)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// counted counts the requests that reach a store.
type counted struct {
	objstore.Store
	requests int
	bytes    int64
}

func (c *counted) GetRange(ctx context.Context, key string, offset, n int64) ([]byte, error) {
	c.requests++
	c.bytes += n
	return c.Store.GetRange(ctx, key, offset, n)
}

func (c *counted) Head(ctx context.Context, key string) (objstore.Info, error) {
	c.requests++
	return c.Store.Head(ctx, key)
}

func TestRequestsAreFew(t *testing.T) {
	rec := flights(100_000)
	defer rec.Release()
	var buf bytes.Buffer
	w, err := parquetfile.NewWriter(&buf, rec.Schema(), parquetfile.WriterOptions{RowGroupBytes: 1 << 19})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for range 3 {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	summary, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	read := func(options parquetfile.ReaderOptions) *counted {
		s := &counted{Store: put(t, buf.Bytes())}
		r, err := parquetfile.OpenReader(context.Background(), s, "f", options)
		if err != nil {
			t.Fatal(err)
		}
		records, err := readAll(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		release(records)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := read(parquetfile.ReaderOptions{Size: summary.Bytes, XXH3: summary.XXH3}); s.requests != 1 {
		t.Errorf("%d requests for a generation of known size", s.requests)
	}
	whole := read(parquetfile.ReaderOptions{Size: summary.Bytes})
	if whole.requests < 3 || whole.requests > 8 {
		t.Errorf("%d requests for %d bytes", whole.requests, summary.Bytes)
	}
	if one := read(parquetfile.ReaderOptions{Size: summary.Bytes, Columns: []string{"origin"}}); one.bytes > whole.bytes/2 {
		t.Errorf("%d bytes for one column, %d for all", one.bytes, whole.bytes)
	}
}

func TestColumnsAreReadInTheOrderAskedFor(t *testing.T) {
	rec := flights(10)
	defer rec.Release()
	body, _ := encode(t, rec)
	r, err := parquetfile.OpenReader(context.Background(), put(t, body), "f", parquetfile.ReaderOptions{Columns: []string{"origin", "date"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := r.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer got.Release()
	if !array.Equal(got.Column(0), rec.Column(3)) || !array.Equal(got.Column(1), rec.Column(0)) || got.NumCols() != 2 {
		t.Fatalf("%v", got)
	}
	if _, err := parquetfile.OpenReader(context.Background(), put(t, body), "f", parquetfile.ReaderOptions{Columns: []string{"nope"}}); err == nil {
		t.Fatal("read a column that is not there")
	}
}

func TestStoreErrorsAreNotDamage(t *testing.T) {
	var damaged *parquetfile.FileError
	_, err := parquetfile.OpenReader(context.Background(), put(t, nil), "missing", parquetfile.ReaderOptions{})
	if !errors.Is(err, objstore.ErrNotFound) || errors.As(err, &damaged) {
		t.Fatal(err)
	}
}
