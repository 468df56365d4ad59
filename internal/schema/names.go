package schema

import (
	"fmt"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
)

// forbidden are the characters that Parquet writers of other engines refuse in column names.
const forbidden = " ,;{}()\n\t="

// NameError lists the column names that a table cannot have, and why.
type NameError struct{ Problems []string }

// Code is stable, for machines.
func (*NameError) Code() string { return "column_name" }

func (e *NameError) Error() string {
	return strings.Join(e.Problems, "; ") + "; rename them, or use --sanitize-names"
}

// CheckNames refuses names that other engines cannot read: empty ones, ones with any of " ,;{}()=", a newline or a tab,
// and, as engines differ in whether case matters, ones that differ only by case. Nested fields are checked too. The
// error is a *NameError listing all of them.
func CheckNames(s *arrow.Schema) error {
	var problems []string
	checkNames(s.Fields(), "", &problems)
	if len(problems) > 0 {
		return &NameError{Problems: problems}
	}
	return nil
}

func checkNames(fields []arrow.Field, path string, problems *[]string) {
	seen := map[string]string{}
	for _, f := range fields {
		fold := strings.ToLower(f.Name)
		if f.Name == "" {
			*problems = append(*problems, fmt.Sprintf("a column in %q has no name", strings.TrimSuffix(path, ".")))
		} else if at := strings.IndexAny(f.Name, forbidden); at >= 0 {
			*problems = append(*problems, fmt.Sprintf("column name %q contains %q", path+f.Name, f.Name[at]))
		} else if other, ok := seen[fold]; ok {
			*problems = append(*problems, fmt.Sprintf("column names %q and %q are the same but for case", path+other, path+f.Name))
		}
		seen[fold] = f.Name
		for _, below := range nestedFields(f.Type) {
			checkNames(below, path+f.Name+".", problems)
		}
	}
}

// nestedFields are the sets of named fields below a type: those of a struct, or of structs in lists or maps.
func nestedFields(dt arrow.DataType) [][]arrow.Field {
	switch dt := dt.(type) {
	case *arrow.StructType:
		return [][]arrow.Field{dt.Fields()}
	case *arrow.MapType:
		return append(nestedFields(dt.KeyType()), nestedFields(dt.ItemType())...)
	case arrow.ListLikeType:
		return nestedFields(dt.Elem())
	}
	return nil
}

// SanitizeNames gives every column and nested field a name that [CheckNames] accepts: each forbidden character becomes
// an underscore, an empty name "column", and a name already taken gets the first free suffix _2, _3 and so on. The same
// schema always gives the same names, and acceptable names are kept.
func SanitizeNames(s *arrow.Schema) *arrow.Schema {
	metadata := s.Metadata()
	return arrow.NewSchema(sanitizeFields(s.Fields()), &metadata)
}

func sanitizeFields(fields []arrow.Field) []arrow.Field {
	taken := map[string]bool{}
	out := make([]arrow.Field, len(fields))
	for i, f := range fields { // names that can stay are taken first
		if name := sanitizeName(f.Name); name == f.Name && !taken[strings.ToLower(name)] {
			taken[strings.ToLower(name)] = true
			out[i].Name = name
		}
	}
	for i, f := range fields {
		name := out[i].Name
		if name == "" {
			name = sanitizeName(f.Name)
			for n := 2; taken[strings.ToLower(name)]; n++ {
				name = fmt.Sprintf("%s_%d", sanitizeName(f.Name), n)
			}
			taken[strings.ToLower(name)] = true
		}
		out[i] = arrow.Field{Name: name, Type: sanitizeType(f.Type), Nullable: f.Nullable, Metadata: f.Metadata}
	}
	return out
}

func sanitizeName(name string) string {
	if name == "" {
		return "column"
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(forbidden, r) {
			return '_'
		}
		return r
	}, name)
}

func sanitizeType(dt arrow.DataType) arrow.DataType {
	if len(nestedFields(dt)) == 0 {
		return dt
	}
	switch dt := dt.(type) {
	case *arrow.StructType:
		return arrow.StructOf(sanitizeFields(dt.Fields())...)
	case *arrow.ListType:
		return arrow.ListOfField(sanitizeElem(dt.ElemField()))
	case *arrow.LargeListType:
		return arrow.LargeListOfField(sanitizeElem(dt.ElemField()))
	case *arrow.FixedSizeListType:
		return arrow.FixedSizeListOfField(dt.Len(), sanitizeElem(dt.ElemField()))
	case *arrow.MapType:
		m := arrow.MapOf(sanitizeType(dt.KeyType()), sanitizeType(dt.ItemType()))
		m.SetItemNullable(dt.ItemField().Nullable)
		return m
	}
	return dt
}

func sanitizeElem(f arrow.Field) arrow.Field {
	f.Type = sanitizeType(f.Type)
	return f
}
