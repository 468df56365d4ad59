package columns

import (
	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// NewBuffer allocates a zeroed buffer of size bytes.
func NewBuffer(mem memory.Allocator, size int) *memory.Buffer {
	buf := memory.NewResizableBuffer(mem)
	buf.Resize(size)
	return buf
}

// Make makes an array of n values and passes the buffers to it. It does not take over the children.
func Make(dt arrow.DataType, n, nulls int, children []arrow.Array, buffers ...*memory.Buffer) arrow.Array {
	childData := make([]arrow.ArrayData, len(children))
	for i, child := range children {
		childData[i] = child.Data()
	}
	data := array.NewData(dt, n, buffers, childData, nulls, 0)
	defer data.Release()
	for _, buf := range buffers {
		if buf != nil {
			buf.Release()
		}
	}
	return array.MakeFromData(data)
}

// emptyOffsets stands in for the offsets of an array without values, which may have none.
var emptyOffsets = []int32{0}

// rawOffsets are the n+1 offsets of a string, binary, list or map array of n values, taken from its own offset on.
func rawOffsets(arr arrow.Array) []int32 {
	data := arr.Data()
	if buf := data.Buffers()[1]; buf != nil && buf.Len() > 0 {
		return arrow.Int32Traits.CastFromBytes(buf.Bytes())[data.Offset() : data.Offset()+data.Len()+1]
	}
	return emptyOffsets
}

// listValues are the elements that the raw offsets of a list or map array point into.
func listValues(arr arrow.Array) arrow.Array {
	return arr.(array.ListLike).ListValues()
}

func releaseAll(arrays []arrow.Array) {
	for _, arr := range arrays {
		arr.Release()
	}
}

// sameLayout says whether arrays of two types hold their values the same way: equal types but for the names of list
// elements and map entries, nullability and metadata.
func sameLayout(a, b arrow.DataType) bool {
	if a.ID() != b.ID() {
		return false
	}
	switch a := a.(type) {
	case *arrow.StructType:
		b := b.(*arrow.StructType)
		if a.NumFields() != b.NumFields() {
			return false
		}
		for i := range a.Fields() {
			if a.Field(i).Name != b.Field(i).Name || !sameLayout(a.Field(i).Type, b.Field(i).Type) {
				return false
			}
		}
		return true
	case *arrow.ListType:
		return sameLayout(a.Elem(), b.(*arrow.ListType).Elem())
	case *arrow.MapType:
		b := b.(*arrow.MapType)
		return sameLayout(a.KeyType(), b.KeyType()) && sameLayout(a.ItemType(), b.ItemType())
	}
	return arrow.TypeEqual(a, b)
}
