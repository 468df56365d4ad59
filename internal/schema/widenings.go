package schema

import (
	"fmt"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
)

// decimalPrecisionMax is the most digits of a Delta decimal.
const decimalPrecisionMax = 38

// Refused is one column that a table cannot hold.
type Refused struct {
	Column string
	Type   arrow.DataType
	Remedy string // what to do instead
}

// RefusedError lists every column of an Arrow schema that a table cannot hold.
type RefusedError struct{ Columns []Refused }

// Code is stable, for machines.
func (*RefusedError) Code() string { return "unsupported_type" }

func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Columns))
	for i, c := range e.Columns {
		lines[i] = fmt.Sprintf("column %q has type %s, which a table cannot hold: %s", c.Column, c.Type, c.Remedy)
	}
	return strings.Join(lines, "; ")
}

// FromArrow makes the table schema for records of an Arrow schema. Types that Delta lacks are widened without loss:
//
//	uint8, uint16, uint32         short, integer, long
//	uint64                        decimal(20,0)
//	float16                       float
//	large and view strings        string (likewise binary); fixed-size binary is binary
//	dictionary, run-end encoded   their values' type
//	large, view, fixed-size list  array
//	decimal256 to 38 digits       decimal
//	date64                        date
//	timestamp of any unit         timestamp with a zone, timestamp_ntz without; microseconds
//	extension types               their storage type
//
// Null, time, duration, interval and union types, decimals of more than 38 digits or a scale outside 0 to the precision,
// and structs without fields are refused; the error is a *RefusedError naming all of them.
func FromArrow(in *arrow.Schema) (*Schema, error) {
	var refused []Refused
	fields := fromFields(in.Fields(), "", &refused)
	if len(refused) > 0 {
		return nil, &RefusedError{Columns: refused}
	}
	return New(fields...), nil
}

func fromFields(in []arrow.Field, path string, refused *[]Refused) []Field {
	out := make([]Field, len(in))
	for i, f := range in {
		out[i] = Field{Name: f.Name, Type: fromType(f.Type, path+f.Name, refused), Nullable: f.Nullable}
	}
	return out
}

// fromPrimitives are the types that need no parameters.
var fromPrimitives = map[arrow.Type]Kind{
	arrow.BOOL: Boolean, arrow.INT8: Byte, arrow.INT16: Short, arrow.INT32: Integer, arrow.INT64: Long,
	arrow.UINT8: Short, arrow.UINT16: Integer, arrow.UINT32: Long,
	arrow.FLOAT16: Float, arrow.FLOAT32: Float, arrow.FLOAT64: Double,
	arrow.STRING: String, arrow.LARGE_STRING: String, arrow.STRING_VIEW: String,
	arrow.BINARY: Binary, arrow.LARGE_BINARY: Binary, arrow.BINARY_VIEW: Binary, arrow.FIXED_SIZE_BINARY: Binary,
	arrow.DATE32: Date, arrow.DATE64: Date,
}

func fromType(dt arrow.DataType, path string, refused *[]Refused) Type {
	if kind, ok := fromPrimitives[dt.ID()]; ok {
		return Type{Kind: kind}
	}
	switch dt := dt.(type) {
	case *arrow.Uint64Type:
		return Type{Kind: Decimal, Precision: 20}
	case *arrow.TimestampType:
		if dt.TimeZone == "" {
			return Type{Kind: TimestampNTZ}
		}
		return Type{Kind: Timestamp}
	case arrow.DecimalType:
		if p, s := dt.GetPrecision(), dt.GetScale(); p >= 1 && p <= decimalPrecisionMax && s >= 0 && s <= p {
			return Type{Kind: Decimal, Precision: p, Scale: s}
		}
	case *arrow.DictionaryType:
		return fromType(dt.ValueType, path, refused)
	case *arrow.RunEndEncodedType:
		return fromType(dt.Encoded(), path, refused)
	case arrow.ExtensionType:
		return fromType(dt.StorageType(), path, refused)
	case *arrow.StructType:
		if dt.NumFields() > 0 {
			return Type{Kind: Struct, Fields: fromFields(dt.Fields(), path+".", refused)}
		}
	case *arrow.MapType:
		key := fromType(dt.KeyType(), path+".key", refused)
		value := fromType(dt.ItemType(), path+".value", refused)
		return Type{Kind: Map, Key: &key, Elem: &value, ElemNullable: dt.ItemField().Nullable}
	case *arrow.ListType, *arrow.LargeListType, *arrow.FixedSizeListType, *arrow.ListViewType, *arrow.LargeListViewType:
		field := dt.(arrow.ListLikeType).ElemField()
		elem := fromType(field.Type, path+"."+listElement, refused)
		return Type{Kind: Array, Elem: &elem, ElemNullable: field.Nullable}
	}
	*refused = append(*refused, Refused{Column: path, Type: dt, Remedy: remedy(dt)})
	return Type{}
}

func remedy(dt arrow.DataType) string {
	switch dt.ID() {
	case arrow.NULL:
		return "give it the type its values will have, or leave it out"
	case arrow.TIME32, arrow.TIME64, arrow.DURATION:
		return "cast it to int64, in the unit you want"
	case arrow.INTERVAL_MONTHS, arrow.INTERVAL_DAY_TIME, arrow.INTERVAL_MONTH_DAY_NANO:
		return "split it into integer columns"
	case arrow.SPARSE_UNION, arrow.DENSE_UNION:
		return "make it a struct with one nullable field per alternative"
	case arrow.STRUCT:
		return "a struct needs at least one field"
	case arrow.DECIMAL128, arrow.DECIMAL256:
		return fmt.Sprintf("decimals have 1 to %d digits and a scale of 0 to that; cast it", decimalPrecisionMax)
	}
	return "cast it to a type that Delta Lake has"
}

// widens says whether every value of one type, neither of them nested, is a value of another, by a rule of the Delta
// protocol's type widening.
func widens(from, to Type) bool {
	integers := map[Kind]int{Byte: 1, Short: 2, Integer: 3, Long: 4}
	rank, isInteger := integers[from.Kind]
	switch to.Kind {
	case Short, Integer, Long:
		return isInteger && rank < integers[to.Kind]
	case Double:
		return from.Kind == Float || isInteger && rank <= integers[Integer]
	case TimestampNTZ:
		return from.Kind == Date
	case Decimal:
		switch {
		case from.Kind == Decimal:
			return (from.Precision != to.Precision || from.Scale != to.Scale) && from.Scale <= to.Scale &&
				to.Precision-from.Precision >= to.Scale-from.Scale
		case from.Kind == Long:
			return to.Precision-to.Scale >= 20
		case isInteger:
			return to.Precision-to.Scale >= 10
		}
	}
	return false
}
