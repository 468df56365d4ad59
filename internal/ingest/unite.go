package ingest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
)

// column is one column of the union of all inputs.
type column struct {
	name string
	typ  arrow.DataType // declared by a typed input; nil if only text has the column
	from string         // the input that declared typ, or else the first that has the column
}

// union collects the columns of the inputs in order of appearance.
type union struct {
	columns []column
	place   map[string]int
}

func (u *union) add(name, from string, typ arrow.DataType) *column {
	if i, ok := u.place[name]; ok {
		return &u.columns[i]
	}
	u.place[name] = len(u.columns)
	u.columns = append(u.columns, column{name: name, typ: typ, from: from})
	return &u.columns[len(u.columns)-1]
}

// unite settles the schema of all inputs:
//
//  1. Columns are matched by name. Every CSV, Parquet and Arrow input has the same ones, in any order; the objects of a
//     JSON input may leave some out.
//  2. Parquet and Arrow inputs declare types, and must agree on them.
//  3. Text is typed over all text inputs together, see shape and node, where neither a declared type nor the table says
//     otherwise.
//  4. Every column may hold nulls: one file that happens to have none is no promise for the next.
func (e *readerEnv) unite(ctx context.Context, inputs []*input, opts Options) error {
	u := &union{place: map[string]int{}}
	e.root = &node{kind: kindObject}
	has := make([][]string, len(inputs)) // columns of inputs that must have all of them
	for i, in := range inputs {
		var err error
		switch in.format {
		case formatJSON:
			err = scanJSON(ctx, in, e.root)
		case formatCSV:
			has[i], err = scanCSV(ctx, in, e.root)
		default:
			has[i], err = u.declare(in, e)
		}
		if err != nil {
			return err
		}
		for _, name := range e.root.order {
			u.add(name, in.name, nil)
		}
	}
	for i, names := range has {
		if names == nil {
			continue
		}
		if err := u.complete(inputs[i], names); err != nil {
			return err
		}
	}
	if len(u.columns) == 0 {
		return &Error{Code: CodeSchemaClash, File: inputs[0].name, Reason: "holds no rows, so no columns either"}
	}
	return e.settle(u, inputs[0].name, opts)
}

// declare adds the columns of a typed input.
func (u *union) declare(in *input, e *readerEnv) ([]string, error) {
	r, s, err := openTyped(in, e.mem)
	if err != nil {
		return nil, err
	}
	names := []string{}
	seen := map[string]bool{}
	for _, f := range s.Fields() {
		if seen[f.Name] {
			err = &Error{Code: CodeSchemaClash, File: in.name, Column: f.Name, Reason: "the name is there twice"}
			break
		}
		seen[f.Name] = true
		names = append(names, f.Name)
		c := u.add(f.Name, in.name, f.Type)
		if c.typ == nil {
			c.typ, c.from = f.Type, in.name
		}
		if !arrow.TypeEqual(c.typ, f.Type) {
			err = &Error{Code: CodeSchemaClash, File: in.name, Column: f.Name,
				Reason: fmt.Sprintf("is %s here, but %s in %s; ingest the files one by one, or make their types alike", f.Type, c.typ, c.from)}
			break
		}
	}
	return names, errors.Join(err, r.close())
}

// complete checks that an input has every column.
func (u *union) complete(in *input, names []string) error {
	have := map[string]bool{}
	for _, name := range names {
		have[name] = true
	}
	for _, c := range u.columns {
		if !have[c.name] {
			return &Error{Code: CodeSchemaClash, File: in.name, Column: c.name,
				Reason: fmt.Sprintf("is missing here, but %s has it (this file has %s); files ingested together need the same columns",
					c.from, strings.Join(names, ", "))}
		}
	}
	return nil
}

// settle gives the columns their final names and types.
func (e *readerEnv) settle(u *union, first string, opts Options) error {
	fields := make([]arrow.Field, len(u.columns))
	for i, c := range u.columns {
		if c.typ == nil {
			c.typ = e.root.fields[c.name].dataType()
		}
		fields[i] = arrow.Field{Name: c.name, Type: c.typ, Nullable: true}
		e.raw = append(e.raw, c.name)
	}
	named, err := tableNames(arrow.NewSchema(fields, nil), first, opts.Sanitize)
	if err != nil {
		return err
	}
	for i, f := range named.Fields() {
		if opts.Table != nil && u.columns[i].typ == nil {
			if want, ok := opts.Table.FieldsByName(f.Name); ok {
				f.Type = refine(f.Type, want[0].Type)
			}
		}
		fields[i] = f
	}
	e.schema = arrow.NewSchema(fields, nil)
	return nil
}

// place maps the source's columns to those of a typed input.
func (e *readerEnv) place(in *input, declared *arrow.Schema) ([]int, error) {
	fit := make([]int, len(e.raw))
	for i, name := range e.raw {
		at := declared.FieldIndices(name)
		if len(at) != 1 {
			return nil, &Error{Code: CodeSchemaClash, File: in.name, Column: name,
				Reason: "was there when the file was read first; did the file change?"}
		}
		fit[i] = at[0]
	}
	return fit, nil
}
