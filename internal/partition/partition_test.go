package partition

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"

	"tidemark/internal/schema"
)

var (
	instant = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	wall    = &arrow.TimestampType{Unit: arrow.Microsecond}
)

func column(mem memory.Allocator, dt arrow.DataType, values string) arrow.Array {
	arr, _, err := array.FromJSON(mem, dt, strings.NewReader(values))
	if err != nil {
		panic(err)
	}
	return arr
}

func TestValuesAreWrittenAsTheProtocolSays(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	for _, c := range []struct {
		dt     arrow.DataType
		values string // JSON
		want   []string
	}{
		{arrow.BinaryTypes.String, `["a b", "", null, "K\u00f6ln/1=2%"]`, []string{"a b", "", "", "Köln/1=2%"}},
		{arrow.FixedWidthTypes.Boolean, `[true, false]`, []string{"true", "false"}},
		{arrow.PrimitiveTypes.Int8, `[-128]`, []string{"-128"}},
		{arrow.PrimitiveTypes.Int64, `[-9223372036854775808]`, []string{"-9223372036854775808"}},
		{arrow.FixedWidthTypes.Date32, `["1969-12-31", "2024-02-29"]`, []string{"1969-12-31", "2024-02-29"}},
		{instant, `["1969-12-31T23:59:59.999999Z"]`, []string{"1969-12-31T23:59:59.999999Z"}},
		{wall, `["2024-01-01T00:00:00"]`, []string{"2024-01-01 00:00:00.000000"}},
		{&arrow.Decimal128Type{Precision: 38, Scale: 2}, `["-999999999999999999999999999999999999.99", "0.10"]`,
			[]string{"-999999999999999999999999999999999999.99", "0.10"}},
	} {
		arr := column(mem, c.dt, c.values)
		for row, want := range c.want {
			got, err := appendText(nil, arr, row)
			if err != nil || string(got) != want {
				t.Errorf("%s, row %d: %q, %v; want %q", c.dt, row, got, err, want)
			}
			back, err := Array(mem, c.dt, want, 3)
			if err != nil {
				t.Errorf("%s: %v", c.dt, err)
				continue
			}
			if again, _ := appendText(nil, back, 2); back.Len() != 3 || back.IsNull(2) != (want == "") || string(again) != want {
				t.Errorf("%s: %q reads back as %s", c.dt, want, back)
			}
			back.Release()
		}
		arr.Release()
	}
}

func TestValuesOfOtherWritersAreRead(t *testing.T) {
	mem := memory.DefaultAllocator
	for _, c := range []struct {
		dt         arrow.DataType
		text, want string
	}{
		{instant, "2024-01-02 03:04:05", "2024-01-02T03:04:05.000000Z"},
		{instant, "2024-01-02T03:04:05.5+01:00", "2024-01-02T02:04:05.500000Z"},
		{wall, "2024-01-02 03:04:05.123", "2024-01-02 03:04:05.123000"},
		{&arrow.Decimal128Type{Precision: 5, Scale: 2}, "1.5", "1.50"},
		{&arrow.Decimal128Type{Precision: 5, Scale: 2}, "-0.500", "-0.50"},
		{arrow.FixedWidthTypes.Boolean, "True", "true"},
	} {
		arr, err := Array(mem, c.dt, c.text, 1)
		if err != nil {
			t.Errorf("%s %q: %v", c.dt, c.text, err)
			continue
		}
		if got, _ := appendText(nil, arr, 0); string(got) != c.want {
			t.Errorf("%s %q reads as %q, want %q", c.dt, c.text, got, c.want)
		}
	}
	for _, c := range []struct {
		dt   arrow.DataType
		text string
	}{
		{arrow.PrimitiveTypes.Int8, "128"}, {arrow.FixedWidthTypes.Date32, "2024-02-30"}, {instant, "yesterday"},
		{&arrow.Decimal128Type{Precision: 3, Scale: 1}, "100"}, {&arrow.Decimal128Type{Precision: 3, Scale: 1}, "1.55"},
		{&arrow.Decimal128Type{Precision: 3, Scale: 1}, "x"}, {arrow.FixedWidthTypes.Boolean, "yes"}, {arrow.PrimitiveTypes.Float64, "1"},
	} {
		if arr, err := Array(mem, c.dt, c.text, 1); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s %q: %v, %v", c.dt, c.text, arr, err)
		}
	}
}

func TestDecimalsAreExactAtEveryPrecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		precision := rapid.Int32Range(1, 38).Draw(t, "precision")
		dt := &arrow.Decimal128Type{Precision: precision, Scale: rapid.Int32Range(0, precision).Draw(t, "scale")}
		digits := rapid.StringMatching(fmt.Sprintf("[0-9]{%d}", precision)).Draw(t, "digits")
		text := digits[:precision-dt.Scale]
		if dt.Scale > 0 {
			text += "." + digits[precision-dt.Scale:]
		}
		v, ok := parseDecimal(text, dt)
		want := decimal128.New(0, 0)
		for _, d := range digits {
			want = want.Mul(decimal128.FromU64(10)).Add(decimal128.FromU64(uint64(d - '0')))
		}
		if !ok || v != want {
			t.Fatalf("%q reads as %v, %v; want %v", text, v, ok, want)
		}
	})
}

func TestARowWithoutAPlaceIsRefusedByColumnAndRow(t *testing.T) {
	fields := []arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}, {Name: "p", Type: arrow.BinaryTypes.String}, {Name: "d", Type: arrow.FixedWidthTypes.Date32, Nullable: true}}
	c := Of(arrow.NewSchema(fields, nil), []string{"p", "d"})
	for _, bad := range []string{`{"v":1,"p":"","d":null}`, `{"v":1,"p":"a\u0000b","d":null}`} {
		rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, c.all, strings.NewReader(`[{"v":1,"p":"x","d":"2024-01-01"},`+bad+`]`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.AppendKey(nil, rec, 0); err != nil {
			t.Errorf("a good row: %v", err)
		}
		_, err = c.AppendKey(nil, rec, 1)
		var refused *schema.ValueError
		if !errors.As(err, &refused) || refused.Column != "p" || refused.Row != 1 {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestFoldersAreSafeNamesThatStayApart(t *testing.T) {
	c := Of(arrow.NewSchema([]arrow.Field{{Name: "a/b", Type: arrow.BinaryTypes.String}, {Name: "n", Type: arrow.BinaryTypes.String}}, nil), []string{"a/b", "n"})
	if got, want := c.Folder(map[string]string{"a/b": "x y%/=:+#?ü", "n": ""}), "a%2Fb=x%20y%25%2F%3D%3A%2B%23%3F%C3%BC/n=__HIVE_DEFAULT_PARTITION__/"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	long := strings.Repeat("ü", 300)
	one, two := c.Folder(map[string]string{"n": long + "1"}), c.Folder(map[string]string{"n": long + "2"})
	if one == two {
		t.Errorf("two long values share the folder %s", one)
	}
	for segment := range strings.SplitSeq(one, "/") {
		if len(segment) > folderMax {
			t.Errorf("a folder's name of %d bytes", len(segment))
		}
	}
}

func TestAKeyGivesItsValuesBack(t *testing.T) {
	c := Of(arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.BinaryTypes.String, Nullable: true}, {Name: "b", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil), []string{"b", "a"})
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, c.all, strings.NewReader(`[{"a":"x","b":7,"v":1},{"a":null,"b":null,"v":2}]`))
	if err != nil {
		t.Fatal(err)
	}
	for row, want := range []map[string]string{{"a": "x", "b": "7"}, {"a": "", "b": ""}} {
		key, err := c.AppendKey(nil, rec, row)
		if got := c.Values(string(key)); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("row %d: %v, %v; want %v", row, got, err, want)
		}
	}
	back, err := c.Fill(memory.DefaultAllocator, c.Strip(rec).NewSlice(0, 1), map[string]string{"a": "x", "b": "7"})
	if err != nil || !array.RecordEqual(back, rec.NewSlice(0, 1)) {
		t.Errorf("filled again: %v, %v", back, err)
	}
}

func TestColumnsThatCannotPartitionAreNamed(t *testing.T) {
	s, err := schema.Parse(`{"type":"struct","fields":[
		{"name":"s","type":"string","nullable":true,"metadata":{}},
		{"name":"f","type":"double","nullable":true,"metadata":{}},
		{"name":"b","type":"binary","nullable":true,"metadata":{}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(s, []string{"s"}); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		columns []string
		want    string
	}{
		{[]string{"f"}, "f is a double"}, {[]string{"b"}, "b is a binary"}, {[]string{"x"}, `no column "x"`}, {[]string{"s", "s"}, "twice"},
	} {
		if err := Check(s, c.columns); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.columns, err, c.want)
		}
	}
}
