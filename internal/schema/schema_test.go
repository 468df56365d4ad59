package schema_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"pgregory.net/rapid"

	"tidemark/internal/columns/columnstest"
	"tidemark/internal/schema"
)

// fromArrow is the table schema of drawn columns.
func fromArrow(t interface{ Fatal(...any) }, s *arrow.Schema) *schema.Schema {
	out, err := schema.FromArrow(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func parse(t interface{ Fatal(...any) }, text string) *schema.Schema {
	out, err := schema.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDeltaJSONSurvivesParsing(t *testing.T) {
	const text = `{"type":"struct","fields":[` +
		`{"name":"id","type":"long","nullable":false,"metadata":{"comment":"a < b","n":9007199254740993}},` +
		`{"name":"price","type":"decimal(10,2)","nullable":true,"metadata":{}},` +
		`{"name":"at","type":"timestamp_ntz","nullable":true,"metadata":{}},` +
		`{"name":"deep","type":{"type":"array","elementType":{"type":"map","keyType":"string","valueType":` +
		`{"type":"struct","fields":[{"name":"x","type":"byte","nullable":true,"metadata":{}}]},"valueContainsNull":false},"containsNull":true},` +
		`"nullable":true,"metadata":{}}]}`
	s := parse(t, text)
	var want, have any
	if err := errors.Join(json.Unmarshal([]byte(text), &want), json.Unmarshal([]byte(s.String()), &have)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want, have) {
		t.Fatalf("%s\nbecame %s", text, s)
	}
	if !strings.Contains(s.String(), "9007199254740993") || !strings.Contains(s.String(), "a < b") {
		t.Fatalf("metadata changed: %s", s)
	}
	if !s.HasTimestampNTZ() || s.HasTypeChanges() {
		t.Fatalf("ntz %v, changes %v", s.HasTimestampNTZ(), s.HasTypeChanges())
	}
}

func TestArrowTypesOfATableComeBackThroughDeltaJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := columnstest.Schema(t, 3)
		back := parse(t, fromArrow(t, in).String()).Arrow()
		if schema.Fingerprint(in) != schema.Fingerprint(back) {
			t.Fatalf("%s became %s", in, back)
		}
	})
}

func TestBrokenSchemasAreRefused(t *testing.T) {
	field := func(typ string) string {
		return `{"type":"struct","fields":[{"name":"a","type":` + typ + `,"nullable":true,"metadata":{}}]}`
	}
	for _, text := range []string{
		``, `{`, `"long"`, `[]`, `{"type":"tree"}`,
		field(`"void"`), field(`"variant"`), field(`"decimal(39,0)"`), field(`"decimal(5,6)"`), field(`"decimal(0,0)"`),
		field(`"decimal(5,-1)"`), field(`"struct"`), field(`{"type":"array"}`), field(`7`),
		field(strings.Repeat(`{"type":"array","containsNull":true,"elementType":`, 200) + `"long"` + strings.Repeat("}", 200)),
	} {
		if s, err := schema.Parse(text); err == nil {
			t.Errorf("%.80s became %s", text, s)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"type":"struct","fields":[{"name":"a","type":{"type":"map","keyType":"string","valueType":"decimal(10,2)","valueContainsNull":true},"nullable":true,"metadata":{"k":1}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := schema.Parse(text)
		if err != nil {
			return
		}
		again, err := schema.Parse(s.String())
		if err != nil || !again.Equal(s) {
			t.Fatalf("%q became %s, then %v, %v", text, s, again, err)
		}
		s.Arrow()
	})
}

func TestTypesDeltaLacksAreWidenedOrRefusedByName(t *testing.T) {
	list := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	for _, c := range []struct {
		in   arrow.DataType
		want string // the table's type; empty if refused
	}{
		{arrow.PrimitiveTypes.Uint8, "short"},
		{arrow.PrimitiveTypes.Uint16, "integer"},
		{arrow.PrimitiveTypes.Uint32, "long"},
		{arrow.PrimitiveTypes.Uint64, "decimal(20,0)"},
		{arrow.FixedWidthTypes.Float16, "float"},
		{arrow.BinaryTypes.LargeString, "string"},
		{arrow.BinaryTypes.StringView, "string"},
		{arrow.BinaryTypes.LargeBinary, "binary"},
		{arrow.BinaryTypes.BinaryView, "binary"},
		{&arrow.FixedSizeBinaryType{ByteWidth: 16}, "binary"},
		{&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.LargeString}, "string"},
		{arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint8), "short"},
		{arrow.LargeListOf(arrow.PrimitiveTypes.Int64), "array<long>"},
		{arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Int64), "array<long>"},
		{arrow.ListViewOf(arrow.PrimitiveTypes.Int64), "array<long>"},
		{arrow.FixedWidthTypes.Date64, "date"},
		{arrow.FixedWidthTypes.Timestamp_s, "timestamp"},
		{&arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "Europe/Berlin"}, "timestamp"},
		{&arrow.TimestampType{Unit: arrow.Nanosecond}, "timestamp_ntz"},
		{&arrow.Decimal256Type{Precision: 38, Scale: 38}, "decimal(38,38)"},
		{arrow.MapOf(arrow.BinaryTypes.String, list), "map<string, array<long>>"},
		{&arrow.Decimal256Type{Precision: 39, Scale: 0}, ""},
		{&arrow.Decimal128Type{Precision: 5, Scale: -2}, ""},
		{&arrow.Decimal128Type{Precision: 5, Scale: 6}, ""},
		{arrow.Null, ""},
		{arrow.FixedWidthTypes.Time32ms, ""},
		{arrow.FixedWidthTypes.Time64ns, ""},
		{arrow.FixedWidthTypes.Duration_us, ""},
		{arrow.FixedWidthTypes.MonthInterval, ""},
		{arrow.FixedWidthTypes.MonthDayNanoInterval, ""},
		{arrow.StructOf(), ""},
		{arrow.SparseUnionOf(nil, nil), ""},
	} {
		in := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arrow.StructOf(arrow.Field{Name: "x", Type: c.in, Nullable: true})}}, nil)
		out, err := schema.FromArrow(in)
		var refused *schema.RefusedError
		switch {
		case c.want == "" && (!errors.As(err, &refused) || len(refused.Columns) != 1 || refused.Columns[0].Column != "c.x" || refused.Columns[0].Remedy == ""):
			t.Errorf("%s: %v, %v", c.in, out, err)
		case c.want == "":
			t.Log(err)
		case err != nil:
			t.Errorf("%s: %v", c.in, err)
		case out.Fields()[0].Type.String() != "struct<x: "+c.want+">":
			t.Errorf("%s became %s, want %s", c.in, out.Fields()[0].Type, c.want)
		}
	}
}

