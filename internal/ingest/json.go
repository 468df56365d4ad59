package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// scanJSON is the typing pass over a JSON input: it joins what every row holds into root.
func scanJSON(ctx context.Context, in *input, root *node) error {
	f, err := in.open()
	if err != nil {
		return err
	}
	defer f.Close()
	rows := jsonRows{w: newWindow(contextReader{ctx: ctx, r: f})}
	if err := rows.w.skipMark(); err != nil {
		return in.unreadable(err)
	}
	scan := jsonScan{in: in, rows: &rows}
	for {
		row, line, err := rows.read()
		if err != nil {
			return jsonRowError(ctx, in, line, err)
		}
		if len(row) == 0 {
			return nil
		}
		scan.text.s, scan.text.i, scan.path, scan.code = row, 0, scan.path[:0], CodeBadRow
		if err := scan.object(root, 0); err != nil {
			return &Error{Code: scan.code, File: in.name, Line: line, Row: rows.row, Column: string(scan.path), Err: err}
		}
	}
}

func jsonRowError(ctx context.Context, in *input, line int64, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return &Error{Code: CodeBadRow, File: in.name, Line: line, Err: err}
}

// jsonScan walks one row after the other. path is where it is; an error leaves it there.
type jsonScan struct {
	in   *input
	rows *jsonRows
	text jsonText
	path []byte
	code string
}

func (s *jsonScan) where() string { return fmt.Sprintf("%s, row %d", s.in.name, s.rows.row) }

func (s *jsonScan) value(n *node, depth int) error {
	switch c := s.text.peek(); c {
	case '{':
		if err := s.become(n, kindObject); err != nil {
			return err
		}
		return s.object(n, depth)
	case '[':
		if err := s.become(n, kindList); err != nil {
			return err
		}
		return s.list(n, depth)
	case 'n':
		_, err := s.text.literal()
		return err
	case '"':
		text, err := s.text.str()
		if err != nil {
			return err
		}
		kind := shapeText
		if n.shape&shapeText == 0 && len(text) >= 10 {
			kind = classifyTime(text)
		}
		return s.scalar(n, kind)
	default:
		text, err := s.text.scalar(c)
		if err != nil {
			return err
		}
		return s.scalar(n, classify(text))
	}
}

func (s *jsonScan) scalar(n *node, kind shape) error {
	n.shape |= kind
	return s.become(n, kindScalar)
}

func (s *jsonScan) become(n *node, kind nodeKind) error {
	err := n.become(kind, s.where)
	if err != nil {
		s.code = CodeSchemaClash
	}
	return err
}

func (s *jsonScan) object(n *node, depth int) error {
	length := len(s.path)
	return s.text.object(depth, func(key []byte) error {
		s.path = appendPath(s.path, key)
		if err := s.value(n.field(key), depth+1); err != nil {
			return err
		}
		s.path = s.path[:length]
		return nil
	})
}

func (s *jsonScan) list(n *node, depth int) error {
	length := len(s.path)
	s.path = append(s.path, "[]"...)
	err := s.text.list(depth, func() error {
		if n.elem == nil {
			n.elem = &node{}
		}
		return s.value(n.elem, depth+1)
	})
	if err == nil {
		s.path = s.path[:length]
	}
	return err
}

func appendPath(path, key []byte) []byte {
	if len(path) > 0 {
		path = append(path, '.')
	}
	return append(path, key...)
}

// jsonReader is the building pass.
type jsonReader struct {
	in      *input
	file    *os.File
	rows    jsonRows
	text    jsonText
	builder *array.RecordBuilder
	columns jsonFields
}

func openJSON(in *input, env readerEnv) (reader, error) {
	f, err := in.open()
	if err != nil {
		return nil, err
	}
	r := &jsonReader{in: in, file: f, builder: array.NewRecordBuilder(env.mem, env.schema)}
	r.rows.w = newWindow(countingReader{r: f, done: &in.done})
	for i, name := range env.raw {
		c, err := newJSONColumn(name, env.root.fields[name], r.builder.Field(i))
		if err != nil {
			r.builder.Release()
			return nil, errors.Join(&Error{Code: CodeSchemaClash, File: in.name, Err: err}, f.Close())
		}
		r.columns.add(name, c)
	}
	return r, r.rows.w.skipMark()
}

func (r *jsonReader) next(ctx context.Context) (arrow.Record, error) {
	rows, size := 0, 0
	for rows < batchRows && size < batchBytes {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		row, line, err := r.rows.read()
		if err != nil {
			return nil, jsonRowError(ctx, r.in, line, err)
		}
		if len(row) == 0 {
			break
		}
		r.text.s, r.text.i = row, 0
		if err := r.columns.read(&r.text, 0); err != nil {
			return nil, valueError(r.in, line, r.rows.row, err)
		}
		rows++
		size += len(row)
	}
	if rows == 0 {
		return nil, io.EOF
	}
	return r.builder.NewRecord(), nil
}

// valueError names the column if the error knows it.
func valueError(in *input, line, row int64, err error) error {
	e := &Error{Code: CodeBadValue, File: in.name, Line: line, Row: row, Err: err}
	if at := (*columnError)(nil); errors.As(err, &at) {
		e.Column, e.Err = at.path, at.err
	}
	return e
}

func (r *jsonReader) close() error {
	r.builder.Release()
	return r.file.Close()
}
