package schema_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/float16"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"

	"tidemark/internal/columns/columnstest"
	"tidemark/internal/schema"
)

// column makes a record of one nullable column "c" from JSON values.
func column(t testing.TB, mem memory.Allocator, dt arrow.DataType, values string) arrow.Record {
	t.Helper()
	arr, _, err := array.FromJSON(mem, dt, strings.NewReader(values))
	if err != nil {
		t.Fatal(err)
	}
	defer arr.Release()
	return recordOf(arr)
}

func recordOf(arr arrow.Array) arrow.Record {
	s := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arr.DataType(), Nullable: true}}, nil)
	return array.NewRecord(s, []arrow.Array{arr}, int64(arr.Len()))
}

func nullable(dt arrow.DataType) *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: "c", Type: dt, Nullable: true}}, nil)
}

// project projects a record and says its column as text, or the error.
func project(t testing.TB, mem memory.Allocator, rec arrow.Record, target *arrow.Schema) (string, error) {
	t.Helper()
	out, err := schema.Project(context.Background(), mem, rec, target)
	if err != nil {
		return "", err
	}
	defer out.Release()
	if err := schema.CheckValues(out); err != nil {
		t.Fatal(err)
	}
	return strings.Join(columnstest.Rows(out), " "), nil
}

func TestWideningsKeepEveryValueOrSayWhichDoesNotFit(t *testing.T) {
	stamp := func(unit arrow.TimeUnit, zone string) arrow.DataType {
		return &arrow.TimestampType{Unit: unit, TimeZone: zone}
	}
	us, utc := stamp(arrow.Microsecond, ""), stamp(arrow.Microsecond, "UTC")
	decimal := func(p, s int32) arrow.DataType { return &arrow.Decimal128Type{Precision: p, Scale: s} }
	i16, i32, i64 := arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64
	for _, c := range []struct {
		from   arrow.DataType
		values string
		to     arrow.DataType
		want   string // the values, or part of the error after "!"
	}{
		{arrow.PrimitiveTypes.Int8, `[-128,127,null]`, i16, "-128 127 null"},
		{arrow.PrimitiveTypes.Int8, `[-128,127,null]`, i64, "-128 127 null"},
		{arrow.PrimitiveTypes.Uint8, `[0,255,null]`, i16, "0 255 null"},
		{arrow.PrimitiveTypes.Uint16, `[0,65535]`, i32, "0 65535"},
		{arrow.PrimitiveTypes.Uint32, `[4294967295]`, i64, "4294967295"},
		{i64, `[9223372036854775000]`, i32, "!does not widen"},
		{arrow.PrimitiveTypes.Uint32, `[1]`, i32, "!does not widen"},
		{i32, `[2147483647,null]`, arrow.PrimitiveTypes.Float64, "2.147483647e+09/41dfffffffc00000 null"},
		{i64, `[1]`, arrow.PrimitiveTypes.Float64, "!does not widen"},
		{i32, `[-7,null]`, decimal(12, 2), "-700 null"},
		{i32, `[-7]`, decimal(11, 2), "!does not widen"},
		{i64, `[5]`, decimal(20, 0), "5"},
		{decimal(9, 2), `["-1234567.89","1234567.89",null]`, decimal(38, 10), "-12345678900000000 12345678900000000 null"},
		{decimal(9, 2), `["1"]`, decimal(9, 1), "!does not widen"},
		{&arrow.Decimal256Type{Precision: 38, Scale: 0}, `["99999999999999999999999999999999999999"]`, decimal(38, 0), "99999999999999999999999999999999999999"},
		{arrow.BinaryTypes.LargeString, `["","é",null]`, arrow.BinaryTypes.String, `"" "é" null`},
		{arrow.BinaryTypes.LargeBinary, `["AAE=",null]`, arrow.BinaryTypes.Binary, "0001 null"},
		{&arrow.FixedSizeBinaryType{ByteWidth: 2}, `["AAE=",null]`, arrow.BinaryTypes.Binary, "0001 null"},
		{arrow.BinaryTypes.Binary, `["AAE="]`, arrow.BinaryTypes.String, "!does not widen"},
		{arrow.FixedWidthTypes.Date64, `["1969-12-31",null]`, arrow.FixedWidthTypes.Date32, "-1 null"},
		{arrow.FixedWidthTypes.Date32, `["1970-01-02",null]`, us, "86400000000 null"},
		{arrow.FixedWidthTypes.Date32, `["1970-01-02"]`, utc, "!does not widen"},
		{stamp(arrow.Second, ""), `["1969-12-31T23:59:59",null]`, us, "-1000000 null"},
		{stamp(arrow.Millisecond, "Asia/Tokyo"), `["1970-01-01T00:00:00.001Z"]`, utc, "1000"},
		{stamp(arrow.Nanosecond, ""), `["1970-01-01T00:00:00.000001",null]`, us, "1 null"},
		{stamp(arrow.Nanosecond, ""), `["1970-01-01","1970-01-01T00:00:00.0000005"]`, us, `!column "c", row 1: timestamp 500 ns`},
		{utc, `["1970-01-01"]`, us, "!does not widen"},
		{us, `["1970-01-01"]`, utc, "!does not widen"},
		{arrow.BinaryTypes.String, `["1"]`, i64, "!does not widen"},
		{arrow.FixedWidthTypes.Boolean, `[true]`, i64, "!does not widen"},
		{arrow.PrimitiveTypes.Float64, `[1.5]`, arrow.PrimitiveTypes.Float32, "!does not widen"},
		{arrow.Null, `[null,null]`, decimal(9, 2), "null null"},
		{arrow.LargeListOf(arrow.PrimitiveTypes.Uint8), `[[1,null],null,[]]`, arrow.ListOf(i64), "[1,null] null []"},
		{arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8), `[[1,2],null,[3,4]]`, arrow.ListOf(i64), "[1,2] null [3,4]"},
		{arrow.ListOf(stamp(arrow.Nanosecond, "")), `[[],["1970-01-01","1970-01-01T00:00:00.0000005"]]`, arrow.ListOf(us), `!column "c.element", row 1`},
		{arrow.MapOf(arrow.BinaryTypes.LargeString, arrow.PrimitiveTypes.Int8), `[[{"key":"k","value":1}],null]`, arrow.MapOf(arrow.BinaryTypes.String, i64), `[{"k",1}] null`},
		{arrow.StructOf(arrow.Field{Name: "b", Type: i32, Nullable: true}, arrow.Field{Name: "gone", Type: i32, Nullable: true}), `[{"b":1,"gone":2},null]`,
			arrow.StructOf(arrow.Field{Name: "new", Type: arrow.BinaryTypes.String, Nullable: true}, arrow.Field{Name: "b", Type: i64, Nullable: true}), "{null,1} null"},
		{arrow.StructOf(arrow.Field{Name: "b", Type: i32, Nullable: true}), `[{"b":1}]`,
			arrow.StructOf(arrow.Field{Name: "new", Type: i32}), `!column "c.new"`},
		{arrow.StructOf(arrow.Field{Name: "b", Type: i32, Nullable: true}), `[{"b":1},null,{"b":null}]`,
			arrow.StructOf(arrow.Field{Name: "b", Type: i64}), `!column "c.b", row 2`},
		{i64, `[1]`, arrow.ListOf(i64), "!does not widen"},
	} {
		t.Run(c.from.String()+" to "+c.to.String(), func(t *testing.T) {
			mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
			defer mem.AssertSize(t, 0)
			rec := column(t, mem, c.from, c.values)
			defer rec.Release()
			have, err := project(t, mem, rec, nullable(c.to))
			var value *schema.ValueError
			if part, ok := strings.CutPrefix(c.want, "!"); ok {
				if !errors.As(err, &value) || !strings.Contains(err.Error(), part) {
					t.Fatalf("%q, %v; want an error with %q", have, err, part)
				}
			} else if err != nil || have != c.want {
				t.Fatalf("%q, %v; want %q", have, err, c.want)
			}
		})
	}
}

