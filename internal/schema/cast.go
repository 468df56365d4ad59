package schema

import (
	"fmt"
	"math"
	"math/big"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/columns"
)

// castLeaf widens an array without children. The identity comes first: it is what nearly every column of nearly every
// batch takes.
func castLeaf(mem memory.Allocator, arr arrow.Array, to arrow.DataType, path string) (arrow.Array, error) {
	if arrow.TypeEqual(arr.DataType(), to) {
		arr.Retain()
		return arr, nil
	}
	switch to := to.(type) {
	case *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
		return castInteger(mem, arr, to, path)
	case *arrow.Float32Type:
		if arr, ok := arr.(*array.Float16); ok {
			return castFixed(mem, arr, to, func(i int) (float32, string) { return arr.Value(i).Float32(), "" }, path)
		}
	case *arrow.Float64Type:
		return castDouble(mem, arr, to, path)
	case *arrow.Decimal128Type:
		return castDecimal(mem, arr, to, path)
	case *arrow.StringType, *arrow.BinaryType:
		return castBytes(mem, arr, to, path)
	case *arrow.Date32Type:
		if arr, ok := arr.(*array.Date64); ok {
			return castFixed(mem, arr, to, func(i int) (arrow.Date32, string) { return days(arr.Value(i)) }, path)
		}
	case *arrow.TimestampType:
		return castTimestamp(mem, arr, to, path)
	}
	return nil, noCast(arr.DataType(), to, path)
}

// castFixed makes an array of fixed-width values from a function of the row, which says why a value does not fit.
func castFixed[T any](mem memory.Allocator, arr arrow.Array, to arrow.DataType, value func(i int) (T, string), path string) (arrow.Array, error) {
	n := arr.Len()
	buf := columns.NewBuffer(mem, to.(arrow.FixedWidthDataType).Bytes()*n)
	out := view[T](buf.Bytes(), n)
	for i := range n {
		if arr.IsNull(i) {
			continue
		}
		v, problem := value(i)
		if problem != "" {
			buf.Release()
			return nil, &ValueError{path, i, problem}
		}
		out[i] = v
	}
	return columns.Make(to, n, arr.NullN(), nil, alignedValidity(mem, arr), buf), nil
}

