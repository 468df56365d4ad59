package schema

import (
	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/columns"
)

// castBytes copies large, view and fixed-size strings and binaries into plain ones. Text stays text and binary stays
// binary.
func castBytes(mem memory.Allocator, arr arrow.Array, to arrow.DataType, path string) (arrow.Array, error) {
	var value func(i int) []byte
	text := false
	switch arr := arr.(type) {
	case *array.LargeString:
		value, text = func(i int) []byte { return []byte(arr.Value(i)) }, true
	case *array.StringView:
		value, text = func(i int) []byte { return []byte(arr.Value(i)) }, true
	case *array.LargeBinary:
		value = arr.Value
	case *array.BinaryView:
		value = arr.Value
	case *array.FixedSizeBinary:
		value = arr.Value
	default:
		return nil, noCast(arr.DataType(), to, path)
	}
	if text != (to.ID() == arrow.STRING) {
		return nil, noCast(arr.DataType(), to, path)
	}
	out, err := copyBytes(mem, arr, to, value)
	if err != nil {
		return nil, &ValueError{path, -1, err.Error()}
	}
	return out, nil
}

func copyBytes(mem memory.Allocator, arr arrow.Array, to arrow.DataType, value func(i int) []byte) (arrow.Array, error) {
	n := arr.Len()
	offsets := columns.NewBuffer(mem, arrow.Int32Traits.BytesRequired(n+1))
	ends := arrow.Int32Traits.CastFromBytes(offsets.Bytes())
	total := int64(0)
	for i := range n {
		if arr.IsValid(i) {
			total += int64(len(value(i)))
		}
		if total > offsetMax {
			offsets.Release()
			return nil, errTooLarge
		}
		ends[i+1] = int32(total)
	}
	values := columns.NewBuffer(mem, int(total))
	for i := range n {
		if arr.IsValid(i) {
			copy(values.Bytes()[ends[i]:], value(i))
		}
	}
	return columns.Make(to, n, arr.NullN(), nil, alignedValidity(mem, arr), offsets, values), nil
}
