package rowkey

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// Text and binary end with a terminator that is below everything that can follow a common prefix. A zero byte within
// would be mistaken for it, so it is written as an escape that is above the terminator and below every other byte:
//
//	"a"    61 00 01
//	"a\0"  61 00 ff 00 01
//	"a\1"  61 01 00 01
var (
	zero       = []byte{0x00}
	escaped    = []byte{0x00, 0xff}
	terminator = []byte{0x00, 0x01}
)

// signBit turns two's complement into an order-preserving unsigned number, and back.
const signBit = uint64(1) << 63

// write writes the column's values at the positions of the rows and moves the positions behind them.
func (c column) write(arr arrow.Array, buf []byte, at []int) {
	switch arr := arr.(type) {
	case *array.Boolean:
		for i := range at {
			buf[at[i]] = 0
			if arr.Value(i) {
				buf[at[i]] = 1
			}
			at[i]++
		}
	case *array.Int8:
		writeIntegers(arr.Int8Values(), buf, at)
	case *array.Int16:
		writeIntegers(arr.Int16Values(), buf, at)
	case *array.Int32:
		writeIntegers(arr.Int32Values(), buf, at)
	case *array.Int64:
		writeIntegers(arr.Int64Values(), buf, at)
	case *array.Date32:
		writeIntegers(arr.Date32Values(), buf, at)
	case *array.Timestamp:
		writeIntegers(arr.TimestampValues(), buf, at)
	case *array.Float32:
		writeFloats(arr.Float32Values(), buf, at)
	case *array.Float64:
		writeFloats(arr.Float64Values(), buf, at)
	case *array.Decimal128:
		for i, v := range arr.Values() {
			binary.BigEndian.PutUint64(buf[at[i]:], uint64(v.HighBits())^signBit)
			binary.BigEndian.PutUint64(buf[at[i]+8:], v.LowBits())
			at[i] += 16
		}
	default:
		writeBytes(arr, buf, at)
	}
}

func writeIntegers[T ~int8 | ~int16 | ~int32 | ~int64](values []T, buf []byte, at []int) {
	for i, v := range values {
		binary.BigEndian.PutUint64(buf[at[i]:], uint64(int64(v))^signBit)
		at[i] += 8
	}
}

func writeFloats[T float32 | float64](values []T, buf []byte, at []int) {
	for i, v := range values {
		binary.BigEndian.PutUint64(buf[at[i]:], floatBits(float64(v)))
		at[i] += 8
	}
}

// floatBits maps floats to unsigned numbers of the same order, with one zero and one NaN, above +Inf.
func floatBits(v float64) uint64 {
	switch {
	case v == 0:
		return signBit
	case math.IsNaN(v):
		return math.MaxUint64
	}
	if bits := math.Float64bits(v); bits&signBit == 0 {
		return bits | signBit
	} else {
		return ^bits
	}
}

func writeBytes(arr arrow.Array, buf []byte, at []int) {
	values, offsets := bytesOf(arr)
	zeros := hasZero(values, offsets)
	for i := range at {
		v := values[offsets[i]:offsets[i+1]]
		pos := at[i]
		for zeros {
			z := bytes.IndexByte(v, 0)
			if z < 0 {
				break
			}
			pos += copy(buf[pos:], v[:z])
			pos += copy(buf[pos:], escaped)
			v = v[z+1:]
		}
		pos += copy(buf[pos:], v)
		pos += copy(buf[pos:], terminator)
		at[i] = pos
	}
}

// hasZero says whether any value has a zero byte. Hardly any column does, and those without need no search per value.
func hasZero(values []byte, offsets []int32) bool {
	return bytes.IndexByte(values[offsets[0]:offsets[len(offsets)-1]], 0) >= 0
}

// noValues stands in for the offsets of an empty array, which may have none.
var noValues = []int32{0}

// bytesOf is the value buffer of a string or binary array and the offsets of its values in it.
func bytesOf(arr arrow.Array) (values []byte, offsets []int32) {
	data := arr.Data()
	if data.Len() == 0 {
		return nil, noValues
	}
	offsets = arrow.Int32Traits.CastFromBytes(data.Buffers()[1].Bytes())[data.Offset() : data.Offset()+data.Len()+1]
	if buf := data.Buffers()[2]; buf != nil {
		values = buf.Bytes()
	}
	return values, offsets
}
