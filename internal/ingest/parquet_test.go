package ingest

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

// TestNestedRowsAcrossBatchesAreWhole: one row group is many batches, and lists of any length, null and empty ones too,
// lie across their borders.
func TestNestedRowsAcrossBatchesAreWhole(t *testing.T) {
	const rows = 3*batchRows + 17
	s := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "tags", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
		{Name: "deep", Type: arrow.ListOf(arrow.StructOf(
			arrow.Field{Name: "k", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
			arrow.Field{Name: "l", Type: arrow.ListOf(arrow.FixedWidthTypes.Boolean), Nullable: true})), Nullable: true},
		{Name: "at", Type: arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Float64, Nullable: true}), Nullable: true},
		{Name: "m", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	for i := range rows {
		text := fmt.Sprintf(`{"id":%d,"tags":%s,"deep":%s,"at":%s,"m":%s}`, i,
			[]string{`null`, `[]`, fmt.Sprintf(`["t%d",null,"u"]`, i), `["x"]`}[i%4],
			[]string{`[{"k":1,"l":[true,null]},{"k":null,"l":null}]`, `null`, `[]`, `[null,{"k":2,"l":[]}]`, `[{"k":3,"l":[false]}]`}[i%5],
			[]string{`null`, `{"x":null}`, fmt.Sprintf(`{"x":%d.5}`, i)}[i%3],
			[]string{`null`, `[]`, `[{"key":"a","value":1},{"key":"b","value":null}]`}[i%3])
		if err := b.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	rec := b.NewRecord()
	defer rec.Release()
	var file bytes.Buffer
	w, err := pqarrow.NewFileWriter(s, &file, parquet.NewWriterProperties(), pqarrow.NewArrowWriterProperties())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	src, err := Open(context.Background(), Options{TempDir: t.TempDir()}, Stream("pipe", &file))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	at := int64(0)
	for got := range records(t, src) {
		part := rec.NewSlice(at, at+got.NumRows())
		for c, column := range got.Columns() {
			for i := range column.Len() {
				if column.ValueStr(i) != part.Column(c).ValueStr(i) {
					t.Fatalf("row %d, column %s: got %s, wrote %s", at+int64(i), s.Field(c).Name, column.ValueStr(i), part.Column(c).ValueStr(i))
				}
			}
		}
		part.Release()
		at += got.NumRows()
	}
	if at != rows {
		t.Errorf("%d rows instead of %d", at, rows)
	}
}
