package ingest

import (
	"errors"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/schema"
)

// tableNames gives the columns the names they have in the table: those of the files, if a table can have them, or
// cleaned ones if the user asked for that.
//
// Beside what Delta and Parquet writers refuse (see schema.CheckNames), a dollar sign is refused: Trino keeps such names
// for hidden columns ("$path"), and a shell replaces them in a --columns list.
func tableNames(s *arrow.Schema, file string, sanitize bool) (*arrow.Schema, error) {
	if sanitize {
		// A space is a character that SanitizeNames replaces, and it resolves the clashes that this makes.
		return schema.SanitizeNames(replaceDollars(s)), nil
	}
	var problems []string
	if bad := (*schema.NameError)(nil); errors.As(schema.CheckNames(s), &bad) {
		problems = bad.Problems
	}
	for _, f := range s.Fields() {
		dollars(f, "", &problems)
	}
	if len(problems) > 0 {
		return nil, &Error{Code: CodeBadNames, File: file, Err: &schema.NameError{Problems: problems}}
	}
	return s, nil
}

func dollars(f arrow.Field, path string, problems *[]string) {
	path += f.Name
	if strings.Contains(f.Name, "$") {
		*problems = append(*problems, "column name "+quote([]byte(path))+` contains '$'`)
	}
	switch t := f.Type.(type) {
	case *arrow.StructType:
		for _, child := range t.Fields() {
			dollars(child, path+".", problems)
		}
	case *arrow.ListType:
		dollars(arrow.Field{Type: t.Elem()}, path, problems)
	}
}

func replaceDollars(s *arrow.Schema) *arrow.Schema {
	return arrow.NewSchema(spaces(s.Fields()), nil)
}

func spaces(fields []arrow.Field) []arrow.Field {
	out := make([]arrow.Field, len(fields))
	for i, f := range fields {
		f.Name = strings.ReplaceAll(f.Name, "$", " ")
		f.Type = spacesIn(f.Type)
		out[i] = f
	}
	return out
}

func spacesIn(dt arrow.DataType) arrow.DataType {
	switch t := dt.(type) {
	case *arrow.StructType:
		return arrow.StructOf(spaces(t.Fields())...)
	case *arrow.ListType:
		elem := t.ElemField()
		elem.Type = spacesIn(elem.Type)
		return arrow.ListOfField(elem)
	}
	return dt
}
