package partition

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/schema"
)

func TestAnEmptyStringInAPartitionColumnIsTakenForNull(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	s := arrow.NewSchema([]arrow.Field{
		{Name: "p", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "day", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
	}, nil)
	rec, _, err := array.RecordFromJSON(mem, s, strings.NewReader(`[{"p":"","text":"","day":"2024-01-01"},{"p":"x","text":"y","day":null},{"p":null,"text":null,"day":null}]`))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	got, err := Of(s, []string{"p", "day"}).Accept(mem, rec)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Release()
	text, err := got.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	want := "[{\"day\":\"2024-01-01\",\"p\":null,\"text\":\"\"}\n,{\"day\":null,\"p\":\"x\",\"text\":\"y\"}\n,{\"day\":null,\"p\":null,\"text\":null}\n]"
	if string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

func TestARowThatNoPartitionCanHoldIsNotAccepted(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	for values, dt := range map[string]arrow.DataType{
		`["x", ""]`:               arrow.BinaryTypes.String, // not null below
		`["x", "a\u0000b"]`:       arrow.BinaryTypes.String,
		`[0, 2932897]`:            arrow.FixedWidthTypes.Date32, // 10000-01-01
		`[0, -62135596801000000]`: wall,
	} {
		s := arrow.NewSchema([]arrow.Field{{Name: "p", Type: dt}, {Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
		var p arrow.Array
		switch dt.ID() {
		case arrow.DATE32:
			numbers := column(mem, arrow.PrimitiveTypes.Int32, values)
			p = relabel(dt, numbers)
			numbers.Release()
		case arrow.TIMESTAMP:
			numbers := column(mem, arrow.PrimitiveTypes.Int64, values)
			p = relabel(dt, numbers)
			numbers.Release()
		default:
			p = column(mem, dt, values)
		}
		id := column(mem, arrow.PrimitiveTypes.Int64, `[1, 2]`)
		rec := array.NewRecord(s, []arrow.Array{p, id}, 2)
		p.Release()
		id.Release()
		_, err := Of(s, []string{"p"}).Accept(mem, rec)
		var refused *schema.ValueError
		if !errors.As(err, &refused) || refused.Column != "p" || refused.Row != 1 {
			t.Errorf("%s: %v", values, err)
		}
		rec.Release()
	}
}

// relabel takes whole numbers for values of another type of the same width.
func relabel(dt arrow.DataType, numbers arrow.Array) arrow.Array {
	data := array.NewData(dt, numbers.Len(), numbers.Data().Buffers(), nil, 0, 0)
	defer data.Release()
	return array.MakeFromData(data)
}
