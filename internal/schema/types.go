package schema

import (
	"fmt"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
)

// Kind is the kind of a Delta type. Its text is the name the protocol uses.
type Kind string

// The kinds of type a Tidemark table can hold.
const (
	Boolean      Kind = "boolean"
	Byte         Kind = "byte"    // 8 bits
	Short        Kind = "short"   // 16 bits
	Integer      Kind = "integer" // 32 bits
	Long         Kind = "long"    // 64 bits
	Float        Kind = "float"   // 32 bits
	Double       Kind = "double"  // 64 bits
	String       Kind = "string"
	Binary       Kind = "binary"
	Date         Kind = "date"
	Timestamp    Kind = "timestamp"     // an instant, microseconds
	TimestampNTZ Kind = "timestamp_ntz" // a wall clock without zone, microseconds
	Decimal      Kind = "decimal"
	Struct       Kind = "struct"
	Array        Kind = "array"
	Map          Kind = "map"
)

// Type is a Delta type.
type Type struct {
	Kind             Kind
	Precision, Scale int32   // of a decimal
	Fields           []Field // of a struct
	Key              *Type   // of a map
	Elem             *Type   // of an array: its elements; of a map: its values
	ElemNullable     bool    // of an array or a map
}

// Field is a column, or a field of a struct.
type Field struct {
	Name     string
	Type     Type
	Nullable bool
	Metadata Metadata
}

// Equal says whether two types hold the same values, leaving nullability and metadata aside.
func (t Type) Equal(u Type) bool {
	if t.Kind != u.Kind || t.Precision != u.Precision || t.Scale != u.Scale || len(t.Fields) != len(u.Fields) {
		return false
	}
	for i := range t.Fields {
		if t.Fields[i].Name != u.Fields[i].Name || !t.Fields[i].Type.Equal(u.Fields[i].Type) {
			return false
		}
	}
	return equalTypes(t.Key, u.Key) && equalTypes(t.Elem, u.Elem)
}

func equalTypes(t, u *Type) bool {
	if t == nil || u == nil {
		return t == u
	}
	return t.Equal(*u)
}

// String is the type as a person writes it, as in struct<a: long, b: array<string>>.
func (t Type) String() string {
	switch t.Kind {
	case Decimal:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case Array:
		return fmt.Sprintf("array<%s>", t.Elem)
	case Map:
		return fmt.Sprintf("map<%s, %s>", t.Key, t.Elem)
	case Struct:
		fields := make([]string, len(t.Fields))
		for i, f := range t.Fields {
			fields[i] = f.String()
		}
		return "struct<" + strings.Join(fields, ", ") + ">"
	}
	return string(t.Kind)
}

// String is the field as a person writes it, as in "id: long not null".
func (f Field) String() string {
	if f.Nullable {
		return f.Name + ": " + f.Type.String()
	}
	return f.Name + ": " + f.Type.String() + " not null"
}

// arrowPrimitives are the Arrow types our files hold for the kinds that need no parameters.
var arrowPrimitives = map[Kind]arrow.DataType{
	Boolean:      arrow.FixedWidthTypes.Boolean,
	Byte:         arrow.PrimitiveTypes.Int8,
	Short:        arrow.PrimitiveTypes.Int16,
	Integer:      arrow.PrimitiveTypes.Int32,
	Long:         arrow.PrimitiveTypes.Int64,
	Float:        arrow.PrimitiveTypes.Float32,
	Double:       arrow.PrimitiveTypes.Float64,
	String:       arrow.BinaryTypes.String,
	Binary:       arrow.BinaryTypes.Binary,
	Date:         arrow.FixedWidthTypes.Date32,
	Timestamp:    &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"},
	TimestampNTZ: &arrow.TimestampType{Unit: arrow.Microsecond},
}

// listElement is the name of the elements of a list, as in the Parquet files we write.
const listElement = "element"

func (t Type) arrow() arrow.DataType {
	switch t.Kind {
	case Decimal:
		return &arrow.Decimal128Type{Precision: t.Precision, Scale: t.Scale}
	case Struct:
		return arrow.StructOf(arrowFields(t.Fields)...)
	case Array:
		return arrow.ListOfField(arrow.Field{Name: listElement, Type: t.Elem.arrow(), Nullable: t.ElemNullable})
	case Map:
		m := arrow.MapOf(t.Key.arrow(), t.Elem.arrow())
		m.SetItemNullable(t.ElemNullable)
		return m
	}
	return arrowPrimitives[t.Kind]
}

func arrowFields(fields []Field) []arrow.Field {
	out := make([]arrow.Field, len(fields))
	for i, f := range fields {
		out[i] = arrow.Field{Name: f.Name, Type: f.Type.arrow(), Nullable: f.Nullable}
	}
	return out
}