func TestTimestampsBeyondMicrosecondsAreRefusedWithTheirRow(t *testing.T) {
	us := &arrow.TimestampType{Unit: arrow.Microsecond}
	for _, c := range []struct {
		unit      arrow.TimeUnit
		last, bad int64
	}{
		{arrow.Second, math.MaxInt64 / 1_000_000, math.MaxInt64/1_000_000 + 1},
		{arrow.Second, math.MinInt64 / 1_000_000, math.MinInt64/1_000_000 - 1},
		{arrow.Millisecond, math.MaxInt64 / 1_000, math.MaxInt64/1_000 + 1},
		{arrow.Nanosecond, math.MinInt64 / 1_000 * 1_000, math.MinInt64},
	} {
		b := array.NewTimestampBuilder(memory.DefaultAllocator, &arrow.TimestampType{Unit: c.unit})
		b.AppendNull()
		b.Append(arrow.Timestamp(c.last))
		b.Append(arrow.Timestamp(c.bad))
		arr := b.NewArray()
		b.Release()
		rec := recordOf(arr)
		var value *schema.ValueError
		if have, err := project(t, memory.DefaultAllocator, rec, nullable(us)); !errors.As(err, &value) || value.Row != 2 || value.Column != "c" {
			t.Errorf("%s %d: %s, %v", c.unit, c.bad, have, err)
		}
		good := rec.NewSlice(0, 2)
		if _, err := project(t, memory.DefaultAllocator, good, nullable(us)); err != nil {
			t.Errorf("%s %d: %v", c.unit, c.last, err)
		}
		good.Release()
		rec.Release()
		arr.Release()
	}
}

