package parquetfile_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	"pgregory.net/rapid"

	"tidemark/internal/columns/columnstest"
	"tidemark/internal/parquetfile"
)

var copiedSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "tiny", Type: arrow.PrimitiveTypes.Int8, Nullable: true},
	{Name: "day", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
	{Name: "at", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, Nullable: true},
	{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "never", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

// numbered is rows with ids from to to (exclusive).
func numbered(from, to int) arrow.Record {
	var rows []string
	for i := from; i < to; i++ {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"tiny":%d,"day":"2024-01-%02d","at":"2024-01-01T00:00:00.%06d","name":"n%03d","never":null}`,
			i, i%100-50, i%28+1, i, i%37))
		if i%9 == 0 {
			rows[len(rows)-1] = fmt.Sprintf(`{"id":%d,"tiny":null,"day":null,"at":null,"name":null,"never":null}`, i)
		}
	}
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, copiedSchema, strings.NewReader("["+strings.Join(rows, ",")+"]"))
	if err != nil {
		panic(err)
	}
	return rec
}

func idKey(rec arrow.Record, row int) ([]byte, error) {
	return binary.BigEndian.AppendUint64(nil, uint64(rec.Column(0).(*array.Int64).Value(row))), nil
}

// grouped is a file of one row group per record.
func grouped(t testing.TB, records ...arrow.Record) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := parquetfile.NewWriter(&buf, records[0].Schema(), parquetfile.WriterOptions{RowGroupBytes: 1, Key: idKey})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for _, rec := range records {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func open(t testing.TB, body []byte) *parquetfile.Reader {
	t.Helper()
	r, err := parquetfile.OpenReader(context.Background(), put(t, body), "f", parquetfile.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func rowsOf(t testing.TB, body []byte) (rows []string) {
	t.Helper()
	records, err := readAll(context.Background(), open(t, body))
	if err != nil {
		t.Fatal(err)
	}
	defer release(records)
	for _, rec := range records {
		rows = append(rows, columnstest.Rows(rec)...)
	}
	return rows
}

// However copied and encoded row groups alternate, the file is the same to every reader: rows, statistics, key index.
func TestAFileOfCopiedRowGroupsIsThatOfItsRows(t *testing.T) {
	source := open(t, grouped(t, numbered(0, 40), numbered(40, 41), numbered(41, 100)))
	rapid.Check(t, func(r *rapid.T) {
		mem, done := checked(r)
		defer done()
		var mixed, plain bytes.Buffer
		options := parquetfile.WriterOptions{Mem: mem, RowGroupBytes: 1, Key: idKey}
		w, err := parquetfile.NewWriter(&mixed, copiedSchema, options)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		p, err := parquetfile.NewWriter(&plain, copiedSchema, options)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Abort()
		if !w.Takes(source) {
			r.Fatal("the writer does not take a file of its own columns")
		}
		cuts := []int{0, 40, 41, 100}
		var want []keyPair
		for range rapid.IntRange(1, 6).Draw(r, "parts") {
			g := rapid.IntRange(0, 2).Draw(r, "group")
			rec := numbered(cuts[g], cuts[g+1])
			if rapid.Bool().Draw(r, "copy") {
				raw, err := source.FetchRowGroup(t.Context(), g)
				if err != nil {
					r.Fatal(err)
				}
				if err := w.CopyRowGroup(raw); err != nil {
					r.Fatal(err)
				}
			} else if err := w.Write(rec); err != nil {
				r.Fatal(err)
			}
			if err := p.Write(rec); err != nil {
				r.Fatal(err)
			}
			want = append(want, keyPair{int64(cuts[g]), int64(cuts[g+1] - 1)})
			rec.Release()
		}
		have, err := w.Close()
		if err != nil {
			r.Fatal(err)
		}
		expected, err := p.Close()
		if err != nil {
			r.Fatal(err)
		}
		if have.Rows != expected.Rows || have.Stats.JSON() != expected.Stats.JSON() {
			r.Fatalf("%d rows with %s, want %d with %s", have.Rows, have.Stats.JSON(), expected.Rows, expected.Stats.JSON())
		}
		if !slices.Equal(rowsOf(t, mixed.Bytes()), rowsOf(t, plain.Bytes())) {
			r.Fatal("its rows are others")
		}
		if rows := rowsByArrow(t, mixed.Bytes()); rows != have.Rows {
			r.Fatalf("arrow-go reads %d rows of %d", rows, have.Rows)
		}
		if got := keysOf(open(t, mixed.Bytes())); !slices.Equal(got, want) {
			r.Fatalf("row groups of keys %v, want %v", got, want)
		}
	})
}

type keyPair struct{ first, last int64 }

func keysOf(r *parquetfile.Reader) (out []keyPair) {
	for _, g := range r.RowGroups() {
		if g.First == nil {
			return nil
		}
		out = append(out, keyPair{int64(binary.BigEndian.Uint64(g.First)), int64(binary.BigEndian.Uint64(g.Last))})
	}
	return out
}

// tableByArrow reads a file with arrow-go's own reader, as an oracle.
func tableByArrow(t testing.TB, body []byte) arrow.Table {
	t.Helper()
	f, err := file.NewParquetReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	table, err := r.ReadTable(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func rowsByArrow(t testing.TB, body []byte) int64 {
	t.Helper()
	table := tableByArrow(t, body)
	defer table.Release()
	return table.NumRows()
}

// arrowRows are the rows that arrow-go reads.
func arrowRows(t testing.TB, body []byte) (rows []string) {
	t.Helper()
	table := tableByArrow(t, body)
	defer table.Release()
	r := array.NewTableReader(table, 1<<20)
	defer r.Release()
	for r.Next() {
		rows = append(rows, columnstest.Rows(r.Record())...)
	}
	return rows
}

func TestOnlyRowGroupsOfExactlyTheSameColumnsAreTaken(t *testing.T) {
	writer := func(f ...arrow.Field) *parquetfile.Writer {
		w, err := parquetfile.NewWriter(&bytes.Buffer{}, arrow.NewSchema(f, nil), parquetfile.WriterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Abort)
		return w
	}
	of := func(f ...arrow.Field) *parquetfile.Reader {
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(f, nil))
		defer b.Release()
		for i := range f {
			b.Field(i).AppendEmptyValue()
		}
		rec := b.NewRecord()
		defer rec.Release()
		body, _ := encode(t, rec)
		return open(t, body)
	}
	long := arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	for name, other := range map[string]arrow.Field{
		"another name":              {Name: "b", Type: long.Type, Nullable: true},
		"may not be null":           {Name: "a", Type: long.Type},
		"the same bytes, as a time": {Name: "a", Type: &arrow.TimestampType{Unit: arrow.Microsecond}, Nullable: true},
		"a smaller integer":         {Name: "a", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		"a decimal":                 {Name: "a", Type: &arrow.Decimal128Type{Precision: 18, Scale: 2}, Nullable: true},
	} {
		r := of(other)
		if w := writer(long); w.Takes(r) {
			t.Errorf("%s: taken", name)
		}
		raw, err := r.FetchRowGroup(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if w := writer(long); w.CopyRowGroup(raw) == nil {
			t.Errorf("%s: copied", name)
		}
	}
	second := arrow.Field{Name: "b", Type: arrow.BinaryTypes.String, Nullable: true}
	if writer(long, second).Takes(of(second, long)) || writer(long, second).Takes(of(long)) {
		t.Error("columns in another order, or fewer, are taken")
	}
	if !writer(long, second).Takes(of(long, second)) {
		t.Error("the same columns are not taken")
	}
}

// Chunks with floats that are no numbers, or with long text, have no statistics: a file with copied ones has no bounds for
// them, not wrong ones.
func TestBoundsThatACopiedRowGroupDoesNotTellAreLeftOut(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "f", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "nan", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "price", Type: &arrow.Decimal128Type{Precision: 9, Scale: 2}, Nullable: true},
		{Name: "long", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2}, nil)
	b.Field(1).(*array.Float64Builder).AppendValues([]float64{0, 2.5}, []bool{false, true})
	b.Field(2).(*array.Float64Builder).AppendValues([]float64{1, math.NaN()}, nil)
	b.Field(3).(*array.Decimal128Builder).AppendValues([]decimal128.Num{decimal128.FromI64(-250), decimal128.FromI64(199)}, nil)
	b.Field(4).(*array.StringBuilder).AppendValues([]string{strings.Repeat("x", 100), "y"}, nil)
	rec := b.NewRecord()
	defer rec.Release()
	raw, err := open(t, grouped(t, rec)).FetchRowGroup(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := parquetfile.NewWriter(&bytes.Buffer{}, schema, parquetfile.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := errors.Join(w.Write(rec), w.CopyRowGroup(raw)); err != nil {
		t.Fatal(err)
	}
	summary, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"numRecords":4,"minValues":{"id":1,"f":2.5,"price":-2.50},"maxValues":{"id":2,"f":2.5,"price":1.99},` +
		`"nullCount":{"id":0,"f":2,"nan":0,"price":0,"long":0}}`
	if have := summary.Stats.JSON(); have != want {
		t.Errorf("have %s\nwant %s", have, want)
	}
}

func TestADamagedPageHeaderOfARawRowGroupIsFound(t *testing.T) {
	body := grouped(t, numbered(0, 40), numbered(40, 80))
	zstd := []byte{0x28, 0xb5, 0x2f, 0xfd}
	at := bytes.Index(body, zstd) - 8 // in the header before the first page's body
	broken := bytes.Clone(body)
	broken[at] ^= 0xff
	var damaged *parquetfile.FileError
	if _, err := open(t, broken).FetchRowGroup(t.Context(), 0); !errors.As(err, &damaged) || damaged.Column != "id" || damaged.RowGroup != 0 {
		t.Fatalf("%v", err)
	}
	if _, err := open(t, broken).FetchRowGroup(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}

// A key index that does not belong to the row groups would hide rows from a merge.
func TestAKeyIndexThatIsDamagedIsNone(t *testing.T) {
	body := grouped(t, numbered(0, 40), numbered(40, 80))
	if got := keysOf(open(t, body)); len(got) != 2 {
		t.Fatalf("keys %v", got)
	}
	name := []byte("tidemark.keys")
	at := bytes.Index(body, name) + len(name) + 8
	for i := range 24 {
		broken := bytes.Clone(body)
		if broken[at+i] == 'A' {
			broken[at+i] = 'B'
		} else {
			broken[at+i] = 'A'
		}
		if got := keysOf(open(t, broken)); got != nil {
			t.Fatalf("byte %d: keys %v", i, got)
		}
	}
}

func TestSeekGoesOnWithTheRowGroup(t *testing.T) {
	r := open(t, grouped(t, numbered(0, 40), numbered(40, 80), numbered(80, 90)))
	for _, g := range []int{2, 0, 1} {
		r.Seek(g)
		rec, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if id := rec.Column(0).(*array.Int64).Value(0); id != int64(40*g) {
			t.Errorf("row group %d begins with row %d", g, id)
		}
		rec.Release()
	}
}
