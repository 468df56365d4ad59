package schema

import (
	"fmt"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/zeebo/xxh3"
)

// Schema is the schema of a table, Delta's StructType. It is immutable.
type Schema struct {
	fields []Field
}

// New makes a schema of columns. It does not check their names; see [CheckNames].
func New(fields ...Field) *Schema { return &Schema{fields: fields} }

// Fields are the columns, in order. The caller must not change them.
func (s *Schema) Fields() []Field { return s.fields }

// Names are the columns' names, in order.
func (s *Schema) Names() []string {
	names := make([]string, len(s.fields))
	for i, f := range s.fields {
		names[i] = f.Name
	}
	return names
}

// Field finds a column by its exact name.
func (s *Schema) Field(name string) (Field, bool) {
	if i := fieldIndex(s.fields, name); i >= 0 {
		return s.fields[i], true
	}
	return Field{}, false
}

// Arrow is the schema of the Parquet files of the table: what [Project] brings records into.
func (s *Schema) Arrow() *arrow.Schema { return arrow.NewSchema(arrowFields(s.fields), nil) }

// Equal says whether two schemas have the same columns in the same order, with types and nullability, leaving metadata
// aside.
func (s *Schema) Equal(other *Schema) bool {
	return Fingerprint(s.Arrow()) == Fingerprint(other.Arrow())
}

// HasTimestampNTZ says whether any column, however deep, is a timestamp without zone, so that the table needs the
// timestampNtz feature.
func (s *Schema) HasTimestampNTZ() bool {
	return anyField(s.fields, func(_ Field, t Type) bool { return t.Kind == TimestampNTZ })
}

// HasTypeChanges says whether any column has been widened since it was created, so that the table needs the
// typeWidening feature.
func (s *Schema) HasTypeChanges() bool {
	return anyField(s.fields, func(f Field, _ Type) bool { return f.Metadata.has(typeChangesKey) })
}

// anyField says whether the test holds for any type in the fields, with the field it belongs to.
func anyField(fields []Field, test func(Field, Type) bool) bool {
	var within func(f Field, t Type) bool
	within = func(f Field, t Type) bool {
		return test(f, t) || t.Key != nil && within(f, *t.Key) || t.Elem != nil && within(f, *t.Elem) ||
			anyField(t.Fields, test)
	}
	for _, f := range fields {
		if within(f, f.Type) {
			return true
		}
	}
	return false
}

func fieldIndex(fields []Field, name string) int {
	for i := range fields {
		if fields[i].Name == name {
			return i
		}
	}
	return -1
}

// describe is the schema as a person reads it, one line.
func (s *Schema) describe() string {
	columns := make([]string, len(s.fields))
	for i, f := range s.fields {
		columns[i] = f.String()
	}
	return "(" + strings.Join(columns, ", ") + ")"
}

// Fingerprint names the logical content of an Arrow schema: names, order, types and nullability, at every depth, without
// metadata. Equal fingerprints mean that rows can move between files without a projection. It is 16 hexadecimal digits.
func Fingerprint(s *arrow.Schema) string {
	var b strings.Builder
	writeFields(&b, s.Fields())
	return fmt.Sprintf("%016x", xxh3.HashString(b.String()))
}

func writeFields(b *strings.Builder, fields []arrow.Field) {
	for _, f := range fields {
		fmt.Fprintf(b, "%q %t ", f.Name, f.Nullable)
		writeType(b, f.Type)
	}
}

func writeType(b *strings.Builder, dt arrow.DataType) {
	switch dt := dt.(type) {
	case *arrow.StructType:
		b.WriteString("struct{")
		writeFields(b, dt.Fields())
		b.WriteString("}")
	case *arrow.MapType:
		fmt.Fprintf(b, "map %t{", dt.ItemField().Nullable)
		writeType(b, dt.KeyType())
		writeType(b, dt.ItemType())
		b.WriteString("}")
	case *arrow.ListType:
		fmt.Fprintf(b, "list %t{", dt.ElemField().Nullable)
		writeType(b, dt.Elem())
		b.WriteString("}")
	default:
		b.WriteString(dt.String())
	}
	b.WriteString(";")
}
