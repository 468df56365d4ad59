package demo

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/zeebo/xxh3"

	"tidemark/internal/schema"
)

// Sum says which rows a table holds, whatever their order and however they are spread over files and records.
type Sum struct {
	Rows int64
	// Hash is the wrapping sum of the hashes of the rows, so that rows can be taken out again and sums be added.
	Hash uint64
}

// Plus is the sum of both sets of rows.
func (s Sum) Plus(o Sum) Sum { return Sum{s.Rows + o.Rows, s.Hash + o.Hash} }

func (s Sum) String() string { return fmt.Sprintf("%d rows, checksum %016x", s.Rows, s.Hash) }

// Checksum sums the rows of a record.
//
// A row's hash mixes the wrapping sum of the hashes of its cells; a cell's hash depends on the column's name and the
// value. So the order of columns does not matter, and a null is as if the column were not there. Integers hash as int64
// and floats as double (every NaN alike), so that a column may be widened. The column _op is left out, since it is no
// part of a row. The record must have types that a table has, see schema.Project.
func Checksum(rec arrow.Record) (Sum, error) {
	hashes, err := rowHashes(rec, nil)
	sum := Sum{Rows: rec.NumRows()}
	for _, h := range hashes {
		sum.Hash += h
	}
	return sum, err
}

// rowHashes returns the hash of each row, in dst if it is large enough.
func rowHashes(rec arrow.Record, dst []uint64) ([]uint64, error) {
	rows := int(rec.NumRows())
	if cap(dst) < rows {
		dst = make([]uint64, rows)
	}
	dst = dst[:rows]
	clear(dst)
	for i, column := range rec.Columns() {
		name := rec.ColumnName(i)
		if name == schema.OpColumn {
			continue
		}
		if err := addCells(dst, column, xxh3.HashString(name)); err != nil {
			return nil, fmt.Errorf("column %q: %w", name, err)
		}
	}
	for i, h := range dst {
		dst[i] = mix(h)
	}
	return dst, nil
}

// addCells adds the hash of each value of a column to its row's. The common types have loops of their own; all others
// are encoded first.
func addCells(dst []uint64, column arrow.Array, seed uint64) error {
	switch a := column.(type) {
	case *array.Int16:
		addNumbers(dst, a, a.Int16Values(), seed)
	case *array.Int32:
		addNumbers(dst, a, a.Int32Values(), seed)
	case *array.Int64:
		addNumbers(dst, a, a.Int64Values(), seed)
	case *array.Date32:
		addNumbers(dst, a, a.Date32Values(), seed)
	case *array.Timestamp:
		addNumbers(dst, a, a.TimestampValues(), seed)
	case *array.String:
		for i := range dst {
			if !a.IsNull(i) {
				dst[i] += xxh3.HashStringSeed(a.Value(i), seed)
			}
		}
	case *array.Decimal128:
		for i := range dst {
			if !a.IsNull(i) {
				dst[i] += mix(decimalBits(a.Value(i), seed))
			}
		}
	default:
		return addEncoded(dst, a, seed)
	}
	return nil
}

func addNumbers[T ~int16 | ~int32 | ~int64](dst []uint64, a arrow.Array, values []T, seed uint64) {
	if a.NullN() == 0 {
		for i, v := range values {
			dst[i] += mix(uint64(int64(v)) ^ seed)
		}
		return
	}
	for i, v := range values {
		if !a.IsNull(i) {
			dst[i] += mix(uint64(int64(v)) ^ seed)
		}
	}
}

func addEncoded(dst []uint64, column arrow.Array, seed uint64) error {
	var c cell
	for i := range dst {
		if column.IsNull(i) {
			continue
		}
		if err := c.read(column, i); err != nil {
			return err
		}
		if c.isText {
			dst[i] += xxh3.HashSeed(c.text, seed)
		} else {
			dst[i] += mix(c.number ^ seed)
		}
	}
	return nil
}

// cell is what the hash of a value is taken of: a number, or bytes.
type cell struct {
	number uint64
	text   []byte
	isText bool
}

func (c *cell) read(column arrow.Array, i int) error {
	c.isText, c.text = false, c.text[:0]
	switch a := column.(type) {
	case *array.Boolean:
		c.number = 0
		if a.Value(i) {
			c.number = 1
		}
	case *array.Int8:
		c.number = uint64(int64(a.Value(i)))
	case *array.Int16:
		c.number = uint64(int64(a.Value(i)))
	case *array.Int32:
		c.number = uint64(int64(a.Value(i)))
	case *array.Int64:
		c.number = uint64(a.Value(i))
	case *array.Float32:
		c.number = floatBits(float64(a.Value(i)))
	case *array.Float64:
		c.number = floatBits(a.Value(i))
	case *array.Date32:
		c.number = uint64(int64(a.Value(i)))
	case *array.Timestamp:
		c.number = uint64(a.Value(i))
	case *array.Decimal128:
		c.number = decimalBits(a.Value(i), 0)
	case *array.String:
		c.isText, c.text = true, append(c.text, a.Value(i)...)
	case *array.Binary:
		c.isText, c.text = true, append(c.text, a.Value(i)...)
	default:
		c.isText = true
		var err error
		c.text, err = nested(c.text, column, i)
		return err
	}
	return nil
}

// nested encodes a struct as the names and values of its fields, and a list or map as the number and values of its
// elements.
func nested(dst []byte, column arrow.Array, i int) ([]byte, error) {
	switch a := column.(type) {
	case *array.Struct:
		dst = append(dst, '{')
		for f := range a.NumField() {
			if a.Field(f).IsNull(i) {
				continue
			}
			dst = binary.LittleEndian.AppendUint64(dst, xxh3.HashString(a.DataType().(*arrow.StructType).Field(f).Name))
			var err error
			if dst, err = element(dst, a.Field(f), i); err != nil {
				return nil, err
			}
		}
		return dst, nil
	case array.ListLike: // maps too: a list of entries
		from, to := a.ValueOffsets(i)
		dst = binary.LittleEndian.AppendUint64(append(dst, '['), uint64(to-from))
		for j := from; j < to; j++ {
			var err error
			if dst, err = element(dst, a.ListValues(), int(j)); err != nil {
				return nil, err
			}
		}
		return dst, nil
	}
	return nil, fmt.Errorf("no checksum for values of type %s", column.DataType())
}

func element(dst []byte, column arrow.Array, i int) ([]byte, error) {
	if column.IsNull(i) {
		return append(dst, 0), nil
	}
	var c cell
	if err := c.read(column, i); err != nil {
		return nil, err
	}
	if !c.isText {
		return binary.LittleEndian.AppendUint64(append(dst, 1), c.number), nil
	}
	dst = binary.LittleEndian.AppendUint64(append(dst, 2), uint64(len(c.text)))
	return append(dst, c.text...), nil
}

func floatBits(v float64) uint64 {
	if v != v {
		return math.Float64bits(math.NaN())
	}
	return math.Float64bits(v)
}

func decimalBits(v decimal128.Num, seed uint64) uint64 {
	return mix(v.LowBits()^seed) + uint64(v.HighBits())
}

// mix is the finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection in which every bit of the result depends on
// every bit of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
