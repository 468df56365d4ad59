package cat

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
)

// appendValue appends the text of a value that is not null.
type appendValue func(dst []byte, column arrow.Array, row int) []byte

func orNull(f appendValue, dst []byte, column arrow.Array, row int) []byte {
	if column.IsNull(row) {
		return append(dst, "null"...)
	}
	return f(dst, column, row)
}

// scalarText returns how values of a type look without quotes. bare says that JSON needs none.
func scalarText(dt arrow.DataType) (text appendValue, bare bool) {
	switch dt := dt.(type) {
	case *arrow.BooleanType:
		return func(dst []byte, c arrow.Array, i int) []byte {
			return strconv.AppendBool(dst, c.(*array.Boolean).Value(i))
		}, true
	case *arrow.Int8Type:
		return func(dst []byte, c arrow.Array, i int) []byte {
			return strconv.AppendInt(dst, int64(c.(*array.Int8).Value(i)), 10)
		}, true
	case *arrow.Int16Type:
		return func(dst []byte, c arrow.Array, i int) []byte {
			return strconv.AppendInt(dst, int64(c.(*array.Int16).Value(i)), 10)
		}, true
	case *arrow.Int32Type:
		return func(dst []byte, c arrow.Array, i int) []byte {
			return strconv.AppendInt(dst, int64(c.(*array.Int32).Value(i)), 10)
		}, true
	case *arrow.Int64Type:
		return func(dst []byte, c arrow.Array, i int) []byte {
			return strconv.AppendInt(dst, c.(*array.Int64).Value(i), 10)
		}, true
	case *arrow.Decimal128Type:
		return func(dst []byte, c arrow.Array, i int) []byte {
			return appendDecimal(dst, c.(*array.Decimal128).Value(i), int(dt.Scale))
		}, true
	case *arrow.Float32Type:
		return func(dst []byte, c arrow.Array, i int) []byte {
			return appendFloat(dst, float64(c.(*array.Float32).Value(i)), 32)
		}, false
	case *arrow.Float64Type:
		return func(dst []byte, c arrow.Array, i int) []byte {
			return appendFloat(dst, c.(*array.Float64).Value(i), 64)
		}, false
	case *arrow.StringType:
		return func(dst []byte, c arrow.Array, i int) []byte { return append(dst, c.(*array.String).Value(i)...) }, false
	case *arrow.BinaryType:
		return func(dst []byte, c arrow.Array, i int) []byte {
			return base64.StdEncoding.AppendEncode(dst, c.(*array.Binary).Value(i))
		}, false
	case *arrow.Date32Type:
		return func(dst []byte, c arrow.Array, i int) []byte {
			return c.(*array.Date32).Value(i).ToTime().AppendFormat(dst, time.DateOnly)
		}, false
	case *arrow.TimestampType:
		layout := "2006-01-02T15:04:05.999999999"
		if dt.TimeZone != "" {
			layout += "Z"
		}
		return func(dst []byte, c arrow.Array, i int) []byte {
			return c.(*array.Timestamp).Value(i).ToTime(dt.Unit).AppendFormat(dst, layout)
		}, false
	}
	return nil, false
}

// jsonValue returns how values of a type look in JSON, or an error for a type that no table has.
func jsonValue(dt arrow.DataType) (appendValue, error) {
	text, bare := scalarText(dt)
	switch dt := dt.(type) {
	case *arrow.StringType:
		return func(dst []byte, c arrow.Array, i int) []byte {
			return appendJSONString(dst, c.(*array.String).Value(i))
		}, nil
	case *arrow.Float32Type, *arrow.Float64Type:
		return func(dst []byte, c arrow.Array, i int) []byte {
			start := len(dst)
			dst = text(dst, c, i)
			if last := dst[len(dst)-1]; last >= '0' && last <= '9' {
				return dst
			}
			return append(append(append(dst[:start], '"'), text(nil, c, i)...), '"') // NaN or an infinity
		}, nil
	case *arrow.StructType:
		return jsonStruct(dt)
	case *arrow.MapType: // before ListLikeType: a map is a list of entries
		return jsonMap(dt)
	case arrow.ListLikeType:
		return jsonList(dt)
	}
	switch {
	case text == nil:
		return nil, fmt.Errorf("values of type %s have no text form", dt)
	case bare:
		return text, nil
	}
	return func(dst []byte, c arrow.Array, i int) []byte { return append(text(append(dst, '"'), c, i), '"') }, nil
}

