package partition

import (
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/schema"
)

// Accept is a record of all columns as a table takes it: every row has a partition, and empty strings in partition columns
// are null, which is all that the log can tell. The result is the caller's; it shares what did not change. The error is a
// *schema.ValueError.
func (c *Columns) Accept(mem memory.Allocator, rec arrow.Record) (arrow.Record, error) {
	arrays := slices.Clone(rec.Columns())
	for i, at := range c.at {
		empty, err := c.check(i, rec)
		if err != nil {
			return nil, err
		}
		if empty {
			nulls := withoutEmpty(mem, rec.Column(at).(*array.String))
			defer nulls.Release()
			arrays[at] = nulls
		}
	}
	return array.NewRecord(rec.Schema(), arrays, rec.NumRows()), nil
}

// check finds a row that has no place by one of the partition columns, and says whether the column has empty strings.
func (c *Columns) check(i int, rec arrow.Record) (empty bool, err error) {
	one := &Columns{names: c.names[i : i+1], at: c.at[i : i+1], all: c.all}
	column := rec.Column(c.at[i])
	var key []byte
	for row := range int(rec.NumRows()) {
		if key, err = one.AppendKey(key[:0], rec, row); err != nil {
			return false, err
		}
		empty = empty || len(key) == 1 && column.IsValid(row)
	}
	return empty, nil
}

// withoutEmpty is a column with null where it is empty.
func withoutEmpty(mem memory.Allocator, arr *array.String) arrow.Array {
	b := array.NewStringBuilder(mem)
	defer b.Release()
	b.Reserve(arr.Len())
	for i := range arr.Len() {
		if v := arr.Value(i); arr.IsNull(i) || v == "" {
			b.AppendNull()
		} else {
			b.Append(v)
		}
	}
	return b.NewArray()
}

// Keeps refuses an evolution of a table's schema that changes the type of a partition column: the values of older files
// stand in the log in the form of the older type. The error is a *schema.ClashError.
func Keeps(table, merged, incoming *schema.Schema, columns []string) error {
	for _, name := range columns {
		was, _ := table.Field(name)
		is, _ := merged.Field(name)
		if !was.Type.Equal(is.Type) {
			return &schema.ClashError{Table: table, Incoming: incoming, Column: name, Reason: "it is a partition column, which keeps its type"}
		}
	}
	return nil
}
