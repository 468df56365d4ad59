package writer

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/partition"
	"tidemark/internal/rowkey"
	"tidemark/internal/schema"
)

// intake checks records and brings them into the table's shape, which grows with what is appended. It is not safe for
// concurrent use.
type intake struct {
	table    string
	mem      memory.Allocator
	upsert   bool
	key      []string
	sequence string
	buckets  int

	partitions []string // of an append table: the columns that divide its files

	schema   *schema.Schema  // the table's as read, evolved by every record taken since
	target   *arrow.Schema   // the shape of generations: of schema, and _op on upsert tables
	encoder  *rowkey.Encoder // of target; nil on append tables
	accepted *arrow.Schema   // of the last record; another record of it cannot change anything
	keys     rowkey.Keys     // of the last record
}

func newIntake(table string, mem memory.Allocator, upsert bool, key []string, sequence string, buckets int, s *schema.Schema, partitions []string) (*intake, error) {
	in := &intake{table: table, mem: mem, upsert: upsert, key: key, sequence: sequence, buckets: buckets, schema: s, partitions: partitions}
	in.target = in.shape(s)
	if upsert {
		encoder, err := rowkey.NewEncoder(in.target, key)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", table, err)
		}
		in.encoder = encoder
	}
	return in, nil
}

// shape is the Arrow schema of generations.
func (in *intake) shape(s *schema.Schema) *arrow.Schema {
	a := s.Arrow()
	if !in.upsert {
		return a
	}
	op := arrow.Field{Name: schema.OpColumn, Type: arrow.BinaryTypes.String, Nullable: true}
	return arrow.NewSchema(append(slices.Clone(a.Fields()), op), nil)
}

// take checks one record and returns it in the table's shape, owned by the caller. On an error nothing has changed. For
// upsert tables in.keys then holds the keys of its rows.
func (in *intake) take(ctx context.Context, rec arrow.Record) (arrow.Record, error) {
	next := *in
	if in.accepted == nil || !in.accepted.Equal(rec.Schema()) {
		if err := next.evolve(rec.Schema()); err != nil {
			return nil, fmt.Errorf("table %s: %w", in.table, err)
		}
	}
	shaped, err := schema.Project(ctx, in.mem, rec, next.target)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", in.table, err)
	}
	if in.upsert {
		err = next.checkUpsert(shaped)
	}
	if err != nil {
		shaped.Release()
		return nil, err
	}
	if len(in.partitions) > 0 {
		placed, err := partition.Of(next.target, in.partitions).Accept(in.mem, shaped)
		shaped.Release()
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", in.table, err)
		}
		shaped = placed
	}
	*in = next
	return shaped, nil
}

// evolve takes the schema of a record into the table's.
func (in *intake) evolve(incoming *arrow.Schema) error {
	fields := incoming.Fields()
	ops := incoming.FieldIndices(schema.OpColumn)
	switch {
	case len(ops) > 0 && !in.upsert:
		return fmt.Errorf("column %s is reserved for upsert tables, and this is an append table; leave it out", schema.OpColumn)
	case len(ops) > 0:
		fields = slices.DeleteFunc(slices.Clone(fields), func(f arrow.Field) bool { return f.Name == schema.OpColumn })
	}
	plain := arrow.NewSchema(fields, nil)
	if err := schema.CheckNames(plain); err != nil {
		return err
	}
	theirs, err := schema.FromArrow(plain)
	if err != nil {
		return err
	}
	merged, changed, err := schema.Evolve(in.schema, theirs)
	if err != nil {
		return err
	}
	in.accepted = incoming
	if !changed {
		return nil
	}
	target := in.shape(merged)
	if in.upsert {
		if err := in.keepKeyBytes(target); err != nil {
			return err
		}
		if in.encoder, err = rowkey.NewEncoder(target, in.key); err != nil {
			return err
		}
	}
	if err := partition.Keeps(in.schema, merged, theirs, in.partitions); err != nil {
		return err
	}
	in.schema, in.target = merged, target
	return nil
}

