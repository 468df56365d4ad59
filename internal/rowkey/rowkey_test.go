package rowkey_test

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"

	"tidemark/internal/columns/columnstest"
	"tidemark/internal/rowkey"
)

// record draws a record of key columns, half of its rows copies of others in the first columns.
func record(t *rapid.T, mem memory.Allocator) (arrow.Record, []string) {
	fields := make([]arrow.Field, rapid.IntRange(1, 3).Draw(t, "columns"))
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = string(rune('a' + i))
		fields[i] = arrow.Field{Name: names[i], Type: rapid.SampledFrom(columnstest.Leaves).Draw(t, "type")}
	}
	return columnstest.Record(t, mem, arrow.NewSchema(fields, nil), rapid.IntRange(0, 20).Draw(t, "rows")), names
}

// compareValues is the order of two values by their type: what the bytes must say.
func compareValues(arr arrow.Array, i, j int) int {
	switch arr := arr.(type) {
	case *array.Boolean:
		return cmp.Compare(arr.ValueStr(i), arr.ValueStr(j)) // "false" < "true"
	case *array.Int8:
		return cmp.Compare(arr.Value(i), arr.Value(j))
	case *array.Int16:
		return cmp.Compare(arr.Value(i), arr.Value(j))
	case *array.Int32:
		return cmp.Compare(arr.Value(i), arr.Value(j))
	case *array.Int64:
		return cmp.Compare(arr.Value(i), arr.Value(j))
	case *array.Date32:
		return cmp.Compare(arr.Value(i), arr.Value(j))
	case *array.Timestamp:
		return cmp.Compare(arr.Value(i), arr.Value(j))
	case *array.Float32:
		return compareFloats(float64(arr.Value(i)), float64(arr.Value(j)))
	case *array.Float64:
		return compareFloats(arr.Value(i), arr.Value(j))
	case *array.Decimal128:
		return arr.Value(i).BigInt().Cmp(arr.Value(j).BigInt())
	case *array.String:
		return cmp.Compare(arr.Value(i), arr.Value(j))
	case *array.Binary:
		return bytes.Compare(arr.Value(i), arr.Value(j))
	}
	panic(arr.DataType().String())
}

func compareFloats(a, b float64) int {
	if math.IsNaN(a) || math.IsNaN(b) {
		return cmp.Compare(nan(a), nan(b))
	}
	return cmp.Compare(a, b)
}

func nan(v float64) int {
	if math.IsNaN(v) {
		return 1
	}
	return 0
}

func compareRows(rec arrow.Record, i, j int) int {
	for _, column := range rec.Columns() {
		if c := compareValues(column, i, j); c != 0 {
			return c
		}
	}
	return 0
}

func encode(t interface {
	Helper()
	Fatal(...any)
}, rec arrow.Record, names ...string) *rowkey.Keys {
	t.Helper()
	e, err := rowkey.NewEncoder(rec.Schema(), names)
	if err != nil {
		t.Fatal(err)
	}
	var keys rowkey.Keys
	if err := e.Encode(rec, &keys); err != nil {
		t.Fatal(err)
	}
	return &keys
}

func TestBytesOrderAsTheColumnsDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
		defer mem.AssertSize(t, 0)
		rec, names := record(t, mem)
		defer rec.Release()
		keys := encode(t, rec, names...)
		for i := range keys.Len() {
			for j := range keys.Len() {
				if have, want := keys.Compare(i, j), compareRows(rec, i, j); have != want {
					t.Fatalf("rows %s and %s compare as %d, their keys %x and %x as %d", columnstest.Rows(rec)[i],
						columnstest.Rows(rec)[j], want, keys.At(i), keys.At(j), have)
				}
				if i != j && !bytes.Equal(keys.At(i), keys.At(j)) && bytes.HasPrefix(keys.At(i), keys.At(j)) {
					t.Fatalf("key %x is a prefix of %x", keys.At(j), keys.At(i))
				}
			}
		}
	})
}

func TestSortIsStableAndInKeyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rec, names := record(t, memory.DefaultAllocator)
		defer rec.Release()
		checkSort(t, encode(t, rec, names...))
	})
}

func TestLargeSortsAreStableToo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(512, 3000).Draw(t, "rows")
		spread := rapid.SampledFrom([]uint64{2, 300, 1 << 40, math.MaxUint64}).Draw(t, "spread")
		prefix := rapid.SampledFrom([]string{"", "shared prefix ", "\x00"}).Draw(t, "prefix")
		seed := rapid.Uint64().Draw(t, "seed")
		text := array.NewStringBuilder(memory.DefaultAllocator)
		defer text.Release()
		for range n {
			seed = seed*6364136223846793005 + 1442695040888963407
			v := (seed >> 20) % spread
			text.Append(prefix + string([]byte{byte(v % 128), byte(v >> 8 % 128)}) + "long enough to go beyond eight bytes" + string(rune('a'+v%3)))
		}
		arr := text.NewArray()
		defer arr.Release()
		rec := array.NewRecord(arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.BinaryTypes.String}}, nil), []arrow.Array{arr}, int64(n))
		defer rec.Release()
		checkSort(t, encode(t, rec, "a"))
	})
}

func checkSort(t interface{ Fatalf(string, ...any) }, keys *rowkey.Keys) {
	want := make([]int32, keys.Len())
	for i := range want {
		want[i] = int32(i)
	}
	slices.SortStableFunc(want, func(a, b int32) int { return keys.Compare(int(a), int(b)) })
	if have := rowkey.SortStable(keys); !slices.Equal(have, want) {
		t.Fatalf("sorted as %v, want %v", have, want)
	}
}

func TestWideningAKeyColumnKeepsItsBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i8, f32 := rapid.Int8().Draw(t, "int"), float32(columnstest.Float(t))
		small := columnstest.Decimal(t, 9)
		for _, pair := range [][2]func() arrow.Array{
			{one(array.NewInt8Builder, i8), one(array.NewInt16Builder, int16(i8))},
			{one(array.NewInt8Builder, i8), one(array.NewInt32Builder, int32(i8))},
			{one(array.NewInt8Builder, i8), one(array.NewInt64Builder, int64(i8))},
			{one(array.NewFloat32Builder, f32), one(array.NewFloat64Builder, float64(f32))},
			{one(decimals(9, 2), small), one(decimals(38, 2), small)},
		} {
			var bytesOf [2][]byte
			var types [2]arrow.DataType
			for i, build := range pair {
				arr := build()
				defer arr.Release()
				types[i] = arr.DataType()
				rec := array.NewRecord(arrow.NewSchema([]arrow.Field{{Name: "k", Type: arr.DataType()}}, nil), []arrow.Array{arr}, 1)
				defer rec.Release()
				bytesOf[i] = encode(t, rec, "k").At(0)
			}
			if !bytes.Equal(bytesOf[0], bytesOf[1]) || !rowkey.SameBytes(types[0], types[1]) {
				t.Fatalf("%s %x, %s %x", types[0], bytesOf[0], types[1], bytesOf[1])
			}
		}
	})
}

func decimals(precision, scale int32) func(memory.Allocator) *array.Decimal128Builder {
	return func(mem memory.Allocator) *array.Decimal128Builder {
		return array.NewDecimal128Builder(mem, &arrow.Decimal128Type{Precision: precision, Scale: scale})
	}
}

// one makes an array of one value.
func one[T any, B interface {
	Append(T)
	NewArray() arrow.Array
}](build func(memory.Allocator) B, v T) func() arrow.Array {
	return func() arrow.Array {
		b := build(memory.DefaultAllocator)
		b.Append(v)
		return b.NewArray()
	}
}

