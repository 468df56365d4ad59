package ingest

import (
	"math"
	"strconv"

	"github.com/apache/arrow/go/v17/arrow"
)

// shape is the set of kinds of text seen in one column of a text file. Sets are joined by or, so the type of a column
// does not depend on the order of its rows, or of files.
type shape uint16

const (
	shapeBool  shape = 1 << iota // true, false
	shapeInt                     // an integer that a double holds exactly, |n| ≤ 2^53
	shapeLong                    // a longer integer that int64 holds
	shapeFloat                   // a number with a point or an exponent, -0, NaN, Infinity
	shapeDate                    // 2006-01-02
	shapeLocal                   // a date and time without zone
	shapeZoned                   // a date and time with zone
	shapeText                    // anything else, so also leading zeros and integers beyond int64
)

// exactInt is the largest magnitude up to which every integer is a double.
const exactInt = 1 << 53

var (
	typeLocal = &arrow.TimestampType{Unit: arrow.Microsecond}
	typeZoned = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
)

// dataType is the narrowest type that holds every value of the set without changing one.
func (s shape) dataType() arrow.DataType {
	only := func(allowed shape) bool { return s != 0 && s&^allowed == 0 }
	switch {
	case only(shapeBool):
		return arrow.FixedWidthTypes.Boolean
	case only(shapeInt | shapeLong):
		return arrow.PrimitiveTypes.Int64
	case only(shapeInt | shapeFloat):
		return arrow.PrimitiveTypes.Float64
	case only(shapeDate):
		return arrow.FixedWidthTypes.Date32
	case only(shapeDate | shapeLocal):
		return typeLocal
	case only(shapeZoned):
		return typeZoned
	}
	return arrow.BinaryTypes.String
}

// classify says what kind of value a text is.
func classify(text []byte) shape {
	if len(text) == 0 {
		return shapeText
	}
	switch c := text[0]; {
	case c == '-' || c >= '0' && c <= '9':
		if len(text) >= 10 && text[4] == '-' && text[7] == '-' {
			return classifyTime(text)
		}
		return classifyNumber(text)
	case c == 't' || c == 'T' || c == 'f' || c == 'F':
		if _, ok := parseBool(text); ok {
			return shapeBool
		}
	case c == 'N' || c == 'I':
		if isSpecialFloat(text) {
			return shapeFloat
		}
	}
	return shapeText
}

func classifyTime(text []byte) shape {
	if _, ok := parseDate(text); ok {
		return shapeDate
	}
	if _, zoned, ok := parseTimestamp(text); ok {
		if zoned {
			return shapeZoned
		}
		return shapeLocal
	}
	return shapeText
}

func classifyNumber(text []byte) shape {
	whole, ok := scanNumber(text)
	switch {
	case !ok:
		if isSpecialFloat(text) {
			return shapeFloat
		}
		return shapeText
	case !whole:
		if _, err := strconv.ParseFloat(string(text), 64); err != nil {
			return shapeText // 1e999: no double holds it
		}
		return shapeFloat
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case err != nil:
		return shapeText
	case n > exactInt || n < -exactInt:
		return shapeLong
	}
	return shapeInt
}

// scanNumber accepts exactly what JSON calls a number: no leading zeros, no plus sign, no bare point. whole means an
// integer; -0 is not, since no integer keeps its sign.
func scanNumber(s []byte) (whole, ok bool) {
	i := 0
	if i < len(s) && s[i] == '-' {
		i++
	}
	start := i
	i = skipDigits(s, i)
	if i == start || s[start] == '0' && i > start+1 {
		return false, false
	}
	whole = !(s[0] == '-' && s[1] == '0' && i == 2)
	if i < len(s) && s[i] == '.' {
		whole = false
		start = i + 1
		if i = skipDigits(s, start); i == start {
			return false, false
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		whole = false
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		start = i
		if i = skipDigits(s, start); i == start {
			return false, false
		}
	}
	return whole, i == len(s)
}

func skipDigits(s []byte, i int) int {
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return i
}

func parseBool(s []byte) (value, ok bool) {
	switch string(s) {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

// isSpecialFloat knows the spellings that `tidemark cat` writes.
func isSpecialFloat(s []byte) bool {
	switch string(s) {
	case "NaN", "Infinity", "-Infinity":
		return true
	}
	return false
}

func parseFloat(s []byte, bits int) (float64, bool) {
	switch string(s) {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	if _, ok := scanNumber(s); !ok {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(s), bits)
	return v, err == nil
}
