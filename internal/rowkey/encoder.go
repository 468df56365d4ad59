package rowkey

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
)

// NullError says that a key column is null in a row.
type NullError struct {
	Column string
	Row    int // within the record, from 0
}

// Code is stable, for machines.
func (*NullError) Code() string { return "null_key" }

func (e *NullError) Error() string {
	return fmt.Sprintf("key column %q is null in row %d: every row of an upsert table needs its whole key", e.Column, e.Row)
}

// Encoder encodes the keys of records of one schema. It is immutable and safe for concurrent use.
type Encoder struct {
	schema  *arrow.Schema
	columns []column
}

// column is one key column: where it is and how its values become bytes.
type column struct {
	name  string
	index int
	typ   arrow.DataType
	width int // bytes of every value, 0 if they vary
}

// keyWidths are the types a key column may have and the bytes that each of their values takes; 0 if that varies.
var keyWidths = map[arrow.Type]int{
	arrow.BOOL: 1,
	arrow.INT8: 8, arrow.INT16: 8, arrow.INT32: 8, arrow.INT64: 8,
	arrow.DATE32: 8, arrow.TIMESTAMP: 8,
	arrow.FLOAT32: 8, arrow.FLOAT64: 8,
	arrow.DECIMAL128: 16,
	arrow.STRING:     0, arrow.BINARY: 0,
}

// NewEncoder makes an encoder for the given key columns of a schema, most significant first. It refuses columns that the
// schema lacks and types that cannot be keys.
func NewEncoder(schema *arrow.Schema, columns []string) (*Encoder, error) {
	if len(columns) == 0 {
		return nil, fmt.Errorf("a key needs at least one column")
	}
	e := &Encoder{schema: schema}
	for i, name := range columns {
		at := schema.FieldIndices(name)
		if len(at) == 0 {
			return nil, fmt.Errorf("key column %q is not a column of the table (%s)", name, columnNames(schema))
		}
		for _, earlier := range columns[:i] {
			if earlier == name {
				return nil, fmt.Errorf("key column %q is named twice", name)
			}
		}
		typ := schema.Field(at[0]).Type
		width, ok := keyWidths[typ.ID()]
		if !ok {
			return nil, fmt.Errorf("key column %q has type %s, which cannot be a key: use a boolean, integer, float, decimal, date, timestamp, string or binary", name, typ)
		}
		e.columns = append(e.columns, column{name: name, index: at[0], typ: typ, width: width})
	}
	return e, nil
}

func columnNames(schema *arrow.Schema) string {
	names := make([]string, schema.NumFields())
	for i, f := range schema.Fields() {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// SameBytes says whether a value of one type, widened to another, keeps its key bytes. A table may widen a key column
// only then.
func SameBytes(from, to arrow.DataType) bool {
	class := func(dt arrow.DataType) string {
		switch dt := dt.(type) {
		case *arrow.Int8Type, *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
			return "integer"
		case *arrow.Float32Type, *arrow.Float64Type:
			return "float"
		case *arrow.Decimal128Type:
			return fmt.Sprintf("decimal of scale %d", dt.Scale)
		}
		return dt.String()
	}
	return class(from) == class(to)
}

// Encode encodes the keys of all rows into dst, which it resets first. A null key is a *NullError, and dst is then empty.
func (e *Encoder) Encode(rec arrow.Record, dst *Keys) error {
	dst.buf, dst.ends = dst.buf[:0], dst.ends[:0]
	for _, c := range e.columns {
		if err := e.check(c, rec); err != nil {
			return err
		}
	}
	rows := int(rec.NumRows())
	dst.ends = resize(dst.ends, rows)
	total := e.measure(rec, dst.ends)
	dst.buf = resize(dst.buf, total)
	// The ends serve as write positions: each starts where its key starts and is where it ends after the last column.
	for _, c := range e.columns {
		c.write(rec.Column(c.index), dst.buf, dst.ends)
	}
	return nil
}

func (e *Encoder) check(c column, rec arrow.Record) error {
	if c.index >= int(rec.NumCols()) || rec.ColumnName(c.index) != c.name || !arrow.TypeEqual(rec.Column(c.index).DataType(), c.typ) {
		return fmt.Errorf("key column %q: the record has the schema %s, the encoder was made for %s", c.name, rec.Schema(), e.schema)
	}
	if arr := rec.Column(c.index); arr.NullN() > 0 {
		for row := range arr.Len() {
			if arr.IsNull(row) {
				return &NullError{Column: c.name, Row: row}
			}
		}
	}
	return nil
}

// measure sets starts[i] to where the key of row i starts and returns the size of all keys.
func (e *Encoder) measure(rec arrow.Record, starts []int) int {
	fixed := 0
	clear(starts)
	for _, c := range e.columns {
		if c.width > 0 {
			fixed += c.width
			continue
		}
		values, offsets := bytesOf(rec.Column(c.index))
		zeros := hasZero(values, offsets)
		for i := range starts {
			starts[i] += int(offsets[i+1]-offsets[i]) + len(terminator)
			if zeros {
				starts[i] += bytes.Count(values[offsets[i]:offsets[i+1]], zero)
			}
		}
	}
	total := 0
	for i, size := range starts {
		starts[i] = total
		total += fixed + size
	}
	return total
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
