package cat

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"

	"tidemark/internal/demo"
	"tidemark/internal/ingest"
)

func rowsOf(recs ...arrow.Record) iter.Seq2[arrow.Record, error] {
	return func(yield func(arrow.Record, error) bool) {
		for _, rec := range recs {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// everyType has a column of each type that a table can have.
var everyType = arrow.NewSchema([]arrow.Field{
	{Name: "flag", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
	{Name: "i8", Type: arrow.PrimitiveTypes.Int8, Nullable: true},
	{Name: "i16", Type: arrow.PrimitiveTypes.Int16, Nullable: true},
	{Name: "i32", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	{Name: "i64", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "f32", Type: arrow.PrimitiveTypes.Float32, Nullable: true},
	{Name: "f64", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	{Name: "price", Type: &arrow.Decimal128Type{Precision: 38, Scale: 2}, Nullable: true},
	{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "raw", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "day", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
	{Name: "local", Type: &arrow.TimestampType{Unit: arrow.Microsecond}, Nullable: true},
	{Name: "instant", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, Nullable: true},
	{Name: "place", Type: arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float64, Nullable: true}, arrow.Field{Name: "na\"me", Type: arrow.BinaryTypes.String, Nullable: true}), Nullable: true},
	{Name: "tags", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
	{Name: "counts", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), Nullable: true},
}, nil)

// record appends one value or null per column, drawn by pick.
func record(rows int, pick func(b array.Builder)) arrow.Record {
	b := array.NewRecordBuilder(memory.DefaultAllocator, everyType)
	defer b.Release()
	for range rows {
		for _, f := range b.Fields() {
			pick(f)
		}
	}
	return b.NewRecord()
}

func example(b array.Builder) {
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(true)
	case *array.Int8Builder:
		b.Append(-8)
	case *array.Int16Builder:
		b.Append(16)
	case *array.Int32Builder:
		b.Append(32)
	case *array.Int64Builder:
		b.Append(math.MinInt64)
	case *array.Float32Builder:
		b.Append(0.1)
	case *array.Float64Builder:
		b.Append(3)
	case *array.Decimal128Builder:
		b.Append(decimal128.FromI64(-5))
	case *array.StringBuilder:
		b.Append("a, \"b\"\nü\u0001")
	case *array.BinaryBuilder:
		b.Append([]byte{0, 255})
	case *array.Date32Builder:
		b.Append(-1)
	case *array.TimestampBuilder:
		b.Append(1_500_000)
	case *array.StructBuilder:
		b.Append(true)
		b.FieldBuilder(0).(*array.Float64Builder).Append(math.NaN())
		b.FieldBuilder(1).AppendNull()
	case *array.MapBuilder:
		b.Append(true)
		b.KeyBuilder().(*array.StringBuilder).Append("k")
		b.ItemBuilder().(*array.Int64Builder).Append(1)
	case *array.ListBuilder:
		b.Append(true)
		b.ValueBuilder().(*array.StringBuilder).Append("")
		b.ValueBuilder().AppendNull()
	}
}

func TestHowValuesLook(t *testing.T) {
	nulls := record(1, func(b array.Builder) { b.AppendNull() })
	full := record(1, example)
	for format, want := range map[Format]string{
		CSV: `flag,i8,i16,i32,i64,f32,f64,price,text,raw,day,local,instant,place,tags,counts
true,-8,16,32,-9223372036854775808,0.1,3.0,-0.05,"a, ""b""
ü` + "\u0001" + `",AP8=,1969-12-31,1970-01-01T00:00:01.5,1970-01-01T00:00:01.5Z,"{""x"":""NaN"",""na\""me"":null}","["""",null]","{""k"":1}"
,,,,,,,,,,,,,,,
`,
		JSONL: `{"flag":true,"i8":-8,"i16":16,"i32":32,"i64":-9223372036854775808,"f32":0.1,"f64":3.0,"price":-0.05,"text":"a, \"b\"\nü\u0001","raw":"AP8=","day":"1969-12-31","local":"1970-01-01T00:00:01.5","instant":"1970-01-01T00:00:01.5Z","place":{"x":"NaN","na\"me":null},"tags":["",null],"counts":{"k":1}}
{"flag":null,"i8":null,"i16":null,"i32":null,"i64":null,"f32":null,"f64":null,"price":null,"text":null,"raw":null,"day":null,"local":null,"instant":null,"place":null,"tags":null,"counts":null}
`,
	} {
		var out bytes.Buffer
		if n, err := Write(context.Background(), &out, everyType, rowsOf(full, nulls), Options{Format: format}); err != nil || n != 2 {
			t.Fatalf("%s: %d rows, %v", format, n, err)
		}
		if out.String() != want {
			t.Errorf("%s: got\n%s\nwant\n%s", format, out.String(), want)
		}
	}
}

// TestWhatIsWrittenIsReadBack: rows of any values come back from `tidemark ingest` as the same rows.
func TestWhatIsWrittenIsReadBack(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		rec := record(rapid.IntRange(0, 5).Draw(t, "rows"), func(b array.Builder) { anyValue(t, b) })
		want, err := demo.Checksum(rec)
		if err != nil {
			t.Fatal(err)
		}
		for _, format := range []Format{CSV, JSONL, Parquet} {
			if format == JSONL && rec.NumRows() == 0 {
				continue // no rows, no columns
			}
			path := filepath.Join(dir, "rows."+string(format))
			var out bytes.Buffer
			if _, err := Write(context.Background(), &out, everyType, rowsOf(rec), Options{Format: format}); err != nil {
				t.Fatalf("%s: %v", format, err)
			}
			if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			src, err := ingest.Open(context.Background(), ingest.Options{Sanitize: true, Table: everyType}, ingest.File(path))
			if err != nil {
				t.Fatalf("%s: %v", format, err)
			}
			var got demo.Sum
			for {
				back, err := src.Next(context.Background())
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v", format, err)
				}
				sum, err := demo.Checksum(back)
				if err != nil {
					t.Fatal(err)
				}
				got = got.Plus(sum)
			}
			if err := src.Close(); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Fatalf("%s: wrote %v, read %v", format, want, got)
			}
		}
	})
}

