package schema

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"tidemark/internal/columns"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// CheckValues finds values that a Parquet file of the record's schema must not hold: text that is not UTF-8, and nulls in
// columns that may not be null. It looks at every depth; the error is a *ValueError.
func CheckValues(rec arrow.Record) error {
	for i, field := range rec.Schema().Fields() {
		if err := checkArray(rec.Column(i), field, field.Name); err != nil {
			return err
		}
	}
	return nil
}

func checkArray(arr arrow.Array, field arrow.Field, path string) error {
	if !field.Nullable && arr.NullN() > 0 {
		for i := range arr.Len() {
			if arr.IsNull(i) {
				return &ValueError{path, i, "it may not be null"}
			}
		}
	}
	switch arr := arr.(type) {
	case *array.String:
		return checkUTF8(arr, path)
	case *array.Struct:
		return checkStruct(arr, path)
	case array.ListLike:
		return checkList(arr, path)
	}
	return nil
}

func checkStruct(arr *array.Struct, path string) error {
	for i, field := range arr.DataType().(*arrow.StructType).Fields() {
		child := arr.Field(i)
		if arr.NullN() > 0 && child.NullN() > 0 { // nulls below a null struct are nobody's
			for row := range arr.Len() {
				if !field.Nullable && arr.IsValid(row) && child.IsNull(row) {
					return &ValueError{path + "." + field.Name, row, "it may not be null"}
				}
			}
			field.Nullable = true
		}
		if err := checkArray(child, field, path+"."+field.Name); err != nil {
			return err
		}
	}
	return nil
}

func checkList(arr array.ListLike, path string) error {
	n := arr.Len()
	if n == 0 {
		return nil
	}
	start, _ := arr.ValueOffsets(0)
	_, end := arr.ValueOffsets(n - 1)
	if end <= start {
		return nil
	}
	values := array.NewSlice(arr.ListValues(), start, end)
	defer values.Release()
	err := checkArray(values, arr.DataType().(arrow.ListLikeType).ElemField(), path+"."+listElement)
	if v, ok := err.(*ValueError); ok && v.Row >= 0 {
		for row := range n {
			if _, end := arr.ValueOffsets(row); end-start > int64(v.Row) {
				return &ValueError{v.Column, row, v.Reason}
			}
		}
	}
	return err
}

// checkUTF8 refuses text that is not UTF-8. Buffers that are all ASCII, the common case, are passed eight bytes at a time.
func checkUTF8(arr *array.String, path string) error {
	if ascii(arr.ValueBytes()) {
		return nil
	}
	for i := range arr.Len() {
		if v := arr.Value(i); arr.IsValid(i) && !utf8.ValidString(v) {
			return &ValueError{path, i, fmt.Sprintf("the text %.40q is not UTF-8", v)}
		}
	}
	return nil
}

func ascii(b []byte) bool {
	const high = 0x8080808080808080
	for ; len(b) >= 32; b = b[32:] {
		if (binary.LittleEndian.Uint64(b)|binary.LittleEndian.Uint64(b[8:])|
			binary.LittleEndian.Uint64(b[16:])|binary.LittleEndian.Uint64(b[24:]))&high != 0 {
			return false
		}
	}
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// maskNulls is an array that starts at offset zero with the rows null that are null in another, as well as its own.
func maskNulls(mem memory.Allocator, arr, mask arrow.Array) arrow.Array {
	n := arr.Len()
	bitmap := columns.NewBuffer(mem, int(bitutil.BytesForBits(int64(n))))
	nulls := 0
	for i := range n {
		if arr.IsValid(i) && mask.IsValid(i) {
			bitutil.SetBit(bitmap.Bytes(), i)
		} else {
			nulls++
		}
	}
	data := arr.Data()
	buffers := append([]*memory.Buffer{bitmap}, data.Buffers()[1:]...)
	out := array.NewData(arr.DataType(), n, buffers, data.Children(), nulls, 0)
	defer out.Release()
	bitmap.Release()
	return array.MakeFromData(out)
}