func TestHalfFloatsWidenExactly(t *testing.T) {
	b := array.NewFloat16Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Append(float16.New(1.5))
	b.AppendNull()
	arr := b.NewArray()
	defer arr.Release()
	rec := recordOf(arr)
	defer rec.Release()
	if have, err := project(t, memory.DefaultAllocator, rec, nullable(arrow.PrimitiveTypes.Float32)); err != nil || !strings.HasPrefix(have, "1.5/") || !strings.HasSuffix(have, " null") {
		t.Fatalf("%s, %v", have, err)
	}
}

// Dictionaries may differ from batch to batch, hold nulls and values nobody uses, and be indexed by any integer.
func TestDictionariesBecomeTheirValues(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	for _, c := range []struct {
		index                 arrow.DataType
		values, indices, want string
	}{
		{arrow.PrimitiveTypes.Int8, `["a","b"]`, `[1,null,0,1]`, `"b" null "a" "b"`},
		{arrow.PrimitiveTypes.Uint32, `["b","a",null]`, `[1,2,0]`, `"a" null "b"`},
		{arrow.PrimitiveTypes.Int64, `[]`, `[null]`, `null`},
	} {
		indices, _, err := array.FromJSON(mem, c.index, strings.NewReader(c.indices))
		if err != nil {
			t.Fatal(err)
		}
		values, _, err := array.FromJSON(mem, arrow.BinaryTypes.String, strings.NewReader(c.values))
		if err != nil {
			t.Fatal(err)
		}
		dict := array.NewDictionaryArray(&arrow.DictionaryType{IndexType: c.index, ValueType: arrow.BinaryTypes.String}, indices, values)
		rec := recordOf(dict)
		if have, err := project(t, mem, rec, nullable(arrow.BinaryTypes.String)); err != nil || have != c.want {
			t.Errorf("%s over %s: %s, %v", c.indices, c.values, have, err)
		}
		sliced := rec.NewSlice(rec.NumRows()-1, rec.NumRows())
		last := c.want[strings.LastIndex(c.want, " ")+1:]
		if have, err := project(t, mem, sliced, nullable(arrow.BinaryTypes.String)); err != nil || have != last {
			t.Errorf("last of %s over %s: %s, %v", c.indices, c.values, have, err)
		}
		sliced.Release()
		rec.Release()
		dict.Release()
		values.Release()
		indices.Release()
	}
}

