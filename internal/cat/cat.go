package cat

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"tidemark/internal/parquetfile"
)

// Format is how rows are written.
type Format string

const (
	CSV     Format = "csv"
	JSONL   Format = "jsonl"
	Parquet Format = "parquet"
)

// ParseFormat reads a format as users write it.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case CSV, JSONL, Parquet:
		return f, nil
	}
	return "", fmt.Errorf("unknown format %q: use csv, jsonl or parquet", s)
}

// Options select what is written.
type Options struct {
	Format  Format
	Columns []string // in this order; none means all
	Limit   int64    // the most rows to write; 0 means all
}

// UnknownColumnError: a column was asked for that the table does not have.
type UnknownColumnError struct {
	Column string
	Has    []string
}

// Code is stable, for machines.
func (*UnknownColumnError) Code() string { return "unknown_column" }

func (e *UnknownColumnError) Error() string {
	return fmt.Sprintf("there is no column %q; the columns are %s", e.Column, strings.Join(e.Has, ", "))
}

// encoder writes records of the selected columns. Either close or abort ends it.
type encoder interface {
	write(rec arrow.Record) error
	close() error
	abort()
}

// Write writes the rows of an iterator whose records have the schema s, and returns how many it wrote. Records are used
// until the next one is asked for, and are not released; the iterator is stopped when the limit is reached.
func Write(ctx context.Context, out io.Writer, s *arrow.Schema, rows iter.Seq2[arrow.Record, error], o Options) (written int64, err error) {
	columns, err := selection(s, o.Columns)
	if err != nil {
		return 0, err
	}
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = s.Field(c)
	}
	selected := arrow.NewSchema(fields, nil)
	buffered := bufio.NewWriterSize(out, 64<<10)
	enc, err := newEncoder(buffered, selected, o.Format)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			enc.abort()
			_ = buffered.Flush() // the rows before the error are right; the error says that more are missing
		}
	}()
	for rec, err := range rows {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return written, err
		}
		n := rec.NumRows()
		if o.Limit > 0 {
			n = min(n, o.Limit-written)
		}
		if err := writePart(enc, selected, columns, rec, n); err != nil {
			return written, err
		}
		written += n
		if o.Limit > 0 && written == o.Limit {
			break
		}
	}
	if err := enc.close(); err != nil {
		return written, err
	}
	return written, buffered.Flush()
}

// writePart writes the first n rows of a record.
func writePart(enc encoder, selected *arrow.Schema, columns []int, rec arrow.Record, n int64) error {
	arrays := make([]arrow.Array, len(columns))
	for i, c := range columns {
		arrays[i] = rec.Column(c)
	}
	part := array.NewRecord(selected, arrays, rec.NumRows())
	defer part.Release()
	if n < rec.NumRows() {
		cut := part.NewSlice(0, n)
		defer cut.Release()
		return enc.write(cut)
	}
	return enc.write(part)
}

func selection(s *arrow.Schema, names []string) ([]int, error) {
	var all []int
	var has []string
	for i, f := range s.Fields() {
		all, has = append(all, i), append(has, f.Name)
	}
	if len(names) == 0 {
		return all, nil
	}
	var columns []int
	for _, name := range names {
		at := s.FieldIndices(name)
		if len(at) == 0 {
			return nil, &UnknownColumnError{Column: name, Has: has}
		}
		columns = append(columns, at[0])
	}
	return columns, nil
}

func newEncoder(out *bufio.Writer, s *arrow.Schema, f Format) (encoder, error) {
	if f == Parquet {
		w, err := parquetfile.NewWriter(out, s, parquetfile.WriterOptions{})
		if err != nil {
			return nil, err
		}
		return parquetEncoder{w}, nil
	}
	texts := make([]appendValue, s.NumFields())
	for i, field := range s.Fields() {
		json, err := jsonValue(field.Type)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", field.Name, err)
		}
		texts[i] = json
		if f == CSV {
			texts[i] = csvField(field.Type, json)
		}
	}
	if f == CSV {
		return newCSVEncoder(out, s, texts)
	}
	return newJSONEncoder(out, s, texts), nil
}

type parquetEncoder struct{ w *parquetfile.Writer }

func (p parquetEncoder) write(rec arrow.Record) error { return p.w.Write(rec) }

func (p parquetEncoder) close() error {
	_, err := p.w.Close()
	return err
}

func (p parquetEncoder) abort() { p.w.Abort() }

// csvEncoder writes one line per row.
type csvEncoder struct {
	out   *bufio.Writer
	texts []appendValue
	line  []byte
}

func newCSVEncoder(out *bufio.Writer, s *arrow.Schema, texts []appendValue) (*csvEncoder, error) {
	e := &csvEncoder{out: out, texts: texts}
	for i, f := range s.Fields() {
		if i > 0 {
			e.line = append(e.line, ',')
		}
		e.line = appendCSV(e.line, []byte(f.Name))
	}
	_, err := out.Write(append(e.line, '\n'))
	return e, err
}

func (e *csvEncoder) write(rec arrow.Record) error {
	for row := range int(rec.NumRows()) {
		e.line = e.line[:0]
		for i, text := range e.texts {
			if i > 0 {
				e.line = append(e.line, ',')
			}
			if column := rec.Column(i); !column.IsNull(row) {
				e.line = text(e.line, column, row)
			}
		}
		if _, err := e.out.Write(append(e.line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (e *csvEncoder) close() error { return nil }
func (e *csvEncoder) abort()       {}

// jsonEncoder writes one object per row; nulls are written, so that every object has the same fields.
type jsonEncoder struct {
	out   *bufio.Writer
	names []string // quoted, with the colon and what stands before
	texts []appendValue
	line  []byte
}

func newJSONEncoder(out *bufio.Writer, s *arrow.Schema, texts []appendValue) *jsonEncoder {
	e := &jsonEncoder{out: out, texts: texts}
	before := byte('{')
	for _, f := range s.Fields() {
		e.names = append(e.names, string(append(appendJSONString([]byte{before}, f.Name), ':')))
		before = ','
	}
	return e
}

func (e *jsonEncoder) write(rec arrow.Record) error {
	for row := range int(rec.NumRows()) {
		e.line = e.line[:0]
		for i, text := range e.texts {
			e.line = append(e.line, e.names[i]...)
			e.line = orNull(text, e.line, rec.Column(i), row)
		}
		if _, err := e.out.Write(append(e.line, "}\n"...)); err != nil {
			return err
		}
	}
	return nil
}

func (e *jsonEncoder) close() error { return nil }
func (e *jsonEncoder) abort()       {}
