package columns

import (
	"context"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// Take gathers the rows of a record at the given indices, which may repeat and come in any order. It stops between
// columns when ctx ends.
func Take(ctx context.Context, mem memory.Allocator, rec arrow.Record, indices []int32) (arrow.Record, error) {
	for _, i := range indices {
		if i < 0 || int64(i) >= rec.NumRows() {
			return nil, fmt.Errorf("row %d of a record of %d rows", i, rec.NumRows())
		}
	}
	out := make([]arrow.Array, 0, rec.NumCols())
	defer func() { releaseAll(out) }()
	for i, column := range rec.Columns() {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		taken, err := TakeArray(mem, column, indices)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", rec.ColumnName(i), err)
		}
		out = append(out, taken)
	}
	return array.NewRecord(rec.Schema(), out, int64(len(indices))), nil
}

// TakeArray gathers the values of an array at the given indices, which must be within it.
func TakeArray(mem memory.Allocator, arr arrow.Array, indices []int32) (arrow.Array, error) {
	switch dt := arr.DataType().(type) {
	case *arrow.BooleanType:
		return takeBits(mem, arr, indices), nil
	case *arrow.StringType, *arrow.BinaryType:
		return takeBytes(mem, arr, indices)
	case *arrow.StructType:
		return takeStruct(mem, arr.(*array.Struct), dt, indices)
	case *arrow.ListType, *arrow.MapType:
		ranges := make([]Range, 0, len(indices))
		for _, i := range indices {
			ranges = appendRange(ranges, Range{From: i, N: 1})
		}
		return splice(mem, dt, pieces{[]arrow.Array{arr}, ranges}, len(indices))
	case arrow.FixedWidthDataType:
		if width := fixedWidth(dt); width > 0 {
			return takeFixed(mem, arr, width, indices), nil
		}
	}
	return nil, unsupported(arr.DataType())
}

func takeValidity(mem memory.Allocator, arr arrow.Array, indices []int32) (*memory.Buffer, int) {
	if arr.NullN() == 0 {
		return nil, 0
	}
	bitmap := NewBuffer(mem, int(bitutil.BytesForBits(int64(len(indices)))))
	src, offset, dst := arr.NullBitmapBytes(), arr.Data().Offset(), bitmap.Bytes()
	nulls := 0
	for at, i := range indices {
		if bitutil.BitIsSet(src, offset+int(i)) {
			bitutil.SetBit(dst, at)
		} else {
			nulls++
		}
	}
	if nulls == 0 {
		bitmap.Release()
		return nil, 0
	}
	return bitmap, nulls
}

func takeBits(mem memory.Allocator, arr arrow.Array, indices []int32) arrow.Array {
	validity, nulls := takeValidity(mem, arr, indices)
	values := NewBuffer(mem, int(bitutil.BytesForBits(int64(len(indices)))))
	if buf := arr.Data().Buffers()[1]; buf != nil {
		src, offset := buf.Bytes(), arr.Data().Offset()
		for at, i := range indices {
			if bitutil.BitIsSet(src, offset+int(i)) {
				bitutil.SetBit(values.Bytes(), at)
			}
		}
	}
	return Make(arr.DataType(), len(indices), nulls, nil, validity, values)
}

func takeFixed(mem memory.Allocator, arr arrow.Array, width int, indices []int32) arrow.Array {
	validity, nulls := takeValidity(mem, arr, indices)
	values := NewBuffer(mem, len(indices)*width)
	if buf := arr.Data().Buffers()[1]; buf != nil {
		src := buf.Bytes()[arr.Data().Offset()*width:]
		dst := values.Bytes()
		switch width {
		case 4:
			gather(arrow.Uint32Traits.CastFromBytes(dst), arrow.Uint32Traits.CastFromBytes(src), indices)
		case 8:
			gather(arrow.Uint64Traits.CastFromBytes(dst), arrow.Uint64Traits.CastFromBytes(src), indices)
		default:
			for at, i := range indices {
				copy(dst[at*width:(at+1)*width], src[int(i)*width:])
			}
		}
	}
	return Make(arr.DataType(), len(indices), nulls, nil, validity, values)
}

func gather[T uint32 | uint64](dst, src []T, indices []int32) {
	for at, i := range indices {
		dst[at] = src[i]
	}
}

func takeBytes(mem memory.Allocator, arr arrow.Array, indices []int32) (arrow.Array, error) {
	src := rawOffsets(arr)
	total := int64(0)
	for _, i := range indices {
		total += int64(src[i+1] - src[i])
	}
	if total > offsetMax {
		return nil, ErrTooLarge
	}
	validity, nulls := takeValidity(mem, arr, indices)
	offsetBuf := NewBuffer(mem, arrow.Int32Traits.BytesRequired(len(indices)+1))
	values := NewBuffer(mem, int(total))
	offsets := arrow.Int32Traits.CastFromBytes(offsetBuf.Bytes())
	var from []byte
	if buf := arr.Data().Buffers()[2]; buf != nil {
		from = buf.Bytes()
	}
	at, out := int32(0), values.Bytes()
	for row, i := range indices {
		offsets[row] = at
		at += int32(copy(out[at:], from[src[i]:src[i+1]]))
	}
	offsets[len(indices)] = at
	return Make(arr.DataType(), len(indices), nulls, nil, validity, offsetBuf, values), nil
}

func takeStruct(mem memory.Allocator, arr *array.Struct, dt *arrow.StructType, indices []int32) (arrow.Array, error) {
	children := make([]arrow.Array, 0, dt.NumFields())
	defer func() { releaseAll(children) }()
	for i, field := range dt.Fields() {
		child, err := TakeArray(mem, arr.Field(i), indices)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", field.Name, err)
		}
		children = append(children, child)
	}
	validity, nulls := takeValidity(mem, arr, indices)
	return Make(dt, len(indices), nulls, children, validity), nil
}
