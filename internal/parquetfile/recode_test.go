package parquetfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"

	"tidemark/internal/parquetfile"
)

var recodedSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "small", Type: arrow.PrimitiveTypes.Int16, Nullable: true},
	{Name: "flag", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
	{Name: "ratio", Type: arrow.PrimitiveTypes.Float32, Nullable: true},
	{Name: "value", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	{Name: "price", Type: &arrow.Decimal128Type{Precision: 20, Scale: 2}, Nullable: true},
	{Name: "at", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, Nullable: true},
	{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "story", Type: arrow.BinaryTypes.String, Nullable: true}, // longer than the bounds of a chunk
	{Name: "blob", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "never", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

// mixture is n rows with so many distinct values per column, some of them null, NaN or infinite.
func mixture(r *rand.Rand, n, distinct, nullsIn int) arrow.Record {
	b := array.NewRecordBuilder(memory.DefaultAllocator, recodedSchema)
	defer b.Release()
	for i := range n {
		v := r.Int64N(int64(distinct)) - int64(distinct)/2
		for c, f := range recodedSchema.Fields() {
			if f.Name == "never" || f.Nullable && nullsIn > 0 && r.IntN(nullsIn) == 0 {
				b.Field(c).AppendNull()
				continue
			}
			switch b := b.Field(c).(type) {
			case *array.Int64Builder:
				b.Append(int64(i) - 5)
			case *array.Int16Builder:
				b.Append(int16(v))
			case *array.BooleanBuilder:
				b.Append(v%2 == 0)
			case *array.Float32Builder:
				b.Append(float32(v) / 3)
			case *array.Float64Builder:
				switch v % 1000 {
				case 998:
					b.Append(math.NaN())
				case 999:
					b.Append(math.Inf(1))
				default:
					b.Append(float64(v) / 7)
				}
			case *array.Decimal128Builder:
				b.Append(decimal128.FromI64(v * 1_000_003))
			case *array.TimestampBuilder:
				b.Append(arrow.Timestamp(v * 1001))
			case *array.StringBuilder:
				if f.Name == "story" {
					b.Append(fmt.Sprintf("%s %d", strings.Repeat("so long a text ", 5), v))
				} else {
					b.Append(fmt.Sprintf("name %d", v))
				}
			case *array.BinaryBuilder:
				b.Append([]byte{byte(v), byte(v >> 8), 0xff})
			}
		}
	}
	return b.NewRecord()
}

func fileOf(t testing.TB, records ...arrow.Record) ([]byte, parquetfile.Summary) {
	t.Helper()
	var buf bytes.Buffer
	w, err := parquetfile.NewWriter(&buf, records[0].Schema(), parquetfile.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, rec := range records {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	summary, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), summary
}

func layoutOf(t testing.TB, columns *arrow.Schema) *parquetfile.Layout {
	t.Helper()
	layout, err := parquetfile.LayoutOf(columns)
	if err != nil {
		t.Fatal(err)
	}
	return layout
}

// However recoded row groups, copied ones and rows alternate, the file is that of the rows: the rows themselves, as we and
// as arrow-go read them, and the statistics.
func TestAFileOfRecodedRowGroupsIsThatOfItsRows(t *testing.T) {
	layout := layoutOf(t, recodedSchema)
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
		var out bytes.Buffer
		mem, done := checked(r)
		defer done()
		w, err := parquetfile.NewWriter(&out, recodedSchema, parquetfile.WriterOptions{
			Mem: mem, RowGroupBytes: rapid.SampledFrom([]int64{1, 50_000, 1 << 20}).Draw(r, "row group"),
		})
		if err != nil {
			r.Fatal(err)
		}
		defer w.Abort()
		var records []arrow.Record
		for range rapid.IntRange(1, 5).Draw(r, "parts") {
			rec := mixture(random, rapid.SampledFrom([]int{1, 100, 3000}).Draw(r, "rows"),
				rapid.SampledFrom([]int{1, 10, 3000, 1 << 30}).Draw(r, "distinct"), rapid.SampledFrom([]int{0, 1, 3, 100}).Draw(r, "nulls"))
			records = append(records, rec)
			if rapid.IntRange(0, 3).Draw(r, "decoded") == 0 {
				if err := w.Write(rec); err != nil {
					r.Fatal(err)
				}
				continue
			}
			body, _ := fileOf(t, rec)
			source := open(t, body)
			if !layout.Recodes(source) {
				r.Fatal("a file of the same columns is not recoded")
			}
			for g := range source.RowGroups() {
				raw, err := source.FetchRowGroup(t.Context(), g)
				if err == nil {
					err = w.Recode(raw)
				}
				if err != nil {
					r.Fatal(err)
				}
			}
		}
		have, err := w.Close()
		if err != nil {
			r.Fatal(err)
		}
		plain, want := fileOf(t, records...)
		if have.Rows != want.Rows || have.Stats.JSON() != want.Stats.JSON() {
			r.Fatalf("%d rows with %s, want %d with %s", have.Rows, have.Stats.JSON(), want.Rows, want.Stats.JSON())
		}
		if !slices.Equal(rowsOf(t, out.Bytes()), rowsOf(t, plain)) {
			r.Fatal("its rows are others")
		}
		if !slices.Equal(arrowRows(t, out.Bytes()), arrowRows(t, plain)) {
			r.Fatal("arrow-go reads other rows")
		}
	})
}

// A file that another engine wrote, or one of other columns, is not recoded: nobody has checked its values.
func TestOnlyOurOwnFilesOfTheSameColumnsAreRecoded(t *testing.T) {
	body, _ := fileOf(t, mixture(rand.New(rand.NewPCG(1, 1)), 100, 10, 5))
	if !layoutOf(t, recodedSchema).Recodes(open(t, body)) {
		t.Fatal("our own file is not recoded")
	}
	foreign := bytes.Replace(bytes.Clone(body), []byte("tidemark version"), []byte("somebody version"), 1)
	if layoutOf(t, recodedSchema).Recodes(open(t, foreign)) {
		t.Error("a file of another writer is recoded")
	}
	fields := slices.Clone(recodedSchema.Fields())
	fields[0], fields[1] = fields[1], fields[0]
	if layoutOf(t, arrow.NewSchema(fields, nil)).Recodes(open(t, body)) {
		t.Error("a file of reordered columns is recoded")
	}
	fields = slices.Clone(recodedSchema.Fields())
	fields[6].Type = &arrow.TimestampType{Unit: arrow.Microsecond}
	if layoutOf(t, arrow.NewSchema(fields, nil)).Recodes(open(t, body)) {
		t.Error("a file of other timestamps is recoded")
	}
	nested := arrow.NewSchema([]arrow.Field{{Name: "list", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)}}, nil)
	if layoutOf(t, nested) != nil {
		t.Error("nested columns have a layout")
	}
}

// A flipped bit that the checksum was not asked about is an error that says where, or a bit that means nothing.
func TestRecodingADamagedFileSaysWhere(t *testing.T) {
	body, _ := fileOf(t, mixture(rand.New(rand.NewPCG(2, 2)), 50, 10, 5))
	layout := layoutOf(t, recodedSchema)
	named := 0
	for at := range body {
		flipped := bytes.Clone(body)
		flipped[at] ^= []byte{0x80, 0x01, 0xff}[at%3]
		source, err := parquetfile.OpenReader(t.Context(), put(t, flipped), "f", parquetfile.ReaderOptions{})
		if err != nil || !layout.Recodes(source) {
			continue
		}
		w, err := parquetfile.NewWriter(&bytes.Buffer{}, recodedSchema, parquetfile.WriterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := source.FetchRowGroup(t.Context(), 0)
		if err == nil {
			err = w.Recode(raw)
		}
		w.Abort()
		var damaged *parquetfile.FileError
		if err != nil && (!errors.As(err, &damaged) || damaged.Path != "f" || damaged.Column == "") {
			t.Fatalf("byte %d: %v", at, err)
		}
		if err != nil {
			named++
		}
	}
	if named == 0 {
		t.Fatal("no damage was found")
	}
}
