package partition

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/zeebo/xxh3"

	"tidemark/internal/schema"
)

// kinds are the types that may partition a table. Of the others, floats do not compare well as text, bytes have no text,
// and nested types have no single value.
var kinds = []schema.Kind{
	schema.String, schema.Boolean, schema.Byte, schema.Short, schema.Integer, schema.Long, schema.Decimal, schema.Date,
	schema.Timestamp, schema.TimestampNTZ,
}

// Check says why columns cannot partition a table with a schema; nil if they can.
func Check(s *schema.Schema, columns []string) error {
	for i, name := range columns {
		f, ok := s.Field(name)
		switch {
		case !ok:
			return fmt.Errorf("there is no column %q to partition by; the columns are %s", name, strings.Join(s.Names(), ", "))
		case slices.Contains(columns[:i], name):
			return fmt.Errorf("column %s partitions it twice", name)
		case !slices.Contains(kinds, f.Type.Kind):
			return fmt.Errorf("the partition column %s is a %s; a table can be partitioned by strings, whole numbers, decimals, booleans, dates and timestamps", name, f.Type)
		}
	}
	if len(columns) > 0 && len(columns) == len(s.Fields()) {
		return fmt.Errorf("every column partitions it, which leaves none for its files")
	}
	return nil
}

// Columns are the partition columns of a table beside its others.
type Columns struct {
	names []string
	at    []int // of each, in the table's columns
	rest  []int // the others
	all   *arrow.Schema
	data  *arrow.Schema
}

// Of divides a schema. Names that it does not have are left out: whoever reads some columns needs only those.
func Of(all *arrow.Schema, names []string) *Columns {
	c := &Columns{all: all}
	for _, name := range names {
		if at := all.FieldIndices(name); len(at) > 0 {
			c.names, c.at = append(c.names, name), append(c.at, at[0])
		}
	}
	var fields []arrow.Field
	for i, f := range all.Fields() {
		if !slices.Contains(c.at, i) {
			c.rest, fields = append(c.rest, i), append(fields, f)
		}
	}
	c.data = arrow.NewSchema(fields, nil)
	return c
}

// Data are the columns that files hold.
func (c *Columns) Data() *arrow.Schema { return c.data }

// Strip is a record of all columns without the partition columns. It shares the arrays.
func (c *Columns) Strip(rec arrow.Record) arrow.Record {
	arrays := make([]arrow.Array, len(c.rest))
	for i, at := range c.rest {
		arrays[i] = rec.Column(at)
	}
	return array.NewRecord(c.data, arrays, rec.NumRows())
}

// Fill is a record of a file's columns together with the partition columns, by the values that the log states.
func (c *Columns) Fill(mem memory.Allocator, rec arrow.Record, values map[string]string) (arrow.Record, error) {
	arrays := make([]arrow.Array, c.all.NumFields())
	for i, at := range c.rest {
		arrays[at] = rec.Column(i)
	}
	for i, at := range c.at {
		filled, err := Array(mem, c.all.Field(at).Type, values[c.names[i]], int(rec.NumRows()))
		if err != nil {
			return nil, fmt.Errorf("partition column %q: %w", c.names[i], err)
		}
		defer filled.Release()
		arrays[at] = filled
	}
	return array.NewRecord(c.all, arrays, rec.NumRows()), nil
}

// AppendKey appends the partition of a row to b: a text that two rows share exactly when they are in one partition. The
// error is a *schema.ValueError.
func (c *Columns) AppendKey(b []byte, rec arrow.Record, row int) ([]byte, error) {
	for i, at := range c.at {
		begin := len(b)
		var err error
		if b, err = appendText(b, rec.Column(at), row); err != nil {
			return b, &schema.ValueError{Column: c.names[i], Row: row, Reason: err.Error()}
		}
		if len(b) == begin && !c.all.Field(at).Nullable {
			return b, &schema.ValueError{Column: c.names[i], Row: row, Reason: "an empty string in a partition column is null, which this column may not be"}
		}
		if slices.Contains(b[begin:], 0) {
			return b, &schema.ValueError{Column: c.names[i], Row: row, Reason: "a partition value cannot contain the character U+0000"}
		}
		b = append(b, 0)
	}
	return b, nil
}

// Values are the values in a key, by column.
func (c *Columns) Values(key string) map[string]string {
	values := make(map[string]string, len(c.names))
	for _, name := range c.names {
		value, rest, _ := strings.Cut(key, "\x00")
		values[name], key = value, rest
	}
	return values
}

const (
	// nullFolder is what Hive, and with it every engine, calls the folder of null.
	nullFolder = "__HIVE_DEFAULT_PARTITION__"
	// folderMax is the longest name of a folder: file systems take 255 bytes.
	folderMax = 200
)

// Folder is where the files of a partition go, with a slash at its end: "day=2024-01-31/city=K%C3%B6ln/". Nobody reads a
// value out of it; the log states them. Characters that a file system or a URI might treat in a way of its own are
// percent-encoded, and a name that is too long ends with a hash instead.
func (c *Columns) Folder(values map[string]string) string {
	var b strings.Builder
	for _, name := range c.names {
		value := nullFolder
		if v := values[name]; v != "" {
			value = escape(v)
		}
		folder := escape(name) + "=" + value
		if len(folder) > folderMax {
			folder = fmt.Sprintf("%s~%016x", folder[:folderMax-17], xxh3.HashString(name+"="+values[name]))
		}
		b.WriteString(folder + "/")
	}
	return b.String()
}

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Layouts of times. Years have four digits in all of them.
const (
	dateLayout = time.DateOnly
	// ntzLayout has no zone; instantLayout is the protocol's form for an instant that does not depend on the reader's
	// zone.
	ntzLayout     = "2006-01-02 15:04:05.000000"
	instantLayout = "2006-01-02T15:04:05.000000Z"
)

