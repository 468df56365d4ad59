package ingest

import (
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
)

// checkRecord checks that what an IPC file says about its values stays inside their buffers. arrow-go checks as little of
// it as it checks of the envelope, and the code behind the source trusts its arrays.
func checkRecord(rec arrow.Record) error {
	for i, column := range rec.Columns() {
		if err := checkArray(column.Data()); err != nil {
			return fmt.Errorf("column %q: %w", rec.ColumnName(i), err)
		}
	}
	return nil
}

var errArrayBounds = errors.New("its values point outside their buffers")

func checkArray(data arrow.ArrayData) error {
	end := data.Offset() + data.Len()
	buffers := data.Buffers()
	bytesOf := func(i int) []byte {
		if i >= len(buffers) || buffers[i] == nil {
			return nil
		}
		return buffers[i].Bytes()
	}
	if valid := bytesOf(0); len(valid) > 0 && len(valid) < int(bitutil.BytesForBits(int64(end))) {
		return errArrayBounds
	}
	children := data.Children()
	switch t := data.DataType().(type) {
	case *arrow.StringType, *arrow.BinaryType:
		return checkOffsets(arrow.Int32Traits.CastFromBytes(bytesOf(1)), data, len(bytesOf(2)))
	case *arrow.LargeStringType, *arrow.LargeBinaryType:
		return checkOffsets(arrow.Int64Traits.CastFromBytes(bytesOf(1)), data, len(bytesOf(2)))
	case *arrow.ListType, *arrow.MapType:
		return errors.Join(checkOffsets(arrow.Int32Traits.CastFromBytes(bytesOf(1)), data, children[0].Len()), checkArray(children[0]))
	case *arrow.LargeListType:
		return errors.Join(checkOffsets(arrow.Int64Traits.CastFromBytes(bytesOf(1)), data, children[0].Len()), checkArray(children[0]))
	case *arrow.FixedSizeListType:
		if children[0].Len() < end*int(t.Len()) {
			return errArrayBounds
		}
		return checkArray(children[0])
	case *arrow.StructType:
		for _, child := range children {
			if child.Len() < end {
				return errArrayBounds
			}
			if err := checkArray(child); err != nil {
				return err
			}
		}
	case arrow.BinaryViewDataType:
		return checkViews(data)
	case *arrow.DictionaryType:
		return checkDictionary(data)
	case arrow.FixedWidthDataType:
		if len(bytesOf(1)) < int(bitutil.BytesForBits(int64(end)*int64(t.BitWidth()))) {
			return errArrayBounds
		}
	}
	return nil
}

// checkOffsets: offsets must not fall, and end inside the values.
func checkOffsets[T int32 | int64](offsets []T, data arrow.ArrayData, values int) error {
	if data.Len() == 0 {
		return nil
	}
	end := data.Offset() + data.Len()
	if len(offsets) <= end {
		return errArrayBounds
	}
	last := T(0)
	for _, offset := range offsets[data.Offset() : end+1] {
		if offset < last {
			return errArrayBounds
		}
		last = offset
	}
	if int64(last) > int64(values) {
		return errArrayBounds
	}
	return nil
}

// checkViews: a view is short and holds its value, or names a buffer and a place in it.
func checkViews(data arrow.ArrayData) error {
	if data.Len() == 0 {
		return nil
	}
	buffers := data.Buffers()
	views := arrow.ViewHeaderTraits.CastFromBytes(buffers[1].Bytes())
	if len(views) < data.Offset()+data.Len() {
		return errArrayBounds
	}
	for i := data.Offset(); i < data.Offset()+data.Len(); i++ {
		v := &views[i]
		if v.Len() < 0 {
			return errArrayBounds
		}
		if v.IsInline() {
			continue
		}
		buffer, offset := int(v.BufferIndex())+2, int64(v.BufferOffset())
		if buffer < 2 || buffer >= len(buffers) || offset < 0 || offset+int64(v.Len()) > int64(buffers[buffer].Len()) {
			return errArrayBounds
		}
	}
	return nil
}

func checkDictionary(data arrow.ArrayData) error {
	values, ok := data.Dictionary().(*array.Data)
	if !ok || values == nil {
		return errors.New("its dictionary is missing")
	}
	width := data.DataType().(*arrow.DictionaryType).IndexType.(arrow.FixedWidthDataType).Bytes()
	if indices := data.Buffers()[1]; indices == nil && data.Len() > 0 || indices != nil && indices.Len() < (data.Offset()+data.Len())*width {
		return errArrayBounds
	}
	a := array.NewDictionaryData(data)
	defer a.Release()
	for i := range a.Len() {
		if a.IsNull(i) {
			continue
		}
		if at := a.GetValueIndex(i); at < 0 || at >= values.Len() {
			return errArrayBounds
		}
	}
	return checkArray(values)
}
