package ingest

import (
	"encoding/base64"
	"fmt"
	"math/big"
	"strconv"
	"unicode/utf8"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
)

// appendText appends one value, given as the text of a CSV field, of a JSON number or of a JSON string, to a builder.
type appendText func(text []byte) error

// textAppender returns how text becomes a value of a builder's type, or nil if the type is nested or unsupported.
// A value is taken exactly or refused; nothing is rounded except decimal fractions to the nearest double.
func textAppender(b array.Builder) appendText {
	switch b := b.(type) {
	case *array.StringBuilder:
		return func(text []byte) error {
			if !utf8.Valid(text) {
				return fmt.Errorf("%s is not UTF-8; convert the file first, for example with iconv", quote(text))
			}
			b.BinaryBuilder.Append(text)
			return nil
		}
	case *array.BinaryBuilder:
		return func(text []byte) error {
			raw, err := base64.StdEncoding.DecodeString(string(text))
			if err != nil {
				return fmt.Errorf("%s is not base64, which a binary column needs", quote(text))
			}
			b.Append(raw)
			return nil
		}
	case *array.BooleanBuilder:
		return func(text []byte) error {
			v, ok := parseBool(text)
			if !ok {
				return fmt.Errorf("%s is not true or false", quote(text))
			}
			b.Append(v)
			return nil
		}
	case *array.Int8Builder:
		return integerAppender(8, func(v int64) { b.Append(int8(v)) })
	case *array.Int16Builder:
		return integerAppender(16, func(v int64) { b.Append(int16(v)) })
	case *array.Int32Builder:
		return integerAppender(32, func(v int64) { b.Append(int32(v)) })
	case *array.Int64Builder:
		return integerAppender(64, b.Append)
	case *array.Float32Builder:
		return floatAppender(32, func(v float64) { b.Append(float32(v)) })
	case *array.Float64Builder:
		return floatAppender(64, b.Append)
	case *array.Date32Builder:
		return func(text []byte) error {
			days, ok := parseDate(text)
			if !ok {
				return fmt.Errorf("%s is not a date like 2006-01-31", quote(text))
			}
			b.Append(arrow.Date32(days))
			return nil
		}
	case *array.TimestampBuilder:
		return timestampAppender(b)
	case *array.Decimal128Builder:
		return decimalAppender(b)
	}
	return nil
}

func integerAppender(bits int, add func(int64)) appendText {
	return func(text []byte) error {
		v, err := strconv.ParseInt(string(text), 10, bits)
		if err != nil {
			return fmt.Errorf("%s is not an integer of %d bits", quote(text), bits)
		}
		add(v)
		return nil
	}
}

func floatAppender(bits int, add func(float64)) appendText {
	return func(text []byte) error {
		v, ok := parseFloat(text, bits)
		if !ok {
			return fmt.Errorf("%s is not a number that a float of %d bits holds", quote(text), bits)
		}
		add(v)
		return nil
	}
}

func timestampAppender(b *array.TimestampBuilder) appendText {
	t := b.Type().(*arrow.TimestampType)
	if t.Unit != arrow.Microsecond {
		return nil
	}
	return func(text []byte) error {
		micros, zoned, ok := parseTimestamp(text)
		if !ok && t.TimeZone == "" {
			var days int32
			days, ok = parseDate(text)
			micros = int64(days) * microsPerDay
		}
		switch {
		case !ok:
			return fmt.Errorf("%s is not a timestamp like 2006-01-31T15:04:05.000001", quote(text))
		case zoned && t.TimeZone == "":
			return fmt.Errorf("%s has a time zone, but the column has none", quote(text))
		case !zoned && t.TimeZone != "":
			return fmt.Errorf("%s has no time zone, but the column needs one (append Z for UTC)", quote(text))
		}
		b.Append(arrow.Timestamp(micros))
		return nil
	}
}

func decimalAppender(b *array.Decimal128Builder) appendText {
	t := b.Type().(*arrow.Decimal128Type)
	return func(text []byte) error {
		unscaled, ok := parseDecimal(text, t.Scale)
		if !ok || !unscaled.FitsInPrecision(t.Precision) {
			return fmt.Errorf("%s is not a decimal(%d,%d) exactly", quote(text), t.Precision, t.Scale)
		}
		b.Append(unscaled)
		return nil
	}
}

// parseDecimal reads a plain decimal number (no exponent) into units of 10^-scale. Further decimals must be zeros.
func parseDecimal(s []byte, scale int32) (unscaled decimal128.Num, ok bool) {
	const digitsMax = 64 // far beyond the 38 that fit, and small enough for big.Int not to matter
	if len(s) > digitsMax {
		return unscaled, false
	}
	i := 0
	if i < len(s) && s[i] == '-' {
		i++
	}
	whole := skipDigits(s, i)
	if whole == i {
		return unscaled, false
	}
	number := append([]byte(nil), s[:whole]...)
	var fraction []byte
	if whole < len(s) {
		if s[whole] != '.' {
			return unscaled, false
		}
		end := skipDigits(s, whole+1)
		if end != len(s) || end == whole+1 {
			return unscaled, false
		}
		fraction = s[whole+1:]
	}
	for d := int32(0); d < scale || d < int32(len(fraction)); d++ {
		digit := byte('0')
		if d < int32(len(fraction)) {
			digit = fraction[d]
		}
		switch {
		case d < scale:
			number = append(number, digit)
		case digit != '0':
			return unscaled, false
		}
	}
	v, ok := new(big.Int).SetString(string(number), 10)
	if !ok || v.BitLen() > 127 {
		return unscaled, false
	}
	return decimal128.FromBigInt(v), true
}
