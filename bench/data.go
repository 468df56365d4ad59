package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/writer"
)

// column is a synthetic column: its type and how it gets its values. All generators are seeded: every run has the same data.
type column struct {
	name string
	typ  arrow.DataType
	fill func(r *rand.Rand, b array.Builder, n int)
}

// category is text out of so many values, few of them frequent, as codes and names are.
func category(name string, distinct int) column {
	values := make([]string, distinct)
	for i := range values {
		values[i] = fmt.Sprintf("%s-%05d", name, i*7919%distinct)
	}
	return column{name, arrow.BinaryTypes.String, func(r *rand.Rand, b array.Builder, n int) {
		for range n {
			b.(*array.StringBuilder).Append(values[skewed(r, distinct)])
		}
	}}
}

// measure is an integer out of so many values.
func measure(name string, distinct int) column {
	return column{name, arrow.PrimitiveTypes.Int64, func(r *rand.Rand, b array.Builder, n int) {
		for range n {
			b.(*array.Int64Builder).Append(int64(skewed(r, distinct)) - int64(distinct/4))
		}
	}}
}

// skewed is a number below n; the low half of them is taken thrice as often.
func skewed(r *rand.Rand, n int) int {
	f := r.Float64()
	return int(f * f * float64(n))
}

// number is a random integer: nothing repeats.
func number(name string) column {
	return column{name, arrow.PrimitiveTypes.Int64, func(r *rand.Rand, b array.Builder, n int) {
		for range n {
			b.(*array.Int64Builder).Append(r.Int64())
		}
	}}
}

// reading is a random float with all its digits.
func reading(name string) column {
	return column{name, arrow.PrimitiveTypes.Float64, func(r *rand.Rand, b array.Builder, n int) {
		for range n {
			b.(*array.Float64Builder).Append(r.NormFloat64())
		}
	}}
}

// identifier is a random hexadecimal text of 32 characters.
func identifier(name string) column {
	return column{name, arrow.BinaryTypes.String, func(r *rand.Rand, b array.Builder, n int) {
		for range n {
			var raw [16]byte
			for i := range raw {
				raw[i] = byte(r.Uint32())
			}
			b.(*array.StringBuilder).Append(hex.EncodeToString(raw[:]))
		}
	}}
}

// load creates a table and seals generations of so many rows each into one shard of it.
func (b *bench) load(ctx context.Context, table string, columns []column, generations, rows int) error {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = arrow.Field{Name: c.name, Type: c.typ, Nullable: true}
	}
	s := arrow.NewSchema(fields, nil)
	if err := b.create(table, s); err != nil {
		return err
	}
	w, err := writer.Claim(ctx, writer.Config{
		Root: b.root, Table: table, Shard: "bench", Etcd: []string{b.etcd}, MaxPending: 4096, BufferBytes: 1 << 30,
	})
	if err != nil {
		return err
	}
	defer w.Close(ctx) // everything was sealed
	r := rand.New(rand.NewPCG(1, 2))
	const slice = 100_000
	for range generations {
		for left := rows; left > 0; left -= slice {
			n := min(left, slice)
			builder := array.NewRecordBuilder(memory.DefaultAllocator, s)
			for i, c := range columns {
				builder.Field(i).Reserve(n)
				c.fill(r, builder.Field(i), n)
			}
			rec := builder.NewRecord()
			builder.Release()
			err := w.Append(ctx, rec)
			rec.Release()
			if err != nil {
				return err
			}
		}
		if _, err := w.Seal(ctx); err != nil {
			return err
		}
	}
	return nil
}

// create makes a table by the command, from a description of its columns as the command takes it.
func (b *bench) create(table string, s *arrow.Schema, flags ...string) error {
	types := map[arrow.Type]string{arrow.STRING: "string", arrow.INT64: "long", arrow.FLOAT64: "double", arrow.INT32: "integer", arrow.TIMESTAMP: "timestamp"}
	fields := make([]map[string]any, s.NumFields())
	for i, f := range s.Fields() {
		fields[i] = map[string]any{"name": f.Name, "type": types[f.Type.ID()], "nullable": f.Nullable, "metadata": map[string]any{}}
	}
	description, err := json.Marshal(map[string]any{"type": "struct", "fields": fields})
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(b.root), table+".json")
	if err := os.WriteFile(path, description, 0o644); err != nil {
		return err
	}
	return b.tidemark(append([]string{"table", "create", table, "--schema", path}, flags...)...)
}

// scaled is a size at the scale that is asked for, at least one.
func (b *bench) scaled(n int) int { return max(int(math.Round(float64(n)*b.scale)), 1) }
