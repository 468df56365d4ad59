package parquetfile_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"

	"tidemark/internal/clock"
	"tidemark/internal/columns"
	"tidemark/internal/columns/columnstest"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
)

// checked gives a test an allocator and checks that everything it gave out came back.
func checked(t interface {
	Helper()
	Errorf(string, ...any)
}) (*memory.CheckedAllocator, func()) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	return mem, func() { mem.AssertSize(t, 0) }
}

// put stores bytes as an object of a fresh store.
func put(t interface{ Fatal(...any) }, body []byte) objstore.Store {
	s := objstore.NewMemory(clock.System())
	if r := s.PutIfAbsent(context.Background(), "f", body); r.Outcome != objstore.Applied {
		t.Fatal(r.Err)
	}
	return s
}

func readAll(ctx context.Context, r *parquetfile.Reader) (records []arrow.Record, err error) {
	for {
		rec, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		records = append(records, rec)
	}
}

func release(records []arrow.Record) {
	for _, rec := range records {
		rec.Release()
	}
}

func TestEveryTypeComesBackAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem, done := checked(t)
		defer done()
		schema := columnstest.Schema(t, 3)
		var buf bytes.Buffer
		w, err := parquetfile.NewWriter(&buf, schema, parquetfile.WriterOptions{Mem: mem, RowGroupBytes: rapid.SampledFrom([]int64{0, 1}).Draw(t, "group")})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		var runs []columns.Run
		for range rapid.IntRange(0, 3).Draw(t, "records") {
			rec := columnstest.Record(t, mem, schema, rapid.IntRange(0, 20).Draw(t, "rows"))
			defer rec.Release()
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
			runs = append(runs, columns.Run{Source: rec, N: int(rec.NumRows())})
		}
		summary, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		want, err := columns.Concat(mem, schema, runs)
		if err != nil {
			t.Fatal(err)
		}
		defer want.Release()
		if summary.Rows != want.NumRows() || summary.Bytes != int64(buf.Len()) {
			t.Fatalf("%d rows, %d bytes; want %d, %d", summary.Rows, summary.Bytes, want.NumRows(), buf.Len())
		}

		r, err := parquetfile.OpenReader(context.Background(), put(t, buf.Bytes()), "f",
			parquetfile.ReaderOptions{Mem: mem, XXH3: summary.XXH3, BatchRows: rapid.IntRange(1, 30).Draw(t, "batch")})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got, err := readAll(context.Background(), r)
		defer release(got)
		if err != nil {
			t.Fatal(err)
		}
		var back []columns.Run
		for _, rec := range got {
			back = append(back, columns.Run{Source: rec, N: int(rec.NumRows())})
		}
		have, err := columns.Concat(mem, r.Schema(), back)
		if err != nil {
			t.Fatal(err)
		}
		defer have.Release()
		if want, have := columnstest.Rows(want), columnstest.Rows(have); !slices.Equal(want, have) {
			t.Fatalf("%s:\nwant %s\nhave %s", schema, want, have)
		}
	})
}
