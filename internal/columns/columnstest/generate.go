// Package columnstest draws schemas and records of every type a Tidemark file holds, hostile values included, for
// property tests of what moves, encodes or compares them.
package columnstest

import (
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"
)

// Leaves are the leaf types of our files.
var Leaves = []arrow.DataType{
	arrow.FixedWidthTypes.Boolean,
	arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
	arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64,
	arrow.BinaryTypes.String, arrow.BinaryTypes.Binary,
	arrow.FixedWidthTypes.Date32,
	&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"},
	&arrow.TimestampType{Unit: arrow.Microsecond},
	&arrow.Decimal128Type{Precision: 1, Scale: 0},
	&arrow.Decimal128Type{Precision: 9, Scale: 2},
	&arrow.Decimal128Type{Precision: 18, Scale: 18},
	&arrow.Decimal128Type{Precision: 38, Scale: 10},
}

// Type draws a type, nested up to depth deep.
func Type(t *rapid.T, depth int) arrow.DataType {
	shape := "leaf"
	if depth > 0 {
		shape = rapid.SampledFrom([]string{"leaf", "leaf", "struct", "list", "map"}).Draw(t, "shape")
	}
	switch shape {
	case "struct":
		return arrow.StructOf(fields(t, depth-1, 1, 3)...)
	case "list":
		return arrow.ListOfField(arrow.Field{Name: "element", Type: Type(t, depth-1), Nullable: true})
	case "map":
		return arrow.MapOf(rapid.SampledFrom(Leaves).Draw(t, "key"), Type(t, depth-1))
	}
	return rapid.SampledFrom(Leaves).Draw(t, "leaf")
}

// Schema draws a schema of 1 to 4 columns, nested up to depth deep.
func Schema(t *rapid.T, depth int) *arrow.Schema { return arrow.NewSchema(fields(t, depth, 1, 4), nil) }

func fields(t *rapid.T, depth, least, most int) []arrow.Field {
	out := make([]arrow.Field, rapid.IntRange(least, most).Draw(t, "fields"))
	for i := range out {
		out[i] = arrow.Field{
			Name:     fmt.Sprintf("c%d", i),
			Type:     Type(t, depth),
			Nullable: rapid.Bool().Draw(t, "nullable"),
		}
	}
	return out
}

// Record draws a record of n rows. It is sometimes a slice of a larger one, as records of real writers are.
func Record(t *rapid.T, mem memory.Allocator, schema *arrow.Schema, n int) arrow.Record {
	before, after := 0, 0
	if rapid.Bool().Draw(t, "sliced") {
		before, after = rapid.IntRange(0, 9).Draw(t, "before"), rapid.IntRange(0, 9).Draw(t, "after")
	}
	out := make([]arrow.Array, schema.NumFields())
	for i, f := range schema.Fields() {
		b := array.NewBuilder(mem, f.Type)
		for range before + n + after {
			Append(t, b, f.Nullable)
		}
		out[i] = b.NewArray()
		b.Release()
		defer out[i].Release()
	}
	whole := array.NewRecord(schema, out, int64(before+n+after))
	defer whole.Release()
	return whole.NewSlice(int64(before), int64(before+n))
}

// Append draws a value, or a null if it may be one, and appends it.
func Append(t *rapid.T, b array.Builder, nullable bool) {
	if nullable && rapid.IntRange(0, 3).Draw(t, "null") == 0 {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(rapid.Bool().Draw(t, "bool"))
	case *array.Int8Builder:
		b.Append(rapid.Int8().Draw(t, "int8"))
	case *array.Int16Builder:
		b.Append(rapid.Int16().Draw(t, "int16"))
	case *array.Int32Builder:
		b.Append(rapid.Int32().Draw(t, "int32"))
	case *array.Int64Builder:
		b.Append(rapid.Int64().Draw(t, "int64"))
	case *array.Float32Builder:
		b.Append(float32(Float(t)))
	case *array.Float64Builder:
		b.Append(Float(t))
	case *array.StringBuilder:
		b.Append(Text(t))
	case *array.BinaryBuilder:
		b.Append(rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "binary"))
	case *array.Date32Builder:
		b.Append(arrow.Date32(rapid.Int32().Draw(t, "date")))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(rapid.Int64().Draw(t, "timestamp")))
	case *array.Decimal128Builder:
		b.Append(Decimal(t, b.Type().(*arrow.Decimal128Type).Precision))
	case *array.StructBuilder:
		b.Append(true)
		for i, f := range b.Type().(*arrow.StructType).Fields() {
			Append(t, b.FieldBuilder(i), f.Nullable)
		}
	case *array.ListBuilder:
		b.Append(true)
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			Append(t, b.ValueBuilder(), b.Type().(*arrow.ListType).ElemField().Nullable)
		}
	case *array.MapBuilder:
		b.Append(true)
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			Append(t, b.KeyBuilder(), false)
			Append(t, b.ItemBuilder(), b.Type().(*arrow.MapType).ItemField().Nullable)
		}
	default:
		panic(fmt.Sprintf("columnstest: no values of %s", b.Type()))
	}
}

// Float draws a float; the special ones often.
func Float(t *rapid.T) float64 {
	return rapid.OneOf(
		rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.NaN(), math.Float64frombits(0xfff8000000000001),
			math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, 1, -1}),
		rapid.Float64(),
	).Draw(t, "float")
}

// Text draws text: empty, short, with zero bytes and high code points, and long with a common prefix.
func Text(t *rapid.T) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "\x00", "a", "a\x00", "a\x00\x00", "a\x01", "aa", "\U0010ffff", "\ud7ff", "é"}),
		rapid.StringN(0, 6, -1),
		rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"x", "\U0010ffff"}).Draw(t, "prefix"), 31) +
				rapid.StringN(0, 4, -1).Draw(t, "suffix")
		}),
	).Draw(t, "text")
}

// Decimal draws a decimal of up to precision digits; the edges often.
func Decimal(t *rapid.T, precision int32) decimal128.Num {
	largest := decimal128.GetMaxValue(precision)
	switch rapid.IntRange(0, 3).Draw(t, "decimal") {
	case 0:
		return largest
	case 1:
		return largest.Negate()
	case 2:
		return decimal128.FromI64(int64(rapid.IntRange(-9, 9).Draw(t, "small")))
	}
	hi, lo := rapid.Int64().Draw(t, "hi"), rapid.Uint64().Draw(t, "lo")
	_, rest := decimal128.New(hi, lo).Div(largest)
	return rest
}