// keepKeyBytes refuses to widen a key column in a way that would file its rows under other buckets.
func (in *intake) keepKeyBytes(target *arrow.Schema) error {
	for _, column := range in.key {
		from, to := in.target.Field(in.target.FieldIndices(column)[0]).Type, target.Field(target.FieldIndices(column)[0]).Type
		if !rowkey.SameBytes(from, to) {
			return fmt.Errorf("key column %s cannot be widened from %s to %s: its rows would move to other buckets", column, from, to)
		}
	}
	return nil
}

// checkUpsert refuses rows without key or sequence, and operations that are none. It leaves the keys in in.keys.
func (in *intake) checkUpsert(rec arrow.Record) error {
	in.keys = rowkey.Keys{}
	if err := in.encoder.Encode(rec, &in.keys); err != nil {
		return fmt.Errorf("table %s: %w", in.table, err)
	}
	if in.sequence != "" {
		column := rec.Column(rec.Schema().FieldIndices(in.sequence)[0])
		if column.NullN() > 0 {
			return &RowError{in.table, in.sequence, firstNull(column), "the sequence is null; it decides between versions of a row"}
		}
	}
	ops, ok := rec.Column(int(rec.NumCols()) - 1).(*array.String)
	if !ok {
		return fmt.Errorf("table %s: column %s must be text", in.table, schema.OpColumn)
	}
	for row := range ops.Len() {
		if op := ops.Value(row); !ops.IsNull(row) && op != opPut && op != opDelete {
			return &RowError{in.table, schema.OpColumn, row, fmt.Sprintf("%q is no operation; use %q, %q or null", op, opPut, opDelete)}
		}
	}
	return nil
}

// The values of schema.OpColumn. Null is opPut.
const (
	opPut    = "u"
	opDelete = "d"
)

func firstNull(column arrow.Array) int {
	for row := range column.Len() {
		if column.IsNull(row) {
			return row
		}
	}
	return -1
}

// hasDeletes reports whether any row of a record in the shape of an upsert generation deletes its key.
func hasDeletes(rec arrow.Record) bool {
	ops := rec.Column(int(rec.NumCols()) - 1).(*array.String)
	for row := range ops.Len() {
		if !ops.IsNull(row) && ops.Value(row) == opDelete {
			return true
		}
	}
	return false
}

// recordBytes estimates the memory that the rows of a record take, counting of a sliced record only the slice.
func recordBytes(rec arrow.Record) int64 {
	var n int64
	for _, column := range rec.Columns() {
		n += dataBytes(column.Data(), column.Data().Offset(), column.Len())
	}
	return n
}

func dataBytes(data arrow.ArrayData, offset, length int) int64 {
	n := int64(length+7) / 8 // validity
	switch t := data.DataType().(type) {
	case arrow.FixedWidthDataType:
		n += int64(length) * int64((t.BitWidth()+7)/8)
	case arrow.BinaryDataType:
		n += 4*int64(length) + span(data, offset, length)
	case *arrow.ListType, *arrow.MapType:
		from := 0
		if offsets := offsets32(data); len(offsets) > offset {
			from = int(offsets[offset])
		}
		n += 4*int64(length) + dataBytes(data.Children()[0], data.Children()[0].Offset()+from, int(span(data, offset, length)))
	case *arrow.StructType:
		for _, child := range data.Children() {
			n += dataBytes(child, child.Offset()+offset, length)
		}
	}
	return n
}

// span is the distance between the first and the last offset of a slice.
func span(data arrow.ArrayData, offset, length int) int64 {
	offsets := offsets32(data)
	if len(offsets) <= offset+length {
		return 0
	}
	return int64(offsets[offset+length] - offsets[offset])
}

func offsets32(data arrow.ArrayData) []int32 {
	buffer := data.Buffers()[1]
	if buffer == nil {
		return nil
	}
	return arrow.Int32Traits.CastFromBytes(buffer.Bytes())
}