func TestWideningsThatWouldMoveRowsAreNotTheSameBytes(t *testing.T) {
	decimal := func(p, s int32) arrow.DataType { return &arrow.Decimal128Type{Precision: p, Scale: s} }
	for _, pair := range [][2]arrow.DataType{
		{arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Float64},
		{arrow.PrimitiveTypes.Int64, decimal(20, 0)},
		{decimal(9, 2), decimal(10, 3)},
		{arrow.FixedWidthTypes.Date32, &arrow.TimestampType{Unit: arrow.Microsecond}},
	} {
		if rowkey.SameBytes(pair[0], pair[1]) {
			t.Errorf("%s to %s", pair[0], pair[1])
		}
	}
}

func TestANullKeyNamesColumnAndRow(t *testing.T) {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Append(1)
	b.AppendNull()
	arr := b.NewArray()
	defer arr.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arr.DataType(), Nullable: true}}, nil)
	rec := array.NewRecord(schema, []arrow.Array{arr}, 2)
	defer rec.Release()
	e, err := rowkey.NewEncoder(schema, []string{"id"})
	if err != nil {
		t.Fatal(err)
	}
	var keys rowkey.Keys
	var null *rowkey.NullError
	if err := e.Encode(rec, &keys); !errors.As(err, &null) || null.Column != "id" || null.Row != 1 || keys.Len() != 0 {
		t.Fatalf("%v, %d keys", err, keys.Len())
	}
	sliced := rec.NewSlice(0, 1)
	defer sliced.Release()
	if err := e.Encode(sliced, &keys); err != nil || keys.Len() != 1 {
		t.Fatalf("%v, %d keys", err, keys.Len())
	}
}

func TestKeysThatCannotBeAreRefusedByName(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "list", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)},
		{Name: "u", Type: arrow.PrimitiveTypes.Uint8},
	}, nil)
	for _, names := range [][]string{nil, {"nope"}, {"list"}, {"u"}, {"id", "id"}} {
		if _, err := rowkey.NewEncoder(schema, names); err == nil {
			t.Errorf("took the key %v", names)
		} else {
			t.Log(err)
		}
	}
}

func TestEncodingIntoUsedKeysDoesNotAllocate(t *testing.T) {
	rec := benchRecord(1000)
	defer rec.Release()
	e, err := rowkey.NewEncoder(rec.Schema(), []string{"origin", "destination", "id"})
	if err != nil {
		t.Fatal(err)
	}
	var keys rowkey.Keys
	if n := testing.AllocsPerRun(10, func() {
		if err := e.Encode(rec, &keys); err != nil {
			t.Fatal(err)
		}
	}); n > 8 { // a few per batch, for Arrow's bookkeeping; none per row
		t.Fatalf("%v allocations for %d rows", n, keys.Len())
	}
}

// The bucket of a key is part of the storage format: these must never change.
func TestBucketsArePartOfTheFormat(t *testing.T) {
	for key, want := range map[string]int{"": 2, "a": 7, "tidemark": 1} {
		if have := rowkey.Bucket([]byte(key), 8); have != want {
			t.Errorf("bucket of %q is %d, was %d", key, have, want)
		}
	}
	for bucket, shard := range map[int]string{0: "bucket-0000", 7: "bucket-0007", 12345: "bucket-12345"} {
		if have := rowkey.BucketShard(bucket); have != shard {
			t.Errorf("%d is %s", bucket, have)
		}
		if have, err := rowkey.ParseBucketShard(shard, 1<<20); err != nil || have != bucket {
			t.Errorf("%s is %d, %v", shard, have, err)
		}
	}
	for _, shard := range []string{"", "bucket-", "bucket-7", "bucket-00007", "bucket--001", "bucket-+001", "bucket-0008", "rollout-0"} {
		if have, err := rowkey.ParseBucketShard(shard, 8); err == nil {
			t.Errorf("%q is bucket %d of 8", shard, have)
		}
	}
}
