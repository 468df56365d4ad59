package parquetfile_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"

	"tidemark/internal/columns/columnstest"
	"tidemark/internal/parquetfile"
)

// statsOf writes one column "c" from JSON values and returns its statistics.
func statsOf(t testing.TB, dt arrow.DataType, values string) string {
	t.Helper()
	arr, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(values))
	if err != nil {
		t.Fatal(err)
	}
	defer arr.Release()
	return statsOfArray(t, arr)
}

func statsOfArray(t testing.TB, arr arrow.Array) string {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arr.DataType(), Nullable: true}}, nil)
	rec := array.NewRecord(schema, []arrow.Array{arr}, int64(arr.Len()))
	defer rec.Release()
	_, summary := encode(t, rec)
	return summary.Stats.JSON()
}

func TestStatisticsAsDeltaWritesThem(t *testing.T) {
	utc := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	ntz := &arrow.TimestampType{Unit: arrow.Microsecond}
	nested := arrow.StructOf(
		arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		arrow.Field{Name: "in", Type: arrow.StructOf(arrow.Field{Name: "y", Type: arrow.BinaryTypes.String, Nullable: true}), Nullable: true},
		arrow.Field{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true})
	for _, c := range []struct {
		dt           arrow.DataType
		values, want string
	}{
		{arrow.PrimitiveTypes.Int8, `[]`, `{"numRecords":0,"minValues":{},"maxValues":{},"nullCount":{"c":0}}`},
		{arrow.PrimitiveTypes.Int8, `[null]`, `{"numRecords":1,"minValues":{},"maxValues":{},"nullCount":{"c":1}}`},
		{arrow.PrimitiveTypes.Int8, `[5,null,-3]`, `{"numRecords":3,"minValues":{"c":-3},"maxValues":{"c":5},"nullCount":{"c":1}}`},
		{arrow.PrimitiveTypes.Float64, `[1.5,2]`, `{"numRecords":2,"minValues":{"c":1.5},"maxValues":{"c":2.0},"nullCount":{"c":0}}`},
		{arrow.PrimitiveTypes.Float64, `[0]`, `{"numRecords":1,"minValues":{"c":-0.0},"maxValues":{"c":0.0},"nullCount":{"c":0}}`},
		{arrow.FixedWidthTypes.Boolean, `[true,null]`, `{"numRecords":2,"minValues":{},"maxValues":{},"nullCount":{"c":1}}`},
		{arrow.BinaryTypes.Binary, `["AAE="]`, `{"numRecords":1,"minValues":{},"maxValues":{},"nullCount":{"c":0}}`},
		{arrow.BinaryTypes.String, `["b","","a\"<"]`, `{"numRecords":3,"minValues":{"c":""},"maxValues":{"c":"b"},"nullCount":{"c":0}}`},
		{arrow.FixedWidthTypes.Date32, `["1969-12-31","2024-02-29"]`, `{"numRecords":2,"minValues":{"c":"1969-12-31"},"maxValues":{"c":"2024-02-29"},"nullCount":{"c":0}}`},
		{utc, `["1969-12-31T23:59:59.9999","2024-01-01T00:00:00.0001"]`, `{"numRecords":2,"minValues":{"c":"1969-12-31T23:59:59.999Z"},"maxValues":{"c":"2024-01-01T00:00:00.001Z"},"nullCount":{"c":0}}`},
		{ntz, `["1969-12-31T23:59:59.9991"]`, `{"numRecords":1,"minValues":{"c":"1969-12-31T23:59:59.999"},"maxValues":{"c":"1970-01-01T00:00:00.000"},"nullCount":{"c":0}}`},
		{&arrow.Decimal128Type{Precision: 9, Scale: 2}, `["-0.05","12"]`, `{"numRecords":2,"minValues":{"c":-0.05},"maxValues":{"c":12.00},"nullCount":{"c":0}}`},
		{arrow.ListOf(arrow.PrimitiveTypes.Int32), `[[1],null,[null]]`, `{"numRecords":3,"minValues":{},"maxValues":{},"nullCount":{"c":1}}`},
		{nested, `[{"x":1,"in":{"y":"a"},"l":[]},null,{"x":null,"in":null,"l":null}]`,
			`{"numRecords":3,"minValues":{"c":{"x":1,"in":{"y":"a"}}},"maxValues":{"c":{"x":1,"in":{"y":"a"}}},"nullCount":{"c":{"x":2,"in":{"y":2},"l":2}}}`},
	} {
		if have := statsOf(t, c.dt, c.values); have != c.want {
			t.Errorf("%s %s:\nhave %s\nwant %s", c.dt, c.values, have, c.want)
		}
	}
}

func TestANaNLeavesNoMaximumAndInfinityNoBound(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{[]float64{1, math.NaN(), 3}, `"minValues":{"c":1.0},"maxValues":{}`},
		{[]float64{math.NaN(), 3, 1}, `"minValues":{"c":1.0},"maxValues":{}`},
		{[]float64{math.NaN()}, `"minValues":{},"maxValues":{}`},
		{[]float64{math.Inf(-1), 1}, `"minValues":{},"maxValues":{"c":1.0}`},
		{[]float64{math.Inf(1), 1}, `"minValues":{"c":1.0},"maxValues":{}`},
		{[]float64{math.Copysign(0, -1), -1}, `"minValues":{"c":-1.0},"maxValues":{"c":0.0}`},
	} {
		b := array.NewFloat64Builder(memory.DefaultAllocator)
		b.AppendValues(c.values, nil)
		arr := b.NewArray()
		if have := statsOfArray(t, arr); !strings.Contains(have, c.want) {
			t.Errorf("%v: %s, want %s", c.values, have, c.want)
		}
		arr.Release()
		b.Release()
	}
}