func jsonStruct(dt *arrow.StructType) (appendValue, error) {
	names, texts := make([][]byte, dt.NumFields()), make([]appendValue, dt.NumFields())
	before := byte('{')
	for i, f := range dt.Fields() {
		text, err := jsonValue(f.Type)
		if err != nil {
			return nil, err
		}
		names[i], texts[i] = append(appendJSONString([]byte{before}, f.Name), ':'), text
		before = ','
	}
	return func(dst []byte, c arrow.Array, i int) []byte {
		if len(texts) == 0 {
			dst = append(dst, '{')
		}
		for f, text := range texts {
			dst = orNull(text, append(dst, names[f]...), c.(*array.Struct).Field(f), i)
		}
		return append(dst, '}')
	}, nil
}

func jsonList(dt arrow.ListLikeType) (appendValue, error) {
	text, err := jsonValue(dt.Elem())
	if err != nil {
		return nil, err
	}
	return func(dst []byte, c arrow.Array, i int) []byte {
		list := c.(array.ListLike)
		from, to := list.ValueOffsets(i)
		dst = append(dst, '[')
		for j := from; j < to; j++ {
			if j > from {
				dst = append(dst, ',')
			}
			dst = orNull(text, dst, list.ListValues(), int(j))
		}
		return append(dst, ']')
	}, nil
}

func jsonMap(dt *arrow.MapType) (appendValue, error) {
	if dt.KeyType().ID() != arrow.STRING {
		return jsonList(dt)
	}
	text, err := jsonValue(dt.ItemType())
	if err != nil {
		return nil, err
	}
	return func(dst []byte, c arrow.Array, i int) []byte {
		m := c.(*array.Map)
		from, to := m.ValueOffsets(i)
		dst = append(dst, '{')
		for j := from; j < to; j++ {
			if j > from {
				dst = append(dst, ',')
			}
			dst = append(appendJSONString(dst, m.Keys().(*array.String).Value(int(j))), ':')
			dst = orNull(text, dst, m.Items(), int(j))
		}
		return append(dst, '}')
	}, nil
}

// csvField returns how values of a type look in CSV: as plain text, and nested ones as JSON.
func csvField(dt arrow.DataType, json appendValue) appendValue {
	text, _ := scalarText(dt)
	switch {
	case text == nil:
		text = json
	case dt.ID() != arrow.STRING && dt.ID() != arrow.BINARY:
		return text // nothing in it could need quotes
	}
	return func(dst []byte, c arrow.Array, i int) []byte {
		start := len(dst)
		dst = text(dst, c, i)
		if len(dst) > start && !bytes.ContainsAny(dst[start:], ",\"\r\n") {
			return dst
		}
		return appendCSV(dst[:start], bytes.Clone(dst[start:]))
	}
}

// appendCSV appends a field, quoted if it must be.
func appendCSV(dst, text []byte) []byte {
	if len(text) > 0 && !bytes.ContainsAny(text, ",\"\r\n") {
		return append(dst, text...)
	}
	dst = append(dst, '"')
	for _, c := range text {
		if c == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

// appendFloat writes whole numbers with a point, so that a float is never taken for an integer.
func appendFloat(dst []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, "NaN"...)
	case math.IsInf(v, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(v, -1):
		return append(dst, "-Infinity"...)
	}
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e16) {
		return strconv.AppendFloat(dst, v, 'e', -1, bits)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, v, 'f', -1, bits)
	if bytes.IndexByte(dst[start:], '.') < 0 {
		dst = append(dst, ".0"...)
	}
	return dst
}

// appendDecimal writes all digits of the scale.
func appendDecimal(dst []byte, v decimal128.Num, scale int) []byte {
	digits := v.BigInt().Append(nil, 10)
	if digits[0] == '-' {
		dst, digits = append(dst, '-'), digits[1:]
	}
	for len(digits) <= scale {
		digits = append([]byte{'0'}, digits...)
	}
	dst = append(dst, digits[:len(digits)-scale]...)
	if scale > 0 {
		dst = append(append(dst, '.'), digits[len(digits)-scale:]...)
	}
	return dst
}

const hexDigits = "0123456789abcdef"

// appendJSONString writes a string as RFC 8259 wants it; nothing is escaped that need not be.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r) // bytes that are no character become U+FFFD
			i += size
			continue
		}
		i++
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
