package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// csvRows reads the header and then checked rows.
type csvRows struct {
	in     *input
	lex    csvLexer
	header []string
	row    int64
}

func (r *csvRows) start(ctx context.Context, source io.Reader) error {
	r.lex.w = newWindow(source)
	if err := r.lex.w.skipMark(); err != nil {
		return r.in.unreadable(err)
	}
	fields, line, err := r.lex.read()
	if err != nil {
		return r.failed(ctx, line, err)
	}
	seen := map[string]bool{}
	for i, f := range fields {
		name := string(f.text)
		switch _, err := validUTF8(f.text); {
		case err != nil:
			return &Error{Code: CodeBadRow, File: r.in.name, Line: line, Err: err}
		case name == "":
			return &Error{Code: CodeBadRow, File: r.in.name, Line: line,
				Reason: fmt.Sprintf("column %d has no name; the first line must name every column", i+1)}
		case seen[name]:
			return &Error{Code: CodeBadRow, File: r.in.name, Line: line, Column: name, Reason: "the name is there twice"}
		}
		seen[name] = true
		r.header = append(r.header, name)
	}
	if len(r.header) == 1 && strings.ContainsAny(r.header[0], ";\t|") {
		return &Error{Code: CodeBadRow, File: r.in.name, Line: line, Column: r.header[0],
			Reason: "the only column; are the fields separated by something else than commas? Only commas are understood"}
	}
	if len(r.header) == 0 {
		return &Error{Code: CodeBadRow, File: r.in.name, Reason: "is empty; the first line must name the columns"}
	}
	return nil
}

// next returns a row with as many fields as the header, or none at the end. Blank lines are skipped, except in files of
// one column, where they are nulls.
func (r *csvRows) next(ctx context.Context) (fields []csvField, line int64, err error) {
	for {
		fields, line, err = r.lex.read()
		if err != nil {
			return nil, line, r.failed(ctx, line, err)
		}
		if len(fields) == 1 && len(r.header) > 1 && len(fields[0].text) == 0 && !fields[0].quoted {
			continue
		}
		if len(fields) == 0 {
			return nil, line, nil
		}
		r.row++
		if len(fields) != len(r.header) {
			return nil, line, &Error{Code: CodeBadRow, File: r.in.name, Line: line, Row: r.row,
				Reason: fmt.Sprintf("%d fields, but the header names %d columns", len(fields), len(r.header))}
		}
		return fields, line, nil
	}
}

func (r *csvRows) failed(ctx context.Context, line int64, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return &Error{Code: CodeBadRow, File: r.in.name, Line: line, Err: err}
}

// scanCSV is the typing pass over a CSV input. It returns the names in the header.
func scanCSV(ctx context.Context, in *input, root *node) ([]string, error) {
	f, err := in.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows := csvRows{in: in}
	if err := rows.start(ctx, contextReader{ctx: ctx, r: f}); err != nil {
		return nil, err
	}
	columns := make([]*node, len(rows.header))
	for i, name := range rows.header {
		columns[i] = root.field([]byte(name))
	}
	where := func() string { return fmt.Sprintf("%s, row %d", in.name, rows.row) }
	for {
		fields, line, err := rows.next(ctx)
		if err != nil {
			return nil, err
		}
		if fields == nil {
			return rows.header, nil
		}
		for i, field := range fields {
			n := columns[i]
			if n.kind == kindScalar && n.shape&shapeText != 0 || len(field.text) == 0 {
				continue // nothing can change any more; or nothing is said
			}
			n.shape |= classify(field.text)
			if err := n.become(kindScalar, where); err != nil {
				return nil, &Error{Code: CodeSchemaClash, File: in.name, Line: line, Row: rows.row, Column: rows.header[i], Err: err}
			}
		}
	}
}

// csvReader is the building pass.
type csvReader struct {
	file    *os.File
	rows    csvRows
	builder *array.RecordBuilder
	columns []csvColumn // in the order of the file
}

type csvColumn struct {
	b      array.Builder
	text   appendText
	nested *jsonColumn
	// holdsEmpty: the type has an empty value, which "" is.
	holdsEmpty bool
}

func openCSV(ctx context.Context, in *input, env readerEnv) (_ reader, err error) {
	f, err := in.open()
	if err != nil {
		return nil, err
	}
	r := &csvReader{file: f, rows: csvRows{in: in}, builder: array.NewRecordBuilder(env.mem, env.schema)}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if err := r.rows.start(ctx, countingReader{r: f, done: &in.done}); err != nil {
		return nil, err
	}
	place := map[string]int{}
	for i, name := range env.raw {
		place[name] = i
	}
	for _, name := range r.rows.header {
		i, ok := place[name]
		if !ok {
			return nil, &Error{Code: CodeSchemaClash, File: in.name, Column: name,
				Reason: "was not there when the file was read first; did the file change?"}
		}
		c := csvColumn{b: r.builder.Field(i)}
		c.text = textAppender(c.b)
		switch c.b.(type) {
		case *array.StringBuilder, *array.BinaryBuilder:
			c.holdsEmpty = true
		}
		if c.text == nil {
			if c.nested, err = newJSONColumn(name, nil, c.b); err != nil {
				return nil, &Error{Code: CodeSchemaClash, File: in.name, Err: err}
			}
		}
		r.columns = append(r.columns, c)
	}
	return r, nil
}

func (r *csvReader) next(ctx context.Context) (arrow.Record, error) {
	rows, size := 0, 0
	for rows < batchRows && size < batchBytes {
		if rows%1024 == 0 {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
		}
		fields, line, err := r.rows.next(ctx)
		if err != nil {
			return nil, err
		}
		if fields == nil {
			break
		}
		for i, field := range fields {
			size += len(field.text)
			if err := r.columns[i].add(field); err != nil {
				e := valueError(r.rows.in, line, r.rows.row, err).(*Error)
				if e.Column == "" {
					e.Column = r.rows.header[i]
				}
				return nil, e
			}
		}
		rows++
	}
	if rows == 0 {
		return nil, io.EOF
	}
	return r.builder.NewRecord(), nil
}

// add appends a field. Nothing is null; "" is empty where the type has an empty value, and null elsewhere.
func (c *csvColumn) add(field csvField) error {
	switch {
	case len(field.text) == 0 && !(field.quoted && c.holdsEmpty):
		c.b.AppendNull()
		return nil
	case c.nested != nil:
		t := jsonText{s: field.text}
		if err := c.nested.read(&t, 0); err != nil {
			return err
		}
		if t.peek(); t.i < len(t.s) {
			return errors.New("text after the end of the JSON value")
		}
		return nil
	}
	return c.text(field.text)
}

func (r *csvReader) close() error {
	r.builder.Release()
	return r.file.Close()
}
