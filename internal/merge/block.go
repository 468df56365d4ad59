package merge

import (
	"bytes"
	"context"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/columns"
	"tidemark/internal/rowkey"
	"tidemark/internal/schema"
)

// block is consecutive rows of one sorted run, in the table's schema, with what ordering needs to know of them.
type block struct {
	rows      arrow.Record
	keys      rowkey.Keys
	removes   []bool // rows that are deletes; nil when none is
	distinct  bool   // every row is an upsert with a key of its own, so stretches of it move as they are
	sequences rowkey.Keys
	encoder   *rowkey.Encoder // of the sequence column; nil when the table has none, or once sequences holds them
	size      int64           // bytes of rows and keys, about
	place     int             // among the blocks of the batch that a collector is gathering, from 1; 0 if it is none of them
	refs      int             // blocks change hands but are never shared between goroutines
}

func (b *block) retain() { b.refs++ }

func (b *block) release() {
	b.refs--
	if b.refs == 0 {
		b.rows.Release()
	}
}

func (b *block) operation(row int) operation {
	if b.removes != nil && b.removes[row] {
		return remove
	}
	return upsert
}

// sequence is what decides between versions of a row's key; empty without a sequence column. Sequences are encoded
// when first asked for, because most blocks of a base are never asked.
func (b *block) sequence(row int) ([]byte, error) {
	if b.encoder != nil {
		if err := b.encoder.Encode(b.rows, &b.sequences); err != nil {
			return nil, fmt.Errorf("sequence column: %w", err)
		}
		b.encoder = nil
	}
	if b.sequences.Len() == 0 {
		return nil, nil
	}
	return b.sequences.At(row), nil
}

// shape is how rows of one table look to a merge.
type shape struct {
	mem      memory.Allocator
	arrow    *arrow.Schema // of the table, evolution included
	key      []string      // key columns; none for an append table
	sequence string        // sequence column; empty when the table has none
}

// rowKey gives the key of single rows.
func (s shape) rowKey() (func(rec arrow.Record, row int) ([]byte, error), error) {
	encoder, err := rowkey.NewEncoder(s.arrow, s.key)
	if err != nil {
		return nil, err
	}
	return func(rec arrow.Record, row int) ([]byte, error) {
		one := rec.NewSlice(int64(row), int64(row+1))
		defer one.Release()
		var keys rowkey.Keys
		if err := encoder.Encode(one, &keys); err != nil {
			return nil, err
		}
		return keys.At(0), nil
	}, nil
}

// blocks turns the records of one sorted run into blocks. It is not safe for concurrent use.
type blocks struct {
	shape
	sealed    bool // the records are a generation's, not a base file's
	keys      *rowkey.Encoder
	sequences *rowkey.Encoder
	last      []byte // key of the row before, to check that the run is sorted
	started   bool
}

func newBlocks(s shape) (*blocks, error) {
	b := &blocks{shape: s}
	var err error
	if b.keys, err = rowkey.NewEncoder(s.arrow, s.key); err != nil {
		return nil, err
	}
	if s.sequence != "" {
		if b.sequences, err = rowkey.NewEncoder(s.arrow, []string{s.sequence}); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// of makes a block of a record as a file holds it, in the file's own schema, and checks that it is sorted. The record
// stays the caller's.
func (s *blocks) of(ctx context.Context, rec arrow.Record) (*block, error) {
	removes, plain, err := splitOperations(rec)
	if err != nil {
		return nil, err
	}
	defer plain.Release()
	rows, err := schema.Project(ctx, s.mem, plain, s.arrow)
	if err != nil {
		return nil, err
	}
	b := &block{rows: rows, removes: removes, encoder: s.sequences, refs: 1}
	if s.sealed {
		// A file would refuse values that it must not hold, too late to tell whose they are.
		if err := schema.CheckValues(rows); err != nil {
			b.release()
			return nil, err
		}
	}
	if err := s.keys.Encode(rows, &b.keys); err != nil {
		b.release()
		return nil, err
	}
	if err := s.check(b); err != nil {
		b.release()
		return nil, err
	}
	b.size = columns.Size(rows, 0, int(rows.NumRows())) + int64(b.keys.Size())
	return b, nil
}

// check sees that keys never descend and finds out whether they are distinct.
func (s *blocks) check(b *block) error {
	n := b.keys.Len()
	if n == 0 {
		return nil
	}
	b.distinct = b.removes == nil
	previous := b.keys.At(0)
	if s.started && bytes.Compare(previous, s.last) < 0 {
		return &unsortedError{Row: 0}
	}
	for i := 1; i < n; i++ {
		key := b.keys.At(i)
		switch bytes.Compare(key, previous) {
		case -1:
			return &unsortedError{Row: i}
		case 0:
			b.distinct = false
		}
		previous = key
	}
	s.started, s.last = true, append(s.last[:0], previous...)
	return nil
}

// unsortedError says that a file which must be sorted by key is not.
type unsortedError struct {
	Row int // of the batch
}

func (e *unsortedError) Error() string {
	return fmt.Sprintf("rows are not sorted by key at row %d of the batch: the file was not written by a Tidemark writer, or was replaced", e.Row)
}

// operationError says that an _op column holds something else than u, d and null.
type operationError struct {
	Row   int
	Value string
}

func (e *operationError) Error() string {
	return fmt.Sprintf("column %s holds %q at row %d of the batch; it may hold u, d or null", schema.OpColumn, e.Value, e.Row)
}

// splitOperations takes the _op column, if there is one, off a record and returns which rows are deletes (nil: none)
// and the rest of the columns.
func splitOperations(rec arrow.Record) (removes []bool, plain arrow.Record, err error) {
	at := rec.Schema().FieldIndices(schema.OpColumn)
	if len(at) == 0 {
		rec.Retain()
		return nil, rec, nil
	}
	column, ok := rec.Column(at[0]).(*array.String)
	if !ok {
		return nil, nil, &operationError{Value: rec.Column(at[0]).DataType().String()}
	}
	for i := range column.Len() {
		if column.IsNull(i) {
			continue
		}
		switch column.Value(i) {
		case "u":
		case "d":
			if removes == nil {
				removes = make([]bool, column.Len())
			}
			removes[i] = true
		default:
			return nil, nil, &operationError{Row: i, Value: column.Value(i)}
		}
	}
	var fields []arrow.Field
	var arrays []arrow.Array
	for i, f := range rec.Schema().Fields() {
		if i != at[0] {
			fields = append(fields, f)
			arrays = append(arrays, rec.Column(i))
		}
	}
	return removes, array.NewRecord(arrow.NewSchema(fields, nil), arrays, rec.NumRows()), nil
}
