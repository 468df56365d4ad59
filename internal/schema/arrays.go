package schema

import (
	"errors"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/columns"
)

// offsetMax is the largest offset of Arrow's string, binary and list types, whose offsets are 32 bits wide.
const offsetMax = math.MaxInt32

var errTooLarge = errors.New("a column of this batch would cross 2 GiB: use fewer rows per batch")

// retype is the array under another type of the same layout.
func retype(arr arrow.Array, dt arrow.DataType) arrow.Array {
	data := arr.Data()
	out := array.NewData(dt, data.Len(), data.Buffers(), data.Children(), data.NullN(), data.Offset())
	defer out.Release()
	return array.MakeFromData(out)
}

// alignedValidity is the validity bitmap of an array moved to start at bit zero, nil if the array has no nulls.
func alignedValidity(mem memory.Allocator, arr arrow.Array) *memory.Buffer {
	if arr.NullN() == 0 {
		return nil
	}
	bitmap := columns.NewBuffer(mem, int(bitutil.BytesForBits(int64(arr.Len()))))
	bitutil.CopyBitmap(arr.NullBitmapBytes(), arr.Data().Offset(), arr.Len(), bitmap.Bytes(), 0)
	return bitmap
}

// listValues are the elements of a list-like array, end to end: a slice of its child if they lie that way there.
func listValues(mem memory.Allocator, arr array.ListLike, from, total int64, contiguous bool) (arrow.Array, error) {
	child := arr.ListValues()
	if contiguous {
		return array.NewSlice(child, from, from+total), nil
	}
	indices := make([]int32, 0, total)
	for i := 0; i < arr.Len(); i++ {
		start, end := arr.ValueOffsets(i)
		if arr.IsNull(i) && arr.DataType().ID() == arrow.FIXED_SIZE_LIST {
			continue
		}
		for ; start < end; start++ {
			if start > offsetMax {
				return nil, errTooLarge
			}
			indices = append(indices, int32(start))
		}
	}
	return columns.TakeArray(mem, child, indices)
}

func releaseAll(arrays []arrow.Array) {
	for _, arr := range arrays {
		arr.Release()
	}
}
