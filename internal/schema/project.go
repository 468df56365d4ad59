package schema

import (
	"context"
	"fmt"

	"tidemark/internal/columns"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// ValueError says that a value, or a whole column, does not fit the column it should go into.
type ValueError struct {
	Column string
	Row    int // within the record, from 0; -1 if the whole column does not fit
	Reason string
}

// Code is stable, for machines.
func (*ValueError) Code() string { return "value" }

func (e *ValueError) Error() string {
	if e.Row < 0 {
		return fmt.Sprintf("column %q: %s", e.Column, e.Reason)
	}
	return fmt.Sprintf("column %q, row %d: %s", e.Column, e.Row, e.Reason)
}

// Project brings a record into another schema, usually a table's [Schema.Arrow]. Columns are taken by name, at every
// depth; one that the record lacks becomes nulls, one that only the record has is left out. Values are widened by the
// rules of [FromArrow] and the Delta protocol and never changed otherwise: nanoseconds become microseconds only when
// nothing is lost, text must be UTF-8, and a column that may not be null has no nulls. The error is a *ValueError.
//
// Columns that already fit are shared with the record, not copied.
func Project(ctx context.Context, mem memory.Allocator, rec arrow.Record, target *arrow.Schema) (arrow.Record, error) {
	out := make([]arrow.Array, 0, target.NumFields())
	defer func() { releaseAll(out) }()
	for _, field := range target.Fields() {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var source arrow.Array
		if i := columnIndex(rec.Schema().Fields(), field.Name); i >= 0 {
			source = rec.Column(i)
		}
		column, err := projectField(mem, source, field, int(rec.NumRows()), field.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, column)
		if err := checkArray(column, field, field.Name); err != nil {
			return nil, err
		}
	}
	return array.NewRecord(target, out, rec.NumRows()), nil
}

func columnIndex(fields []arrow.Field, name string) int {
	for i := range fields {
		if fields[i].Name == name {
			return i
		}
	}
	return -1
}

// projectField brings an array, nil if there is none, into a field of n values.
func projectField(mem memory.Allocator, source arrow.Array, field arrow.Field, n int, path string) (arrow.Array, error) {
	if source == nil {
		if !field.Nullable && n > 0 {
			return nil, &ValueError{path, -1, "it may not be null, and the rows do not have it"}
		}
		return array.MakeArrayOfNull(mem, field.Type, n), nil
	}
	return cast(mem, source, field.Type, path)
}

// cast brings an array into a type; the caller releases the result.
func cast(mem memory.Allocator, arr arrow.Array, to arrow.DataType, path string) (arrow.Array, error) {
	switch arr := arr.(type) {
	case *array.Null:
		return array.MakeArrayOfNull(mem, to, arr.Len()), nil
	case *array.Dictionary:
		return castDictionary(mem, arr, to, path)
	case *array.RunEndEncoded:
		return castRuns(mem, arr, to, path)
	case array.ExtensionArray:
		return cast(mem, arr.Storage(), to, path)
	}
	switch to := to.(type) {
	case *arrow.StructType:
		if arr, ok := arr.(*array.Struct); ok {
			return castStruct(mem, arr, to, path)
		}
	case *arrow.ListType:
		if arr, ok := arr.(array.ListLike); ok && arr.DataType().ID() != arrow.MAP {
			return castList(mem, arr, to, to.Elem(), path+"."+listElement)
		}
	case *arrow.MapType:
		if arr, ok := arr.(*array.Map); ok {
			return castList(mem, arr, to, to.Elem(), path)
		}
	default:
		return castLeaf(mem, arr, to, path)
	}
	return nil, noCast(arr.DataType(), to, path)
}

func noCast(from, to arrow.DataType, path string) error {
	return &ValueError{path, -1, fmt.Sprintf("%s does not widen to %s", from, to)}
}

func castStruct(mem memory.Allocator, arr *array.Struct, to *arrow.StructType, path string) (arrow.Array, error) {
	from := arr.DataType().(*arrow.StructType)
	children := make([]arrow.Array, 0, to.NumFields())
	defer func() { releaseAll(children) }()
	for _, field := range to.Fields() {
		var source arrow.Array
		if i := columnIndex(from.Fields(), field.Name); i >= 0 {
			source = arr.Field(i)
		}
		child, err := projectField(mem, source, field, arr.Len(), path+"."+field.Name)
		if err != nil {
			return nil, err
		}
		children = append(children, child)
	}
	// Field returns children sliced to the struct's own rows, so the struct starts at zero and only its bitmap moves.
	validity := alignedValidity(mem, arr)
	return columns.Make(to, arr.Len(), arr.NullN(), children, validity), nil
}

// castList handles every list-like type whose elements lie in ranges of one child array.
func castList(mem memory.Allocator, arr array.ListLike, to, elem arrow.DataType, path string) (arrow.Array, error) {
	n := arr.Len()
	offsets := columns.NewBuffer(mem, arrow.Int32Traits.BytesRequired(n+1))
	ends := arrow.Int32Traits.CastFromBytes(offsets.Bytes())
	var from, total int64
	contiguous := true
	for i := 0; i < n; i++ {
		start, end := arr.ValueOffsets(i)
		if i == 0 {
			from, total = start, 0
		}
		contiguous = contiguous && start == from+total
		if arr.IsNull(i) && arr.DataType().ID() == arrow.FIXED_SIZE_LIST {
			contiguous = contiguous && start == end
			end = start
		}
		total += end - start
		if total > offsetMax {
			offsets.Release()
			return nil, &ValueError{path, i, "a batch of lists would hold more than 2^31-1 elements: use fewer rows per batch"}
		}
		ends[i+1] = int32(total)
	}
	values, err := listValues(mem, arr, from, total, contiguous)
	if err != nil {
		offsets.Release()
		return nil, &ValueError{path, -1, err.Error()}
	}
	defer values.Release()
	child, err := castElements(mem, values, to, elem, path)
	if err != nil {
		offsets.Release()
		return nil, inRow(err, ends)
	}
	defer child.Release()
	return columns.Make(to, n, arr.NullN(), []arrow.Array{child}, alignedValidity(mem, arr), offsets), nil
}

// inRow turns the element that an error names into the row whose list holds it.
func inRow(err error, ends []int32) error {
	if v, ok := err.(*ValueError); ok && v.Row >= 0 {
		for row := range ends[1:] {
			if int(ends[row+1]) > v.Row {
				return &ValueError{v.Column, row, v.Reason}
			}
		}
	}
	return err
}

// castElements casts the elements of a list, or the entries of a map.
func castElements(mem memory.Allocator, values arrow.Array, to, elem arrow.DataType, path string) (arrow.Array, error) {
	entries, ok := values.(*array.Struct)
	if to.ID() != arrow.MAP || !ok {
		return cast(mem, values, elem, path)
	}
	into := elem.(*arrow.StructType)
	children := make([]arrow.Array, 0, 2)
	defer func() { releaseAll(children) }()
	for i, name := range []string{"key", "value"} { // entries are matched by position: their names differ by engine
		child, err := cast(mem, entries.Field(i), into.Field(i).Type, path+"."+name)
		if err != nil {
			return nil, err
		}
		children = append(children, child)
	}
	return columns.Make(into, entries.Len(), 0, children, nil), nil
}