func anyValue(t *rapid.T, b array.Builder) {
	if rapid.IntRange(0, 4).Draw(t, "null") == 0 {
		b.AppendNull()
		return
	}
	text := func() string { return rapid.String().Draw(t, "text") }
	micros := func() int64 { return rapid.Int64Range(-62135596800000000, 253402300799999999).Draw(t, "micros") }
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(rapid.Bool().Draw(t, "bool"))
	case *array.Int8Builder:
		b.Append(rapid.Int8().Draw(t, "i8"))
	case *array.Int16Builder:
		b.Append(rapid.Int16().Draw(t, "i16"))
	case *array.Int32Builder:
		b.Append(rapid.Int32().Draw(t, "i32"))
	case *array.Int64Builder:
		b.Append(rapid.Int64().Draw(t, "i64"))
	case *array.Float32Builder:
		b.Append(rapid.OneOf(rapid.Float32(), rapid.SampledFrom([]float32{float32(math.NaN()), float32(math.Inf(-1))})).Draw(t, "f32"))
	case *array.Float64Builder:
		b.Append(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Copysign(0, -1)})).Draw(t, "f64"))
	case *array.Decimal128Builder:
		b.Append(decimal128.FromI64(rapid.Int64().Draw(t, "decimal")))
	case *array.StringBuilder:
		b.Append(text())
	case *array.BinaryBuilder:
		b.Append([]byte(text()))
	case *array.Date32Builder:
		b.Append(arrow.Date32(micros() / 86_400_000_000))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(micros()))
	case *array.StructBuilder:
		b.Append(true)
		anyValue(t, b.FieldBuilder(0))
		b.FieldBuilder(1).AppendNull()
	case *array.MapBuilder:
		b.Append(true)
		for i := range rapid.IntRange(0, 2).Draw(t, "entries") {
			b.KeyBuilder().(*array.StringBuilder).Append(strings.Repeat("k", i+1))
			anyValue(t, b.ItemBuilder())
		}
	case *array.ListBuilder:
		b.Append(true)
		for range rapid.IntRange(0, 2).Draw(t, "elements") {
			anyValue(t, b.ValueBuilder())
		}
	}
}

func TestColumnsAndLimit(t *testing.T) {
	rec := record(10, example)
	asked := 0
	endless := func(yield func(arrow.Record, error) bool) {
		for asked < 10 && yield(rec, nil) {
			asked++
		}
	}
	var out bytes.Buffer
	n, err := Write(context.Background(), &out, everyType, endless, Options{Format: CSV, Columns: []string{"i16", "i8"}, Limit: 12})
	if err != nil || n != 12 || asked != 1 {
		t.Errorf("%d rows after %d further records, %v", n, asked, err)
	}
	if want := "i16,i8\n" + strings.Repeat("16,-8\n", 12); out.String() != want {
		t.Errorf("got %q", out.String())
	}
	_, err = Write(context.Background(), &out, everyType, endless, Options{Format: CSV, Columns: []string{"none"}})
	if e := (*UnknownColumnError)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), "i16, i32") {
		t.Errorf("got %v", err)
	}
}

func TestFailuresOfEitherSideEndTheWriting(t *testing.T) {
	broken := errors.New("broken")
	for _, format := range []Format{CSV, JSONL, Parquet} {
		failing := func(yield func(arrow.Record, error) bool) { yield(nil, broken) }
		if _, err := Write(context.Background(), io.Discard, everyType, failing, Options{Format: format}); !errors.Is(err, broken) {
			t.Errorf("%s: the source's failure became %v", format, err)
		}
		if _, err := Write(context.Background(), brokenPipe{broken}, everyType, rowsOf(record(1, example)), Options{Format: format}); !errors.Is(err, broken) {
			t.Errorf("%s: the sink's failure became %v", format, err)
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(broken)
		if _, err := Write(ctx, io.Discard, everyType, rowsOf(record(1, example)), Options{Format: format}); !errors.Is(err, broken) {
			t.Errorf("%s: cancelling became %v", format, err)
		}
	}
}

type brokenPipe struct{ err error }

func (b brokenPipe) Write([]byte) (int, error) { return 0, b.err }
