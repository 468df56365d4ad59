package columnstest

import (
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// Rows is each row of a record as text that tells values apart, −0.0 from 0.0 too, but no NaN from another: the oracle of
// the property tests, cell by cell.
func Rows(rec arrow.Record) []string {
	rows := make([]string, rec.NumRows())
	for i := range rows {
		cells := make([]string, rec.NumCols())
		for j, column := range rec.Columns() {
			cells[j] = Cell(column, i)
		}
		rows[i] = strings.Join(cells, "|")
	}
	return rows
}

// Cell is one value as text.
func Cell(arr arrow.Array, i int) string {
	if arr.IsNull(i) {
		return "null"
	}
	switch arr := arr.(type) {
	case *array.Float32:
		return float(float64(arr.Value(i)))
	case *array.Float64:
		return float(arr.Value(i))
	case *array.String:
		return fmt.Sprintf("%q", arr.Value(i))
	case *array.Binary:
		return fmt.Sprintf("%x", arr.Value(i))
	case *array.Date32:
		return fmt.Sprint(int32(arr.Value(i)))
	case *array.Timestamp:
		return fmt.Sprint(int64(arr.Value(i)))
	case *array.Decimal128:
		return arr.Value(i).BigInt().String()
	case *array.Struct:
		cells := make([]string, arr.NumField())
		for j := range cells {
			cells[j] = Cell(arr.Field(j), i)
		}
		return "{" + strings.Join(cells, ",") + "}"
	case array.ListLike:
		start, end := arr.ValueOffsets(i)
		var cells []string
		for ; start < end; start++ {
			cells = append(cells, Cell(arr.ListValues(), int(start)))
		}
		return "[" + strings.Join(cells, ",") + "]"
	}
	return arr.ValueStr(i)
}

func float(v float64) string {
	if math.IsNaN(v) {
		return "NaN"
	}
	return fmt.Sprintf("%v/%x", v, math.Float64bits(v))
}
