package columns

import (
	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// Size is the number of bytes that n rows of a record from row from hold: their values, offsets and validity, not the
// rest of the buffers they may share with other records.
func Size(rec arrow.Record, from, n int) int64 {
	total := int64(0)
	for _, column := range rec.Columns() {
		total += sizeOf(column, from, n)
	}
	return total
}

func sizeOf(arr arrow.Array, from, n int) int64 {
	total := int64(0)
	if arr.NullN() > 0 {
		total += int64(n+7) / 8
	}
	switch dt := arr.DataType().(type) {
	case *arrow.StringType, *arrow.BinaryType:
		offsets := rawOffsets(arr)
		if n > 0 {
			total += int64(offsets[from+n]-offsets[from]) + 4*int64(n)
		}
	case *arrow.StructType:
		for i := range dt.Fields() {
			total += sizeOf(arr.(*array.Struct).Field(i), from, n)
		}
	case *arrow.ListType, *arrow.MapType:
		offsets := rawOffsets(arr)
		if n > 0 {
			total += sizeOf(listValues(arr), int(offsets[from]), int(offsets[from+n]-offsets[from])) + 4*int64(n)
		}
	case arrow.FixedWidthDataType:
		total += (int64(n)*int64(dt.BitWidth()) + 7) / 8
	}
	return total
}