// view sees a buffer of n values of T as a slice of them. Arrow buffers are aligned for every T.
func view[T any](b []byte, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// days turns milliseconds into days, exactly.
func days(ms arrow.Date64) (arrow.Date32, string) {
	const msPerDay = 24 * 60 * 60 * 1000
	if ms%msPerDay != 0 || ms/msPerDay > math.MaxInt32 || ms/msPerDay < math.MinInt32 {
		return 0, fmt.Sprintf("%d ms is not a whole day that a date can hold", int64(ms))
	}
	return arrow.Date32(ms / msPerDay), ""
}

func castInteger(mem memory.Allocator, arr arrow.Array, to arrow.DataType, path string) (arrow.Array, error) {
	if !widerInteger(arr.DataType(), to) {
		return nil, noCast(arr.DataType(), to, path)
	}
	value := integerAt(arr)
	switch to.ID() {
	case arrow.INT16:
		return castFixed(mem, arr, to, func(i int) (int16, string) { return int16(value(i)), "" }, path)
	case arrow.INT32:
		return castFixed(mem, arr, to, func(i int) (int32, string) { return int32(value(i)), "" }, path)
	}
	return castFixed(mem, arr, to, func(i int) (int64, string) { return value(i), "" }, path)
}

// widerInteger says whether every value of an integer type is a value of a signed one.
func widerInteger(from, to arrow.DataType) bool {
	width := func(dt arrow.DataType) int { return dt.(arrow.FixedWidthDataType).BitWidth() }
	switch {
	case arrow.IsSignedInteger(from.ID()), arrow.IsUnsignedInteger(from.ID()):
		return width(from) < width(to)
	}
	return false
}

// integerAt reads an integer array of any width but uint64.
func integerAt(arr arrow.Array) func(i int) int64 {
	switch arr := arr.(type) {
	case *array.Int8:
		return at(arr.Int8Values())
	case *array.Int16:
		return at(arr.Int16Values())
	case *array.Int32:
		return at(arr.Int32Values())
	case *array.Int64:
		return at(arr.Int64Values())
	case *array.Uint8:
		return at(arr.Uint8Values())
	case *array.Uint16:
		return at(arr.Uint16Values())
	case *array.Uint32:
		return at(arr.Uint32Values())
	}
	return nil
}

func at[T int8 | int16 | int32 | int64 | uint8 | uint16 | uint32](values []T) func(i int) int64 {
	return func(i int) int64 { return int64(values[i]) }
}

func castDouble(mem memory.Allocator, arr arrow.Array, to arrow.DataType, path string) (arrow.Array, error) {
	switch arr := arr.(type) {
	case *array.Float16:
		return castFixed(mem, arr, to, func(i int) (float64, string) { return float64(arr.Value(i).Float32()), "" }, path)
	case *array.Float32:
		return castFixed(mem, arr, to, func(i int) (float64, string) { return float64(arr.Value(i)), "" }, path)
	case *array.Int64, *array.Uint64:
		return nil, noCast(arr.DataType(), to, path) // not every 64-bit integer is a double
	}
	value := integerAt(arr)
	if value == nil {
		return nil, noCast(arr.DataType(), to, path)
	}
	return castFixed(mem, arr, to, func(i int) (float64, string) { return float64(value(i)), "" }, path)
}

func castDecimal(mem memory.Allocator, arr arrow.Array, to *arrow.Decimal128Type, path string) (arrow.Array, error) {
	scaled := func(unscaled *big.Int, scale int32) (decimal128.Num, string) {
		unscaled.Mul(unscaled, pow10(to.Scale-scale))
		if new(big.Int).Abs(unscaled).Cmp(pow10(to.Precision)) >= 0 {
			return decimal128.Num{}, fmt.Sprintf("the value has more digits than %s", to)
		}
		return decimal128.FromBigInt(unscaled), ""
	}
	digits, scale := int32(0), int32(0) // of the source: before the point, and after it
	var value func(i int) *big.Int
	switch arr := arr.(type) {
	case *array.Decimal128:
		from := arr.DataType().(*arrow.Decimal128Type)
		digits, scale = from.Precision-from.Scale, from.Scale
		value = func(i int) *big.Int { return arr.Value(i).BigInt() }
	case *array.Decimal256:
		from := arr.DataType().(*arrow.Decimal256Type)
		digits, scale = from.Precision-from.Scale, from.Scale
		value = func(i int) *big.Int { return arr.Value(i).BigInt() }
	case *array.Uint64:
		digits = 20
		value = func(i int) *big.Int { return new(big.Int).SetUint64(arr.Value(i)) }
	default:
		integer := integerAt(arr)
		if integer == nil {
			return nil, noCast(arr.DataType(), to, path)
		}
		digits = 10 // as the Delta protocol counts for byte, short and integer
		if arr.DataType().ID() == arrow.INT64 {
			digits = 20
		}
		value = func(i int) *big.Int { return big.NewInt(integer(i)) }
	}
	if to.Scale < scale || to.Precision-to.Scale < digits {
		return nil, noCast(arr.DataType(), to, path)
	}
	return castFixed(mem, arr, to, func(i int) (decimal128.Num, string) { return scaled(value(i), scale) }, path)
}

func pow10(n int32) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// castTimestamp brings timestamps to microseconds. Zones differ only in how an instant is shown, so any zone becomes UTC
// without moving it; a timestamp without zone is no instant and never becomes one, nor the other way round.
func castTimestamp(mem memory.Allocator, arr arrow.Array, to *arrow.TimestampType, path string) (arrow.Array, error) {
	if dates, ok := arr.(*array.Date32); ok && to.TimeZone == "" {
		const usPerDay = 24 * 60 * 60 * 1_000_000
		return castFixed(mem, arr, to, func(i int) (arrow.Timestamp, string) { return times(int64(dates.Value(i)), usPerDay) }, path)
	}
	stamps, ok := arr.(*array.Timestamp)
	if !ok || to.Unit != arrow.Microsecond {
		return nil, noCast(arr.DataType(), to, path)
	}
	from := arr.DataType().(*arrow.TimestampType)
	if (from.TimeZone == "") != (to.TimeZone == "") {
		return nil, noCast(arr.DataType(), to, path)
	}
	switch from.Unit {
	case arrow.Microsecond:
		return retype(arr, to), nil
	case arrow.Millisecond:
		return castFixed(mem, arr, to, func(i int) (arrow.Timestamp, string) { return times(int64(stamps.Value(i)), 1_000) }, path)
	case arrow.Second:
		return castFixed(mem, arr, to, func(i int) (arrow.Timestamp, string) { return times(int64(stamps.Value(i)), 1_000_000) }, path)
	}
	return castFixed(mem, arr, to, func(i int) (arrow.Timestamp, string) {
		ns := stamps.Value(i)
		if ns%1000 != 0 {
			return 0, fmt.Sprintf("timestamp %d ns is not a whole number of microseconds, which is all a table holds", int64(ns))
		}
		return ns / 1000, ""
	}, path)
}

func times(v, factor int64) (arrow.Timestamp, string) {
	if v > math.MaxInt64/factor || v < math.MinInt64/factor {
		return 0, fmt.Sprintf("timestamp %d is too far from 1970 to be held in microseconds", v)
	}
	return arrow.Timestamp(v * factor), ""
}

func castDictionary(mem memory.Allocator, arr *array.Dictionary, to arrow.DataType, path string) (arrow.Array, error) {
	values, err := cast(mem, arr.Dictionary(), to, path)
	if err != nil {
		return nil, inWholeColumn(err)
	}
	defer values.Release()
	return gatherNullable(mem, values, arr, func(i int) int { return arr.GetValueIndex(i) }, path)
}

func castRuns(mem memory.Allocator, arr *array.RunEndEncoded, to arrow.DataType, path string) (arrow.Array, error) {
	values, err := cast(mem, arr.Values(), to, path)
	if err != nil {
		return nil, inWholeColumn(err)
	}
	defer values.Release()
	return gatherNullable(mem, values, arr, arr.GetPhysicalIndex, path)
}

// inWholeColumn drops the row of an error found among the values of an encoding, which are not rows.
func inWholeColumn(err error) error {
	if v, ok := err.(*ValueError); ok {
		return &ValueError{v.Column, -1, v.Reason}
	}
	return err
}

// gatherNullable gathers one value per row of arr; rows that are null in arr become null.
func gatherNullable(mem memory.Allocator, values, arr arrow.Array, index func(i int) int, path string) (arrow.Array, error) {
	indices := make([]int32, arr.Len())
	if values.Len() == 0 { // then every row is null
		return array.MakeArrayOfNull(mem, values.DataType(), arr.Len()), nil
	}
	for i := range indices {
		if arr.IsNull(i) {
			continue
		}
		at := index(i)
		if at < 0 || at >= values.Len() {
			return nil, &ValueError{path, i, fmt.Sprintf("dictionary index %d of %d values", at, values.Len())}
		}
		indices[i] = int32(at)
	}
	out, err := columns.TakeArray(mem, values, indices)
	if err != nil {
		return nil, &ValueError{path, -1, err.Error()}
	}
	if arr.NullN() == 0 {
		return out, nil
	}
	defer out.Release()
	return maskNulls(mem, out, arr), nil
}