func TestNamesThatOtherEnginesCannotReadAreRefusedAndSanitized(t *testing.T) {
	leaf := arrow.PrimitiveTypes.Int64
	bad := arrow.NewSchema([]arrow.Field{
		{Name: "Wildlife: Size", Type: leaf}, {Name: "Cost (total) $", Type: leaf}, {Name: "", Type: leaf},
		{Name: "a", Type: leaf}, {Name: "A", Type: leaf}, {Name: "a_2", Type: leaf},
		{Name: "s", Type: arrow.ListOf(arrow.StructOf(arrow.Field{Name: "x y", Type: leaf}, arrow.Field{Name: "x_y", Type: leaf}))},
		{Name: "m", Type: arrow.MapOf(arrow.StructOf(arrow.Field{Name: "k", Type: leaf}), arrow.StructOf(arrow.Field{Name: "k", Type: leaf}))},
	}, nil)
	err := schema.CheckNames(bad)
	var names *schema.NameError
	if !errors.As(err, &names) || len(names.Problems) != 5 || !strings.Contains(err.Error(), "--sanitize-names") {
		t.Fatalf("%d problems: %v", len(names.Problems), err)
	}
	t.Log(err)
	good := schema.SanitizeNames(bad)
	if err := schema.CheckNames(good); err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, f := range good.Fields() {
		have = append(have, f.Name)
	}
	want := []string{"Wildlife:_Size", "Cost__total__$", "column", "a", "A_3", "a_2", "s", "m"}
	if !reflect.DeepEqual(have, want) {
		t.Fatalf("%q, want %q", have, want)
	}
	if inner := good.Field(6).Type.(*arrow.ListType).Elem().(*arrow.StructType); inner.Field(0).Name != "x_y_2" || inner.Field(1).Name != "x_y" {
		t.Fatalf("%s", inner)
	}
}

func TestSanitizedNamesAreAlwaysAcceptableAndStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("aA _2,;(")), 0, 4, -1), 1, 8).Draw(t, "names")
		var fields []arrow.Field
		for _, name := range names {
			fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64})
		}
		once := schema.SanitizeNames(arrow.NewSchema(fields, nil))
		if err := schema.CheckNames(once); err != nil {
			t.Fatal(err)
		}
		if twice := schema.SanitizeNames(once); !twice.Equal(once) {
			t.Fatalf("%s became %s", once, twice)
		}
	})
}
