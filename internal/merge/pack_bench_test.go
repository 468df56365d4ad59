package merge

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/table"
)

// BenchmarkPack merges generations of about 1 MiB: of few or many columns, of repeating or random values.
func BenchmarkPack(b *testing.B) {
	for _, c := range []struct {
		name     string
		columns  int
		rows     int
		distinct int // values per column; 0: all
	}{{"narrow", 5, 200_000, 300}, {"wide", 40, 22_000, 700}, {"narrow-random", 3, 40_000, 0}, {"wide-random", 40, 3_300, 0}} {
		b.Run(c.name, func(b *testing.B) {
			var fields []arrow.Field
			for i := range c.columns {
				f := arrow.Field{Name: fmt.Sprintf("c%d", i), Type: arrow.PrimitiveTypes.Int64, Nullable: true}
				switch {
				case i%2 == 1 && c.distinct > 0:
					f.Type = arrow.BinaryTypes.String
				case i%2 == 1:
					f.Type = arrow.PrimitiveTypes.Float64
				}
				fields = append(fields, f)
			}
			s := arrow.NewSchema(fields, nil)
			w := newWorld(b, table.CreateOptions{Schema: schemaOf(s)})
			r := rand.New(rand.NewPCG(1, 2))
			const generations = 48
			for range generations {
				rec := repeating(r, s, c.rows, c.distinct)
				w.sealRecord("a", rec)
				rec.Release()
			}
			w.measure(b, int64(generations*c.rows), "a")
		})
	}
}

func repeating(r *rand.Rand, s *arrow.Schema, rows, distinct int) arrow.Record {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	value := func() int64 {
		if distinct == 0 {
			return r.Int64()
		}
		f := r.Float64()
		return int64(f * f * float64(distinct))
	}
	for i := range s.NumFields() {
		for range rows {
			switch b := b.Field(i).(type) {
			case *array.Int64Builder:
				b.Append(value())
			case *array.Float64Builder:
				b.Append(float64(value()) / 3)
			case *array.StringBuilder:
				b.Append(fmt.Sprintf("label-%05d", value()))
			}
		}
	}
	return b.NewRecord()
}

// BenchmarkJoin merges generations of full row groups on local disk, once: run it with -benchtime 1x.
func BenchmarkJoin(b *testing.B) {
	s := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "value", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	}, nil)
	store, err := objstore.NewLocal(b.TempDir(), clock.System(), random.New())
	if err != nil {
		b.Fatal(err)
	}
	w := newWorldOn(b, store, table.CreateOptions{Schema: schemaOf(s)})
	r := rand.New(rand.NewPCG(1, 2))
	rec := repeating(r, s, 1_400_000, 0)
	defer rec.Release()
	const generations = 20
	for range b.N {
		b.StopTimer()
		for range generations {
			w.sealRecord("a", rec)
		}
		b.StartTimer()
		out := w.merge("a")
		b.ReportMetric(float64(out.BytesIn)/1e6, "MB/op")
	}
}
