package parquetfile_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"

	"tidemark/internal/parquetfile"
)

// integers is rows of so many columns of random numbers.
func integers(r *rand.Rand, columns, rows int) arrow.Record {
	var fields []arrow.Field
	for i := range columns {
		fields = append(fields, arrow.Field{Name: string(rune('a' + i)), Type: arrow.PrimitiveTypes.Int64})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for i := range columns {
		for range rows {
			b.Field(i).(*array.Int64Builder).Append(r.Int64())
		}
	}
	return b.NewRecord()
}

// The estimate covers what a reader has allocated while it reads, and is not far above it for a small file.
func TestTheMemoryEstimateIsThatOfTheFile(t *testing.T) {
	for _, rows := range []int{10, 1000, 300_000} {
		rec := integers(rand.New(rand.NewPCG(1, 1)), 3, rows)
		body, _ := fileOf(t, rec)
		mem := &peak{Allocator: memory.NewGoAllocator()}
		r, err := parquetfile.OpenReader(t.Context(), put(t, body), "f", parquetfile.ReaderOptions{Mem: mem})
		if err != nil {
			t.Fatal(err)
		}
		estimate := r.MemoryEstimate()
		for {
			rec, err := r.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			rec.Release()
		}
		if mem.most > estimate {
			t.Errorf("%d rows: %d bytes were allocated at a time, %d estimated", rows, mem.most, estimate)
		}
		if rows <= 1000 && estimate > 4<<20 {
			t.Errorf("%d rows: an estimate of %d for a file of %d bytes", rows, estimate, len(body))
		}
	}
}

// peak counts the most bytes that are allocated at a time.
type peak struct {
	memory.Allocator
	now, most int64
}

func (p *peak) note(n int) {
	p.now += int64(n)
	p.most = max(p.most, p.now)
}

func (p *peak) Allocate(n int) []byte {
	p.note(n)
	return p.Allocator.Allocate(n)
}

func (p *peak) Reallocate(n int, b []byte) []byte {
	p.note(n - len(b))
	return p.Allocator.Reallocate(n, b)
}

func (p *peak) Free(b []byte) {
	p.note(-len(b))
	p.Allocator.Free(b)
}

// More rows, and more columns, never lower the estimate.
func TestTheMemoryEstimateIsMonotone(t *testing.T) {
	estimate := func(rec arrow.Record) int64 {
		body, _ := fileOf(t, rec)
		return open(t, body).MemoryEstimate()
	}
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
		columns, rows := rapid.IntRange(1, 5).Draw(r, "columns"), rapid.IntRange(1, 20_000).Draw(r, "rows")
		small := estimate(integers(random, columns, rows))
		if more := estimate(integers(random, columns, rows+rapid.IntRange(0, 20_000).Draw(r, "more rows"))); more < small {
			r.Fatalf("more rows: %d after %d", more, small)
		}
		if more := estimate(integers(random, columns+1, rows)); more < small {
			r.Fatalf("one more column: %d after %d", more, small)
		}
	})
}