func TestRunEndsBecomeTheirValues(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	b := array.NewRunEndEncodedBuilder(mem, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint8)
	defer b.Release()
	b.Append(2)
	b.ValueBuilder().(*array.Uint8Builder).Append(255)
	b.Append(3)
	b.ValueBuilder().(*array.Uint8Builder).AppendNull()
	arr := b.NewArray()
	defer arr.Release()
	rec := recordOf(arr)
	defer rec.Release()
	if have, err := project(t, mem, rec, nullable(arrow.PrimitiveTypes.Int16)); err != nil || have != "255 255 null null null" {
		t.Fatalf("%s, %v", have, err)
	}
	sliced := rec.NewSlice(1, 3)
	defer sliced.Release()
	if have, err := project(t, mem, sliced, nullable(arrow.PrimitiveTypes.Int16)); err != nil || have != "255 null" {
		t.Fatalf("%s, %v", have, err)
	}
}

func TestTextThatIsNotUTF8IsRefusedWithColumnAndRow(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	b := array.NewListBuilder(mem, arrow.BinaryTypes.String)
	defer b.Release()
	for _, row := range [][]string{{"ok", strings.Repeat("x", 100)}, {}, {"é", "\xff\xfe"}} {
		b.Append(true)
		b.ValueBuilder().(*array.StringBuilder).AppendValues(row, nil)
	}
	arr := b.NewArray()
	defer arr.Release()
	rec := recordOf(arr)
	defer rec.Release()
	_, err := schema.Project(context.Background(), mem, rec, rec.Schema())
	var value *schema.ValueError
	if !errors.As(err, &value) || value.Row != 2 || value.Column != "c.element" {
		t.Fatal(err)
	}
	good := rec.NewSlice(0, 2)
	defer good.Release()
	if _, err := project(t, mem, good, rec.Schema()); err != nil {
		t.Fatal(err)
	}
}

func TestAColumnThatMayNotBeNullHasNoNulls(t *testing.T) {
	rec := column(t, memory.DefaultAllocator, arrow.PrimitiveTypes.Int64, `[1,2,null]`)
	defer rec.Release()
	required := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arrow.PrimitiveTypes.Int64}}, nil)
	var value *schema.ValueError
	if _, err := schema.Project(context.Background(), memory.DefaultAllocator, rec, required); !errors.As(err, &value) || value.Row != 2 {
		t.Fatal(err)
	}
	missing := arrow.NewSchema([]arrow.Field{{Name: "d", Type: arrow.PrimitiveTypes.Int64}}, nil)
	if _, err := schema.Project(context.Background(), memory.DefaultAllocator, rec, missing); !errors.As(err, &value) || value.Row != -1 {
		t.Fatal(err)
	}
	empty := rec.NewSlice(0, 0)
	defer empty.Release()
	out, err := schema.Project(context.Background(), memory.DefaultAllocator, empty, missing)
	if err != nil {
		t.Fatal(err)
	}
	out.Release()
}

func TestProjectingOntoTheSameColumnsInAnyOrderKeepsEveryCell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
		defer mem.AssertSize(t, 0)
		in := columnstest.Schema(t, 3)
		rec := columnstest.Record(t, mem, in, rapid.IntRange(0, 10).Draw(t, "rows"))
		defer rec.Release()
		target := arrow.NewSchema(rapid.Permutation(in.Fields()).Draw(t, "order"), nil)
		there, err := schema.Project(context.Background(), mem, rec, target)
		if err != nil {
			t.Fatal(err)
		}
		defer there.Release()
		back, err := schema.Project(context.Background(), mem, there, in)
		if err != nil {
			t.Fatal(err)
		}
		defer back.Release()
		if want, have := columnstest.Rows(rec), columnstest.Rows(back); !slices.Equal(want, have) {
			t.Fatalf("%s\nbecame %s", want, have)
		}
	})
}