// appendText appends a value as the log states it; nothing for null.
func appendText(b []byte, arr arrow.Array, row int) ([]byte, error) {
	if arr.IsNull(row) {
		return b, nil
	}
	switch a := arr.(type) {
	case *array.String:
		if !utf8.ValidString(a.Value(row)) {
			return b, fmt.Errorf("a partition value that is not UTF-8")
		}
		return append(b, a.Value(row)...), nil
	case *array.Boolean:
		return strconv.AppendBool(b, a.Value(row)), nil
	case *array.Int8:
		return strconv.AppendInt(b, int64(a.Value(row)), 10), nil
	case *array.Int16:
		return strconv.AppendInt(b, int64(a.Value(row)), 10), nil
	case *array.Int32:
		return strconv.AppendInt(b, int64(a.Value(row)), 10), nil
	case *array.Int64:
		return strconv.AppendInt(b, a.Value(row), 10), nil
	case *array.Decimal128:
		return append(b, a.Value(row).ToString(a.DataType().(*arrow.Decimal128Type).Scale)...), nil
	case *array.Date32:
		return appendTime(b, time.Unix(int64(a.Value(row))*secondsPerDay, 0), dateLayout)
	case *array.Timestamp:
		layout := ntzLayout
		if a.DataType().(*arrow.TimestampType).TimeZone != "" {
			layout = instantLayout
		}
		return appendTime(b, time.UnixMicro(int64(a.Value(row))), layout)
	}
	return b, fmt.Errorf("a %s cannot partition a table", arr.DataType())
}

const secondsPerDay = 24 * 60 * 60

func appendTime(b []byte, t time.Time, layout string) ([]byte, error) {
	t = t.UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return b, fmt.Errorf("year %d in a partition value; it can be 1 to 9999", y)
	}
	return t.AppendFormat(b, layout), nil
}

// Array is n times a value, as the log states it; all null if it is empty.
func Array(mem memory.Allocator, dt arrow.DataType, text string, n int) (arrow.Array, error) {
	b := array.NewBuilder(mem, dt)
	defer b.Release()
	if text == "" {
		b.AppendNulls(n)
		return b.NewArray(), nil
	}
	b.Reserve(n)
	bad := func(err error) (arrow.Array, error) {
		if err != nil {
			return nil, fmt.Errorf("%q is no %s: %w", text, dt, err)
		}
		return nil, fmt.Errorf("%q is no %s", text, dt)
	}
	repeat := func(one func()) (arrow.Array, error) {
		for range n {
			one()
		}
		return b.NewArray(), nil
	}
	integer := func(bits int, one func(int64)) (arrow.Array, error) {
		v, err := strconv.ParseInt(text, 10, bits)
		if err != nil {
			return bad(nil)
		}
		return repeat(func() { one(v) })
	}
	switch b := b.(type) {
	case *array.StringBuilder:
		if len(text)*n > math.MaxInt32 {
			return bad(fmt.Errorf("%d rows of %d bytes are too much for one column", n, len(text)))
		}
		return repeat(func() { b.Append(text) })
	case *array.BooleanBuilder:
		v, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return bad(nil)
		}
		return repeat(func() { b.Append(v) })
	case *array.Int8Builder:
		return integer(8, func(v int64) { b.Append(int8(v)) })
	case *array.Int16Builder:
		return integer(16, func(v int64) { b.Append(int16(v)) })
	case *array.Int32Builder:
		return integer(32, func(v int64) { b.Append(int32(v)) })
	case *array.Int64Builder:
		return integer(64, b.Append)
	case *array.Decimal128Builder:
		t := dt.(*arrow.Decimal128Type)
		v, ok := parseDecimal(text, t)
		if !ok {
			return bad(nil)
		}
		return repeat(func() { b.Append(v) })
	case *array.Date32Builder:
		v, err := time.Parse(dateLayout, text)
		if err != nil {
			return bad(nil)
		}
		return repeat(func() { b.Append(arrow.Date32(v.Unix() / secondsPerDay)) })
	case *array.TimestampBuilder:
		v, err := parseTime(text)
		if err != nil {
			return bad(nil)
		}
		return repeat(func() { b.Append(arrow.Timestamp(v.UnixMicro())) })
	}
	return bad(fmt.Errorf("such a column cannot partition a table"))
}

// parseDecimal reads a decimal exactly; arrow's own parser goes by way of floating point.
func parseDecimal(text string, t *arrow.Decimal128Type) (decimal128.Num, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	fraction = strings.TrimRight(fraction, "0")
	if int32(len(fraction)) > t.Scale {
		return decimal128.Num{}, false
	}
	unscaled, ok := new(big.Int).SetString(whole+fraction+strings.Repeat("0", int(t.Scale)-len(fraction)), 10)
	if !ok || unscaled.CmpAbs(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Precision)), nil)) >= 0 {
		return decimal128.Num{}, false
	}
	return decimal128.FromBigInt(unscaled), true
}

// parseTime reads what writers of Delta tables write: the protocol's forms, with or without fractions.
func parseTime(text string) (t time.Time, err error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02T15:04:05", dateLayout} {
		if t, err = time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return t, err
}
