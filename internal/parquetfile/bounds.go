package parquetfile

import (
	"bytes"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
)

// textBound is the most characters of a text bound, as other Delta writers have it.
const textBound = 32

func boundsOf(dt arrow.DataType) bounds {
	switch dt := dt.(type) {
	case *arrow.Int8Type:
		return &ordered[int8]{values: func(a arrow.Array) []int8 { return a.(*array.Int8).Int8Values() }, format: formatInteger[int8]}
	case *arrow.Int16Type:
		return &ordered[int16]{values: func(a arrow.Array) []int16 { return a.(*array.Int16).Int16Values() }, format: formatInteger[int16]}
	case *arrow.Int32Type:
		return &ordered[int32]{values: func(a arrow.Array) []int32 { return a.(*array.Int32).Int32Values() }, format: formatInteger[int32]}
	case *arrow.Int64Type:
		return &ordered[int64]{values: func(a arrow.Array) []int64 { return a.(*array.Int64).Int64Values() }, format: formatInteger[int64]}
	case *arrow.Float32Type:
		return &ordered[float32]{values: func(a arrow.Array) []float32 { return a.(*array.Float32).Float32Values() }, format: formatFloat[float32]}
	case *arrow.Float64Type:
		return &ordered[float64]{values: func(a arrow.Array) []float64 { return a.(*array.Float64).Float64Values() }, format: formatFloat[float64]}
	case *arrow.Date32Type:
		return &ordered[arrow.Date32]{values: func(a arrow.Array) []arrow.Date32 { return a.(*array.Date32).Date32Values() }, format: formatDate}
	case *arrow.TimestampType:
		return &ordered[arrow.Timestamp]{
			values: func(a arrow.Array) []arrow.Timestamp { return a.(*array.Timestamp).TimestampValues() },
			format: formatTimestamp(dt.TimeZone != ""),
		}
	case *arrow.Decimal128Type:
		return &decimalBounds{scale: int(dt.Scale)}
	case *arrow.StringType:
		return &textBounds{}
	}
	return nil
}

// side says which bound a value is to be: rounding goes outwards.
type side int

const (
	lower side = iota
	upper
)

// ordered are the bounds of a type that < orders. Floats that are no numbers are above all others: they keep the column
// from having a maximum, for JSON cannot say NaN and a smaller maximum would exclude them.
type ordered[T int8 | int16 | int32 | int64 | float32 | float64 | arrow.Date32 | arrow.Timestamp] struct {
	values   func(arrow.Array) []T
	format   func(v T, s side) string // empty if the value cannot be a bound
	lo, hi   T
	any, nan bool
}

func (o *ordered[T]) add(arr arrow.Array, valid func(i int) bool) {
	for i, v := range o.values(arr) {
		switch {
		case valid != nil && !valid(i):
		case v != v:
			o.nan = true
		case !o.any:
			o.lo, o.hi, o.any = v, v, true
		case v < o.lo:
			o.lo = v
		case v > o.hi:
			o.hi = v
		}
	}
}

func (o *ordered[T]) min() string {
	if !o.any {
		return ""
	}
	return o.format(o.lo, lower)
}

func (o *ordered[T]) max() string {
	if !o.any || o.nan {
		return ""
	}
	return o.format(o.hi, upper)
}

func formatInteger[T int8 | int16 | int32 | int64](v T, _ side) string {
	return strconv.FormatInt(int64(v), 10)
}

