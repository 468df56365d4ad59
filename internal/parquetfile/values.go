package parquetfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"tidemark/internal/columns"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
)

// array takes the values loaded out of a leaf reader.
func (l *leafReader) array(mem memory.Allocator) (arrow.Array, error) {
	if l.flat != nil {
		loaded := l.loaded
		l.loaded = nil
		return loaded, nil
	}
	dt := l.node.field.Type
	switch l.column.PhysicalType() {
	case parquet.Types.ByteArray, parquet.Types.FixedLenByteArray:
		return l.bytes(mem, dt)
	}
	n := l.records.ValuesWritten()
	validity := l.records.ReleaseValidBits()
	nulls := int(l.records.NullCount())
	values := l.records.ReleaseValues()
	out, err := convert(mem, dt, l.column.PhysicalType(), values, n)
	if err != nil {
		if validity != nil {
			validity.Release()
		}
		return nil, err
	}
	return columns.Make(dt, n, nulls, nil, validity, out), nil
}

// convert brings n physical values into the Arrow type, in place where the two are the same. It takes over the values.
func convert(mem memory.Allocator, dt arrow.DataType, physical parquet.Type, values *memory.Buffer, n int) (*memory.Buffer, error) {
	if physical == parquet.Types.Boolean {
		defer values.Release()
		return packBits(mem, values.Bytes()[:n]), nil
	}
	if width := dt.(arrow.FixedWidthDataType).Bytes(); width == physical.ByteSize() && physical != parquet.Types.Int96 {
		return values, nil
	}
	defer values.Release()
	out := columns.NewBuffer(mem, n*dt.(arrow.FixedWidthDataType).Bytes())
	switch {
	case physical == parquet.Types.Int96:
		if err := fromInt96(view[arrow.Timestamp](out.Bytes(), n), values.Bytes()); err != nil {
			out.Release()
			return nil, err
		}
	case dt.ID() == arrow.INT8, dt.ID() == arrow.UINT8:
		narrow(out.Bytes(), view[int32](values.Bytes(), n))
	case dt.ID() == arrow.INT16, dt.ID() == arrow.UINT16:
		narrow(view[uint16](out.Bytes(), n), view[int32](values.Bytes(), n))
	case dt.ID() == arrow.DECIMAL128 && physical == parquet.Types.Int32:
		widen(view[decimal128.Num](out.Bytes(), n), view[int32](values.Bytes(), n))
	case dt.ID() == arrow.DECIMAL128 && physical == parquet.Types.Int64:
		widen(view[decimal128.Num](out.Bytes(), n), view[int64](values.Bytes(), n))
	default:
		out.Release()
		return nil, fmt.Errorf("%s is not stored as %s", dt, physical)
	}
	return out, nil
}

// view sees a buffer of n values of T as a slice of them. Arrow buffers are aligned for every T.
func view[T any](b []byte, n int) []T {
	if n == 0 {
		return nil
	}
	_ = b[n*int(unsafe.Sizeof(*new(T)))-1]
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// packBits makes a bitmap of bytes that are 0 or 1.
func packBits(mem memory.Allocator, values []byte) *memory.Buffer {
	out := columns.NewBuffer(mem, int(bitutil.BytesForBits(int64(len(values)))))
	for i, v := range values {
		if v != 0 {
			bitutil.SetBit(out.Bytes(), i)
		}
	}
	return out
}

// narrow keeps the low bits: Parquet stores small integers, signed or not, in 32 bits.
func narrow[T uint8 | uint16](out []T, values []int32) {
	for i, v := range values {
		out[i] = T(v)
	}
}

func widen[T int32 | int64](out []decimal128.Num, values []T) {
	for i, v := range values {
		out[i] = decimal128.FromI64(int64(v))
	}
}

// fromInt96 reads timestamps as Impala and Spark wrote them: nanoseconds of the day, then the Julian day. Null places
// hold zeros, which are no day that anybody means.
func fromInt96(out []arrow.Timestamp, values []byte) error {
	const (
		julianEpoch = 2_440_588
		usPerDay    = 24 * 60 * 60 * 1_000_000
	)
	for i := range out {
		v := values[i*12 : (i+1)*12]
		ns := int64(binary.LittleEndian.Uint64(v))
		day := int64(binary.LittleEndian.Uint32(v[8:]))
		if ns%1000 != 0 {
			return fmt.Errorf("value %d is not a whole number of microseconds, which is all a table holds", i)
		}
		if day != 0 || ns != 0 {
			out[i] = arrow.Timestamp((day-julianEpoch)*usPerDay + ns/1000)
		}
	}
	return nil
}

// bytes takes out values of byte arrays, of varying or fixed length.
func (l *leafReader) bytes(mem memory.Allocator, dt arrow.DataType) (arrow.Array, error) {
	chunks := l.records.(file.BinaryRecordReader).GetBuilderChunks()
	defer releaseAll(chunks)
	if len(chunks) != 1 {
		return nil, errors.New("a batch of it would cross 2 GiB")
	}
	arr := chunks[0]
	if err := checkOffsets(arr); err != nil {
		return nil, err
	}
	switch dt := dt.(type) {
	case *arrow.StringType, *arrow.BinaryType, *arrow.FixedSizeBinaryType:
		data := array.NewData(dt, arr.Len(), arr.Data().Buffers(), nil, arr.NullN(), 0)
		defer data.Release()
		return array.MakeFromData(data), nil
	case *arrow.Decimal128Type:
		return decimals(mem, arr, dt)
	}
	return nil, fmt.Errorf("%s is not stored as bytes", dt)
}

// checkOffsets finds offsets that have gone beyond 31 bits, which arrow-go's builder does not.
func checkOffsets(arr arrow.Array) error {
	varying, ok := arr.(interface{ ValueOffsets() []int32 })
	if !ok || arr.Len() == 0 {
		return nil
	}
	size := 0
	if buf := arr.Data().Buffers()[2]; buf != nil {
		size = buf.Len()
	}
	if int(varying.ValueOffsets()[arr.Len()]) != size {
		return errors.New("a batch of it crosses 2 GiB")
	}
	return nil
}

// decimals reads big-endian two's complement numbers of 1 to 16 bytes.
func decimals(mem memory.Allocator, arr arrow.Array, dt *arrow.Decimal128Type) (arrow.Array, error) {
	values := arr.(interface{ Value(i int) []byte })
	n := arr.Len()
	buf := columns.NewBuffer(mem, arrow.Decimal128Traits.BytesRequired(n))
	out := view[decimal128.Num](buf.Bytes(), n)
	for i := range n {
		if arr.IsNull(i) {
			continue
		}
		v := values.Value(i)
		if len(v) < 1 || len(v) > 16 {
			buf.Release()
			return nil, fmt.Errorf("a decimal of %d bytes", len(v))
		}
		var wide [16]byte
		if v[0]&0x80 != 0 {
			for j := range wide {
				wide[j] = 0xff
			}
		}
		copy(wide[16-len(v):], v)
		out[i] = decimal128.New(int64(binary.BigEndian.Uint64(wide[:])), binary.BigEndian.Uint64(wide[8:]))
	}
	var validity *memory.Buffer
	if arr.NullN() > 0 {
		validity = arr.Data().Buffers()[0]
		validity.Retain()
	}
	return columns.Make(dt, n, arr.NullN(), nil, validity, buf), nil
}