func TestLongTextIsCutBelowAndRaisedAbove(t *testing.T) {
	last := "\U0010ffff"
	for _, c := range []struct{ value, min, max string }{
		{strings.Repeat("é", 32), strings.Repeat("é", 32), strings.Repeat("é", 32)},
		{strings.Repeat("x", 33), strings.Repeat("x", 32), strings.Repeat("x", 31) + "y"},
		{strings.Repeat("x", 31) + last + "x", strings.Repeat("x", 31) + last, strings.Repeat("x", 30) + "y"},
		{strings.Repeat("x", 31) + "\ud7ff" + "x", strings.Repeat("x", 31) + "\ud7ff", strings.Repeat("x", 31) + "\ue000"},
		{strings.Repeat(last, 33), strings.Repeat(last, 32), ""},
	} {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		b.Append(c.value)
		arr := b.NewArray()
		var have struct{ MinValues, MaxValues map[string]string }
		if err := json.Unmarshal([]byte(statsOfArray(t, arr)), &have); err != nil {
			t.Fatal(err)
		}
		if have.MinValues["c"] != c.min || have.MaxValues["c"] != c.max {
			t.Errorf("%q: %q to %q, want %q to %q", c.value, have.MinValues["c"], have.MaxValues["c"], c.min, c.max)
		}
		arr.Release()
		b.Release()
	}
}

func TestOnlyTheFirstLeafColumnsHaveStatistics(t *testing.T) {
	fields := []arrow.Field{{Name: "s", Type: arrow.StructOf(
		arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64}, arrow.Field{Name: "b", Type: arrow.PrimitiveTypes.Int64})},
		{Name: "c", Type: arrow.PrimitiveTypes.Int64}}
	schema := arrow.NewSchema(fields, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[{"s":{"a":1,"b":2},"c":3}]`))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	for indexed, want := range map[int]string{
		0:                      `"nullCount":{"s":{"a":0,"b":0},"c":0}}`,
		1:                      `"nullCount":{"s":{"a":0}}}`,
		2:                      `"nullCount":{"s":{"a":0,"b":0}}}`,
		parquetfile.AllColumns: `"nullCount":{"s":{"a":0,"b":0},"c":0}}`,
		parquetfile.NoColumns:  `{"numRecords":1,"minValues":{},"maxValues":{},"nullCount":{}}`,
	} {
		var buf bytes.Buffer
		w, err := parquetfile.NewWriter(&buf, schema, parquetfile.WriterOptions{IndexedColumns: indexed})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
		summary, err := w.Close()
		if err != nil || !strings.HasSuffix(summary.Stats.JSON(), want) {
			t.Errorf("%d: %s, %v; want %s", indexed, summary.Stats.JSON(), err, want)
		}
	}
}

// within says whether a value lies between a column's bounds, as a reader that skips files would compare them.
func within(arr arrow.Array, i int, lo, hi json.RawMessage) bool {
	switch arr := arr.(type) {
	case *array.String:
		var a, b string
		return (lo == nil || json.Unmarshal(lo, &a) == nil && a <= arr.Value(i)) &&
			(hi == nil || json.Unmarshal(hi, &b) == nil && arr.Value(i) <= b)
	case *array.Float32:
		wide := array.NewFloat64Builder(memory.DefaultAllocator) // its own text is rounded
		defer wide.Release()
		wide.Append(float64(arr.Value(i)))
		exact := wide.NewArray()
		defer exact.Release()
		return within(exact, 0, lo, hi)
	case *array.Float64, *array.Int8, *array.Int16, *array.Int32, *array.Int64, *array.Decimal128:
		v, ok := new(big.Float).SetPrec(200).SetString(arr.ValueStr(i))
		if !ok { // not a number: above all
			return hi == nil
		}
		return (lo == nil || number(lo).Cmp(v) <= 0) && (hi == nil || number(hi).Cmp(v) >= 0)
	}
	return true
}

func number(raw json.RawMessage) *big.Float {
	v, ok := new(big.Float).SetPrec(200).SetString(string(raw))
	if !ok {
		panic(string(raw))
	}
	return v
}

func TestNoValueLiesOutsideItsStatistics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := columnstest.Schema(t, 0)
		var buf bytes.Buffer
		w, err := parquetfile.NewWriter(&buf, schema, parquetfile.WriterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		var records []arrow.Record
		defer func() { release(records) }()
		for range rapid.IntRange(1, 3).Draw(t, "records") {
			rec := columnstest.Record(t, memory.DefaultAllocator, schema, rapid.IntRange(0, 12).Draw(t, "rows"))
			records = append(records, rec)
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
		}
		summary, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		var stats struct {
			NumRecords           int64
			MinValues, MaxValues map[string]json.RawMessage
			NullCount            map[string]int64
		}
		if err := json.Unmarshal([]byte(summary.Stats.JSON()), &stats); err != nil {
			t.Fatal(err)
		}
		nulls := map[string]int64{}
		for _, rec := range records {
			for c, column := range rec.Columns() {
				name := rec.ColumnName(c)
				nulls[name] += int64(column.NullN())
				for i := range column.Len() {
					if column.IsValid(i) && !within(column, i, stats.MinValues[name], stats.MaxValues[name]) {
						t.Fatalf("%s %s is not within %s", column.DataType(), column.ValueStr(i), summary.Stats.JSON())
					}
				}
			}
		}
		for name, n := range nulls {
			if stats.NullCount[name] != n {
				t.Fatalf("%d nulls of %q: %s", n, name, summary.Stats.JSON())
			}
		}
	})
}
