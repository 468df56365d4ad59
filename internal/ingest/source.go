package ingest

import (
	"context"
	"errors"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

const (
	// batchRows and batchBytes bound one record of text or Parquet; whichever is reached first ends it. Arrow IPC comes
	// in the records it was written in.
	batchRows  = 8192
	batchBytes = 8 << 20
)

// Options are what the caller knows about the inputs.
type Options struct {
	// Sanitize replaces the characters that column names of a table cannot have; without it such names are refused.
	Sanitize bool
	// Table is the schema of the table that the rows go to, if it exists. CSV and JSON columns that it names are read as
	// its types, which wins over what they look like: a value that does not fit is an error.
	Table *arrow.Schema
	// TempDir is where streams are spooled; empty is the system's.
	TempDir string
	// Mem allocates the records; nil is the Go heap.
	Mem memory.Allocator
}

// Source streams the rows of one or more inputs, in their order, as records of one schema. Next and Close are for one
// goroutine, Progress for any.
type Source struct {
	inputs []*input
	env    readerEnv
	at     int // input being read
	cur    reader
	fit    []int // columns of cur in the order of the schema; nil when they need no change
	err    error
}

// reader reads one input. The records of text have the schema of the source; the others come as in the file.
type reader interface {
	next(ctx context.Context) (arrow.Record, error) // io.EOF at the end
	close() error
}

// readerEnv is what readers share.
type readerEnv struct {
	mem    memory.Allocator
	raw    []string      // column names as the files have them
	schema *arrow.Schema // the same columns with the names and types of the records
	root   *node         // what the typing pass saw
}

// Open opens the inputs and settles their common schema, which for CSV and JSON takes a pass over all of them. The
// caller closes the source.
func Open(ctx context.Context, opts Options, inputs ...Input) (_ *Source, err error) {
	if len(inputs) == 0 {
		return nil, errors.New("no input to ingest")
	}
	s := &Source{env: readerEnv{mem: opts.Mem}}
	if s.env.mem == nil {
		s.env.mem = memory.DefaultAllocator
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, in := range inputs {
		o, err := openInput(ctx, in, opts.TempDir)
		if err != nil {
			return nil, err
		}
		s.inputs = append(s.inputs, o)
	}
	if err := s.env.unite(ctx, s.inputs, opts); err != nil {
		return nil, err
	}
	return s, nil
}

// Schema is the schema of every record, with the names that the table's columns have or will have.
func (s *Source) Schema() *arrow.Schema { return s.env.schema }

// Progress is how far reading is. It is exact at both ends, and in between as good as the format allows.
func (s *Source) Progress() (bytesDone, bytesTotal int64) {
	for _, in := range s.inputs {
		bytesDone += min(in.done.Load(), in.size)
		bytesTotal += in.size
	}
	return bytesDone, bytesTotal
}

// Next returns the next record, which the caller releases, or io.EOF. An error is final.
func (s *Source) Next(ctx context.Context) (arrow.Record, error) {
	for s.err == nil {
		if s.cur == nil {
			s.err = s.advance(ctx)
			continue
		}
		rec, err := s.cur.next(ctx)
		if err == io.EOF {
			err = s.cur.close()
			s.cur = nil
			s.inputs[s.at].done.Store(s.inputs[s.at].size)
			s.at++
			s.err = err
			continue
		}
		if err != nil {
			s.err = err
			break
		}
		if rec.NumRows() == 0 {
			rec.Release()
			continue
		}
		return s.shaped(rec), nil
	}
	return nil, s.err
}

func (s *Source) advance(ctx context.Context) (err error) {
	if s.at == len(s.inputs) {
		return io.EOF
	}
	in := s.inputs[s.at]
	s.fit = nil
	switch in.format {
	case formatCSV:
		s.cur, err = openCSV(ctx, in, s.env)
	case formatJSON:
		s.cur, err = openJSON(in, s.env)
	default:
		var declared *arrow.Schema
		if s.cur, declared, err = openTyped(in, s.env.mem); err == nil {
			s.fit, err = s.env.place(in, declared)
		}
	}
	return err
}

// openTyped opens an input whose format declares its schema.
func openTyped(in *input, mem memory.Allocator) (reader, *arrow.Schema, error) {
	if in.format == formatParquet {
		r, err := openParquet(in, mem)
		if err != nil {
			return nil, nil, err
		}
		return r, r.schema, nil
	}
	r, err := openArrow(in, mem)
	if err != nil {
		return nil, nil, err
	}
	return r, r.schema(), nil
}

// shaped brings a record of a typed input into the source's order and names; values are shared, not copied.
func (s *Source) shaped(rec arrow.Record) arrow.Record {
	if s.fit == nil {
		return rec
	}
	defer rec.Release()
	columns := make([]arrow.Array, len(s.fit))
	for i, from := range s.fit {
		data := renamed(rec.Column(from).Data(), s.env.schema.Field(i).Type)
		columns[i] = array.MakeFromData(data)
		data.Release()
		defer columns[i].Release()
	}
	return array.NewRecord(s.env.schema, columns, rec.NumRows())
}

// renamed is the same data under a type that differs in the names of fields only.
func renamed(data arrow.ArrayData, dt arrow.DataType) arrow.ArrayData {
	nested, ok := dt.(arrow.NestedType)
	if !ok || len(data.Children()) != nested.NumFields() {
		data.Retain()
		return data
	}
	children := make([]arrow.ArrayData, len(data.Children()))
	for i, child := range data.Children() {
		children[i] = renamed(child, nested.Fields()[i].Type)
		defer children[i].Release()
	}
	return array.NewData(dt, data.Len(), data.Buffers(), children, data.NullN(), data.Offset())
}

// Close releases what the source holds and removes the spooled copies. It may be called again.
func (s *Source) Close() error {
	var errs []error
	if s.cur != nil {
		errs = append(errs, s.cur.close())
		s.cur = nil
	}
	for _, in := range s.inputs {
		errs = append(errs, in.remove())
	}
	s.inputs = nil
	if s.err == nil {
		s.err = errors.New("the source is closed")
	}
	return errors.Join(errs...)
}
