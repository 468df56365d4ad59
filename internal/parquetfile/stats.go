package parquetfile

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"tidemark/internal/columnchunk"
)

// How many leaf columns, in schema order, get statistics (Delta's delta.dataSkippingNumIndexedCols).
const (
	indexedDefault = 32 // the protocol's default
	// AllColumns and NoColumns are the extremes.
	AllColumns = -1
	NoColumns  = -2
)

// Stats are the statistics of a file as Delta's add action carries them: the number of rows, and of the first leaf
// columns the smallest and largest value and the number of nulls. A bound that could exclude a row is left out.
type Stats struct {
	NumRecords int64
	columns    []*columnStats
}

// columnStats are the statistics of one column. A struct has children and no nulls or bounds of its own; its fields count
// as null where it is.
type columnStats struct {
	name     string
	children []*columnStats
	field    int // position among the fields of the parent
	isStruct bool
	nulls    int64
	bounds   bounds // nil for types without an order that all readers share
	// chunked says that the bounds of rows come from the chunks that hold them, which know theirs.
	chunked bool
	// Of row groups that were copied encoded, what their chunks do not say is not known.
	unbounded, uncounted bool
}

// bounds gathers the smallest and largest value of a column.
type bounds interface {
	// add takes in the values of an array for which valid is true; a nil valid is true for all.
	add(arr arrow.Array, valid func(i int) bool)
	// min and max are JSON, empty if there is none to be had.
	min() string
	max() string
}

func newStats(schema *arrow.Schema, indexed int) *Stats {
	switch {
	case indexed == 0:
		indexed = indexedDefault
	case indexed == AllColumns:
		indexed = int(^uint(0) >> 1)
	case indexed < 0:
		indexed = 0
	}
	return &Stats{columns: statsOf(schema.Fields(), &indexed)}
}

// statsOf makes statistics for fields while left, the number of leaf columns that still get some, lasts.
func statsOf(fields []arrow.Field, left *int) []*columnStats {
	var out []*columnStats
	for i, f := range fields {
		if *left <= 0 {
			break
		}
		c := &columnStats{name: f.Name, field: i}
		if dt, ok := f.Type.(*arrow.StructType); ok {
			c.isStruct = true
			c.children = statsOf(dt.Fields(), left)
		} else {
			*left--
			c.bounds = boundsOf(f.Type)
		}
		out = append(out, c)
	}
	return out
}

func (s *Stats) add(rec arrow.Record) {
	s.NumRecords += rec.NumRows()
	for _, c := range s.columns {
		c.add(rec.Column(c.field), nil)
	}
}

// add takes in an array; parent says which rows the structs above are not null in, nil if all.
func (c *columnStats) add(arr arrow.Array, parent func(i int) bool) {
	valid := parent
	if arr.NullN() > 0 {
		valid = arr.IsValid
		if parent != nil {
			valid = func(i int) bool { return parent(i) && arr.IsValid(i) }
		}
	}
	if c.isStruct {
		for _, child := range c.children {
			child.add(arr.(*array.Struct).Field(child.field), valid)
		}
		return
	}
	switch {
	case parent == nil:
		c.nulls += int64(arr.NullN())
	default:
		for i := range arr.Len() {
			if !valid(i) {
				c.nulls++
			}
		}
	}
	if c.bounds != nil && !c.chunked {
		c.bounds.add(arr, valid)
	}
}

// leaveToChunks leaves bounds to chunks where these gather them anyhow.
func (s *Stats) leaveToChunks(columns *arrow.Schema) {
	for _, c := range s.columns {
		c.chunked = columnchunk.Bounds(columns.Field(c.field).Type)
	}
}

// addChunks takes in the bounds of the rows of a row group of flat columns.
func (s *Stats) addChunks(columns *arrow.Schema, chunks []columnchunk.Chunk) error {
	for _, c := range s.columns {
		chunk := &chunks[c.field]
		if c.bounds == nil || !c.chunked || chunk.Low == nil {
			continue
		}
		if _, err := c.addBounds(columns.Field(c.field).Type, chunk.Low, chunk.High); err != nil {
			return fmt.Errorf("bounds of column %q: %w", c.name, err)
		}
	}
	return nil
}

// addBounds takes in the bounds of a chunk, as statistics have them; known is false for types that have none there.
func (c *columnStats) addBounds(dt arrow.DataType, low, high []byte) (known bool, err error) {
	both, err := boundsArray(dt, low, high)
	if both == nil || err != nil {
		return false, err
	}
	defer both.Release()
	c.bounds.add(both, nil)
	return true, nil
}

// JSON is the stats string of Delta's add action.
func (s *Stats) JSON() string {
	var b strings.Builder
	b.WriteString(`{"numRecords":`)
	b.WriteString(strconv.FormatInt(s.NumRecords, 10))
	sections := []struct {
		name  string
		value func(c *columnStats) string
	}{
		{"minValues", func(c *columnStats) string {
			if c.bounds == nil || c.unbounded {
				return ""
			}
			return c.bounds.min()
		}},
		{"maxValues", func(c *columnStats) string {
			if c.bounds == nil || c.unbounded {
				return ""
			}
			return c.bounds.max()
		}},
		{"nullCount", func(c *columnStats) string {
			if c.uncounted {
				return ""
			}
			return strconv.FormatInt(c.nulls, 10)
		}},
	}
	for _, section := range sections {
		b.WriteString(`,"` + section.name + `":`)
		object := jsonObject(s.columns, section.value)
		if object == "" {
			object = "{}"
		}
		b.WriteString(object)
	}
	b.WriteString("}")
	return b.String()
}

// jsonObject is the object of one value per column, nested as the columns are; empty if no column has one.
func jsonObject(columns []*columnStats, value func(c *columnStats) string) string {
	var b strings.Builder
	for _, c := range columns {
		v := ""
		if c.isStruct {
			v = jsonObject(c.children, value)
		} else {
			v = value(c)
		}
		if v == "" {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("{")
		} else {
			b.WriteString(",")
		}
		b.WriteString(jsonString(c.name) + ":" + v)
	}
	if b.Len() == 0 {
		return ""
	}
	return b.String() + "}"
}

func jsonString(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic("parquetfile: encoding a string: " + err.Error()) // strings always encode
	}
	return strings.TrimSuffix(b.String(), "\n")
}