// formatFloat writes every digit that tells the value from its neighbours as a double. JSON has no infinities. Zero is
// -0.0 below and 0.0 above, as in Parquet, for readers that tell them apart.
func formatFloat[T float32 | float64](v T, s side) string {
	f := float64(v)
	switch {
	case math.IsInf(f, 0):
		return ""
	case f == 0 && s == lower:
		return "-0.0"
	case f == 0:
		return "0.0"
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

// formatYears are the years that every reader of Delta statistics can parse.
func formatYears(t time.Time) bool { return t.Year() >= 1 && t.Year() <= 9999 }

func formatDate(v arrow.Date32, _ side) string {
	t := time.Unix(int64(v)*24*60*60, 0).UTC()
	if !formatYears(t) {
		return ""
	}
	return t.Format(`"2006-01-02"`)
}

// formatTimestamp writes milliseconds, which is all that Delta's statistics have: rounded down below, up above.
func formatTimestamp(zoned bool) func(v arrow.Timestamp, s side) string {
	layout := `"2006-01-02T15:04:05.000"`
	if zoned {
		layout = `"2006-01-02T15:04:05.000Z"`
	}
	return func(v arrow.Timestamp, s side) string {
		ms := int64(v) / 1000
		switch rest := int64(v) % 1000; {
		case rest < 0 && s == lower:
			ms--
		case rest > 0 && s == upper:
			ms++
		}
		t := time.UnixMilli(ms).UTC()
		if !formatYears(t) {
			return ""
		}
		return t.Format(layout)
	}
}

type decimalBounds struct {
	scale  int
	lo, hi decimal128.Num
	any    bool
}

func (d *decimalBounds) add(arr arrow.Array, valid func(i int) bool) {
	for i, v := range arr.(*array.Decimal128).Values() {
		switch {
		case valid != nil && !valid(i):
		case !d.any:
			d.lo, d.hi, d.any = v, v, true
		case v.Less(d.lo):
			d.lo = v
		case v.Greater(d.hi):
			d.hi = v
		}
	}
}

func (d *decimalBounds) min() string { return d.format(d.lo) }
func (d *decimalBounds) max() string { return d.format(d.hi) }

// format writes all digits: a JSON number is not a double.
func (d *decimalBounds) format(v decimal128.Num) string {
	if !d.any {
		return ""
	}
	digits := new(big.Int).Abs(v.BigInt()).String()
	if missing := d.scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	if point := len(digits) - d.scale; d.scale > 0 {
		digits = digits[:point] + "." + digits[point:]
	}
	if v.Sign() < 0 {
		return "-" + digits
	}
	return digits
}

// textBounds are the bounds of text, in the order of its bytes, which is the order of its code points. They are kept cut
// and raised, so they hold a few bytes whatever the values.
type textBounds struct {
	lo, hi    string
	any       bool
	unbounded bool // a value could not be raised: there is no maximum
}

func (t *textBounds) add(arr arrow.Array, valid func(i int) bool) {
	text := arr.(*array.String)
	if text.Len() == 0 {
		return
	}
	offsets, values := text.ValueOffsets(), text.ValueBytes()
	lo, hi := -1, -1
	var low, high []byte
	for i := range text.Len() {
		if valid != nil && !valid(i) {
			continue
		}
		v := values[offsets[i]-offsets[0] : offsets[i+1]-offsets[0]]
		switch {
		case lo < 0:
			lo, hi, low, high = i, i, v, v
		case bytes.Compare(v, low) < 0:
			lo, low = i, v
		case bytes.Compare(v, high) > 0:
			hi, high = i, v
		}
	}
	if lo < 0 {
		return
	}
	if v := text.Value(lo); !t.any || v < t.lo {
		t.lo = strings.Clone(cutText(v))
	}
	if v := text.Value(hi); !t.unbounded && (!t.any || v > t.hi) {
		raised, ok := raiseText(v)
		t.hi, t.unbounded = strings.Clone(raised), !ok
	}
	t.any = true
}

func (t *textBounds) min() string {
	if !t.any {
		return ""
	}
	return jsonString(t.lo)
}

func (t *textBounds) max() string {
	if !t.any || t.unbounded {
		return ""
	}
	return jsonString(t.hi)
}

// cutText is the first characters of a text.
func cutText(s string) string {
	count := 0
	for at := range s {
		if count == textBound {
			return s[:at]
		}
		count++
	}
	return s
}

// raiseText is a short text that is not below a text: the text itself if it is short, else its first characters with the
// last of them that can be raised raised by one and the rest dropped. There is none if all are the last code point.
func raiseText(s string) (string, bool) {
	cut := cutText(s)
	if len(cut) == len(s) {
		return s, true
	}
	for cut != "" {
		r, size := utf8.DecodeLastRuneInString(cut)
		cut = cut[:len(cut)-size]
		switch {
		case r == 0xD7FF: // the surrogates that follow are no characters
			return cut + "\uE000", true
		case r < utf8.MaxRune:
			return cut + string(r+1), true
		}
	}
	return "", false
}
