package parquetfile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/parquetfile"
)

// sample is a small file with every shape of column and several row groups.
func sample(tb testing.TB) ([]byte, parquetfile.Summary) {
	tb.Helper()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "small", Type: arrow.PrimitiveTypes.Int8, Nullable: true},
		{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "price", Type: &arrow.Decimal128Type{Precision: 9, Scale: 2}, Nullable: true},
		{Name: "flag", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "place", Type: arrow.StructOf(
			arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
			arrow.Field{Name: "tags", Type: arrow.ListOfField(arrow.Field{Name: "element", Type: arrow.BinaryTypes.String, Nullable: true}), Nullable: true},
		), Nullable: true},
		{Name: "counts", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32), Nullable: true},
	}, nil)
	var rows []string
	for i := range 40 {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"small":%d,"text":"t%d","price":"%d.25","flag":true,"place":{"x":1.5,"tags":["a",null,"b%d"]},"counts":[{"key":"k","value":%d}]}`,
			i, i, i%7, i, i, i))
		rows = append(rows, fmt.Sprintf(`{"id":%d,"small":null,"text":null,"price":null,"flag":null,"place":null,"counts":null}`, i))
	}
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader("["+strings.Join(rows, ",")+"]"))
	if err != nil {
		tb.Fatal(err)
	}
	defer rec.Release()
	var buf bytes.Buffer
	w, err := parquetfile.NewWriter(&buf, schema, parquetfile.WriterOptions{RowGroupBytes: 1})
	if err != nil {
		tb.Fatal(err)
	}
	defer w.Abort()
	for from := int64(0); from < rec.NumRows(); from += 40 {
		part := rec.NewSlice(from, from+40)
		err := w.Write(part)
		part.Release()
		if err != nil {
			tb.Fatal(err)
		}
	}
	summary, err := w.Close()
	if err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes(), summary
}

// readsOrSaysWhere reads a file to its end: it must read, or fail with a *FileError.
func readsOrSaysWhere(tb testing.TB, body []byte, options parquetfile.ReaderOptions) error {
	tb.Helper()
	r, err := parquetfile.OpenReader(context.Background(), put(tb, body), "f", options)
	if err == nil {
		var records []arrow.Record
		records, err = readAll(context.Background(), r)
		release(records)
		if r.MemoryEstimate() <= 0 {
			tb.Fatalf("a memory estimate of %d", r.MemoryEstimate())
		}
		if err := r.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	var damaged *parquetfile.FileError
	if err != nil && !errors.As(err, &damaged) {
		tb.Fatalf("not a FileError: %v", err)
	}
	return err
}

func TestATruncatedFileIsRefused(t *testing.T) {
	body, _ := sample(t)
	for n := range body {
		if err := readsOrSaysWhere(t, body[:n], parquetfile.ReaderOptions{}); err == nil {
			t.Fatalf("read a file cut to %d of %d bytes", n, len(body))
		}
	}
}

func TestEveryFlippedBitIsFoundByTheChecksumAndHarmlessWithout(t *testing.T) {
	body, summary := sample(t)
	if err := readsOrSaysWhere(t, body, parquetfile.ReaderOptions{XXH3: summary.XXH3}); err != nil {
		t.Fatal(err)
	}
	for at := range body {
		flipped := bytes.Clone(body)
		flipped[at] ^= 1 << (at % 8)
		if err := readsOrSaysWhere(t, flipped, parquetfile.ReaderOptions{XXH3: summary.XXH3}); err == nil {
			t.Fatalf("the checksum missed a flipped bit in byte %d", at)
		}
		_ = readsOrSaysWhere(t, flipped, parquetfile.ReaderOptions{}) // it may read, if the bit is one that nothing reads
	}
}

func TestDamageInAPageNamesRowGroupAndColumn(t *testing.T) {
	body, _ := sample(t)
	zstd := []byte{0x28, 0xb5, 0x2f, 0xfd}
	at := bytes.Index(body, zstd) // the first page: the first column of the first row group
	broken := bytes.Clone(body)
	broken[at] ^= 0xff
	var damaged *parquetfile.FileError
	if err := readsOrSaysWhere(t, broken, parquetfile.ReaderOptions{}); !errors.As(err, &damaged) {
		t.Fatalf("read a broken page: %v", err)
	}
	if damaged.Path != "f" || damaged.RowGroup != 0 || damaged.Column != "id" || damaged.Code() != "damaged_file" {
		t.Fatalf("%+v", damaged)
	}
}

func TestForeignBytesAreRefused(t *testing.T) {
	for name, body := range map[string][]byte{
		"empty":     {},
		"short":     []byte("PAR1"),
		"text":      []byte(strings.Repeat("id,name\n1,x\n", 50)),
		"magics":    []byte("PAR1PAR1PAR1PAR1"),
		"no footer": append([]byte("PAR1"), append(make([]byte, 40), "\x00\x00\x00\x00PAR1"...)...),
		"huge":      append([]byte("PAR1"), append(make([]byte, 40), "\xff\xff\xff\xffPAR1"...)...),
		"encrypted": append([]byte("PAR1"), append(make([]byte, 40), "\x08\x00\x00\x00PARE"...)...),
	} {
		t.Run(name, func(t *testing.T) {
			if err := readsOrSaysWhere(t, body, parquetfile.ReaderOptions{}); err == nil {
				t.Fatal("read it")
			}
		})
	}
}

// Sizes and counts in footers and page headers are claims. A flipped bit makes them claim gigabytes.
func TestNoClaimOfTheFileIsBelievedForAnAllocation(t *testing.T) {
	body, _ := sample(t)
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	for at := range body {
		flipped := bytes.Clone(body)
		flipped[at] ^= []byte{0x80, 0x40, 0xff}[at%3] // the high bits of numbers, and what continues them
		before := allocated()
		err := readsOrSaysWhere(t, flipped, parquetfile.ReaderOptions{})
		if n := allocated() - before; n > 32<<20 {
			t.Fatalf("byte %d of %d: %d bytes allocated for a file of %d, then %v", at, len(body), n, len(body), err)
		}
	}
}

// FuzzReader feeds the reader bytes of any kind. The footer's and pages' own checks keep allocations in proportion.
func FuzzReader(f *testing.F) {
	body, _ := sample(f)
	f.Add(body)
	f.Add(body[len(body)/2:])
	paths, err := filepath.Glob("testdata/foreign/*.parquet")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		foreign, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(foreign)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_ = readsOrSaysWhere(t, body, parquetfile.ReaderOptions{BatchRows: 7})
	})
}
