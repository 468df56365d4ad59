package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	"github.com/cockroachdb/datadriven"
)

// TestTyping runs the scenarios under testdata. Each "file name=…" block is one input; "open" reads those collected so
// far and prints the schema and the rows, or the error. "table" gives the schema of an existing table, as CSV of which
// the first row is parsed for types: name type.
func TestTyping(t *testing.T) {
	datadriven.Walk(t, "testdata/typing", func(t *testing.T, path string) {
		var inputs []Input
		var table *arrow.Schema
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "file":
				var name string
				d.ScanArgs(t, "name", &name)
				file := filepath.Join(t.TempDir(), name)
				text := strings.NewReplacer(`\r`, "\r", `\xff`, "\xff").Replace(d.Input)
				if !d.HasArg("cut") {
					text += "\n"
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				inputs = append(inputs, Input{path: file, name: name})
				return ""
			case "table":
				table = tableSchema(t, d.Input)
				return ""
			case "open":
				opts := Options{Sanitize: d.HasArg("sanitize"), Table: table}
				defer func() { inputs, table = nil, nil }()
				return printed(t, opts, inputs...)
			}
			return "unknown command " + d.Cmd
		})
	})
}

func tableSchema(t *testing.T, text string) *arrow.Schema {
	t.Helper()
	types := map[string]arrow.DataType{
		"string": arrow.BinaryTypes.String, "int8": arrow.PrimitiveTypes.Int8, "int64": arrow.PrimitiveTypes.Int64, "float": arrow.PrimitiveTypes.Float32, "double": arrow.PrimitiveTypes.Float64,
		"bool": arrow.FixedWidthTypes.Boolean, "date": arrow.FixedWidthTypes.Date32, "timestamp": typeZoned, "timestamp_ntz": typeLocal,
		"decimal(8,2)": &arrow.Decimal128Type{Precision: 8, Scale: 2}, "binary": arrow.BinaryTypes.Binary,
		"map": arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), "list": arrow.ListOf(arrow.PrimitiveTypes.Int64),
		"struct": arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Float64, Nullable: true}, arrow.Field{Name: "z", Type: arrow.BinaryTypes.String, Nullable: true}),
	}
	var fields []arrow.Field
	for _, line := range strings.Split(text, "\n") {
		name, typ, _ := strings.Cut(line, " ")
		if types[typ] == nil {
			t.Fatalf("no type %q", typ)
		}
		fields = append(fields, arrow.Field{Name: name, Type: types[typ], Nullable: true})
	}
	return arrow.NewSchema(fields, nil)
}

func printed(t *testing.T, opts Options, inputs ...Input) string {
	t.Helper()
	ctx := context.Background()
	src, err := Open(ctx, opts, inputs...)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	defer src.Close()
	var b strings.Builder
	for _, f := range src.Schema().Fields() {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Type)
	}
	for {
		rec, err := src.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return b.String() + "error: " + err.Error() + "\n"
		}
		if !rec.Schema().Equal(src.Schema()) {
			t.Errorf("record has schema %s, source %s", rec.Schema(), src.Schema())
		}
		for row := range int(rec.NumRows()) {
			for c, col := range rec.Columns() {
				if c > 0 {
					b.WriteString(" | ")
				}
				if col.IsNull(row) {
					b.WriteString("null")
				} else if s, ok := col.(*array.String); ok {
					fmt.Fprintf(&b, "%q", s.Value(row))
				} else {
					b.WriteString(col.ValueStr(row))
				}
			}
			b.WriteByte('\n')
		}
		rec.Release()
	}
	return b.String()
}

// sample is a record with the types that files of each format hold.
func sample(rows int) arrow.Record {
	s := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "when", Type: &arrow.TimestampType{Unit: arrow.Microsecond}, Nullable: true},
		{Name: "tags", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
		{Name: "at", Type: arrow.StructOf(arrow.Field{Name: "x$", Type: arrow.PrimitiveTypes.Float64, Nullable: true}), Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.TimestampBuilder).Append(arrow.Timestamp(i * 1000))
		b.Field(2).(*array.ListBuilder).Append(true)
		b.Field(2).(*array.ListBuilder).ValueBuilder().(*array.StringBuilder).Append(fmt.Sprint(i))
		b.Field(3).(*array.StructBuilder).Append(i%2 == 0)
		if i%2 == 0 {
			b.Field(3).(*array.StructBuilder).FieldBuilder(0).(*array.Float64Builder).Append(float64(i))
		}
	}
	return b.NewRecord()
}

func encode(t testing.TB, kind format, recs ...arrow.Record) []byte {
	t.Helper()
	var out bytes.Buffer
	var err error
	switch kind {
	case formatParquet:
		var w *pqarrow.FileWriter
		w, err = pqarrow.NewFileWriter(recs[0].Schema(), &out, parquet.NewWriterProperties(parquet.WithMaxRowGroupLength(7000)), pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
		if err == nil {
			for _, rec := range recs {
				err = errors.Join(err, w.Write(rec))
			}
			err = errors.Join(err, w.Close())
		}
	case formatArrowStream:
		w := ipc.NewWriter(&out, ipc.WithSchema(recs[0].Schema()), ipc.WithZstd())
		for _, rec := range recs {
			err = errors.Join(err, w.Write(rec))
		}
		err = errors.Join(err, w.Close())
	case formatArrowFile:
		f, ferr := os.Create(filepath.Join(t.TempDir(), "f"))
		if ferr != nil {
			t.Fatal(ferr)
		}
		defer f.Close()
		w, werr := ipc.NewFileWriter(f, ipc.WithSchema(recs[0].Schema()))
		err = werr
		for _, rec := range recs {
			err = errors.Join(err, w.Write(rec))
		}
		err = errors.Join(err, w.Close())
		if err == nil {
			body, rerr := os.ReadFile(f.Name())
			out.Write(body)
			err = rerr
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestTypedFormatsAreReadFromFilesAndStreams(t *testing.T) {
	rec := sample(20_000)
	defer rec.Release()
	for _, c := range []struct {
		kind format
		ext  string
	}{{formatParquet, ".parquet"}, {formatArrowFile, ".arrow"}, {formatArrowStream, ".arrow"}} {
		body := encode(t, c.kind, rec)
		path := filepath.Join(t.TempDir(), "rows"+c.ext)
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, in := range []Input{File(path), Stream("standard input", iotestReader{bytes.NewReader(body)})} {
			src, err := Open(context.Background(), Options{Sanitize: true, TempDir: t.TempDir()}, in)
			if err != nil {
				t.Fatal(err)
			}
			if got := src.Schema().Field(3).Type.(*arrow.StructType).Field(0).Name; got != "x_" {
				t.Errorf("nested name %q was not sanitized", got)
			}
			var rows, sum int64
			for rec := range records(t, src) {
				at := rec.Column(3).(*array.Struct)
				if at.DataType().(*arrow.StructType).Field(0).Name != "x_" {
					t.Error("the record does not have the sanitized name")
				}
				for i, v := range rec.Column(0).(*array.Int64).Int64Values() {
					sum += v
					if at.IsValid(i) != (v%2 == 0) || at.IsValid(i) && at.Field(0).(*array.Float64).Value(i) != float64(v) {
						t.Fatalf("row %d: wrong struct", v)
					}
				}
				rows += rec.NumRows()
			}
			if rows != 20_000 || sum != 20_000*19_999/2 {
				t.Errorf("%s: %d rows with sum %d", in.name, rows, sum)
			}
			if done, total := src.Progress(); done != total || total != int64(len(body)) {
				t.Errorf("progress ends at %d of %d; the file has %d", done, total, len(body))
			}
			if err := src.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// iotestReader hides everything but Read, as a pipe does.
type iotestReader struct{ r io.Reader }

func (r iotestReader) Read(p []byte) (int, error) { return r.r.Read(p) }

func records(t *testing.T, src *Source) func(func(arrow.Record) bool) {
	return func(yield func(arrow.Record) bool) {
		for {
			rec, err := src.Next(context.Background())
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			more := yield(rec)
			rec.Release()
			if !more {
				return
			}
		}
	}
}

func TestDamagedTypedFilesAreErrorsNotPanics(t *testing.T) {
	rec := sample(300)
	defer rec.Release()
	for _, kind := range []format{formatParquet, formatArrowFile, formatArrowStream} {
		body := encode(t, kind, rec)
		for step := range 200 {
			broken := bytes.Clone(body)
			at := (step*7919 + 13) % len(broken)
			if step%2 == 0 {
				broken = broken[:at]
			} else {
				broken[at] ^= byte(step | 1)
			}
			src, err := Open(context.Background(), Options{Sanitize: true, TempDir: t.TempDir()}, Stream("pipe", bytes.NewReader(broken)))
			if err != nil {
				continue
			}
			for {
				rec, err := src.Next(context.Background())
				if err != nil {
					break
				}
				rec.Release()
			}
			if err := src.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
				t.Error(err)
			}
		}
	}
}

func TestFilesWithoutOneSchemaAreRefusedNamingFileAndColumn(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, fields ...arrow.Field) Input {
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
		for _, f := range b.Fields() {
			f.AppendEmptyValue()
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, encode(t, formatParquet, b.NewRecord()), 0o600); err != nil {
			t.Fatal(err)
		}
		return Input{path: path, name: name}
	}
	id := arrow.Field{Name: "id", Type: arrow.PrimitiveTypes.Int64}
	price := arrow.Field{Name: "price", Type: arrow.PrimitiveTypes.Float64}
	a, turned := write("a.parquet", id, price), write("turned.parquet", price, id)
	if got := printed(t, Options{}, a, turned); got != "id: int64\nprice: float64\n0 | 0\n0 | 0\n" {
		t.Errorf("columns in another order:\n%s", got)
	}
	price.Type = arrow.BinaryTypes.String
	for want, in := range map[string]Input{
		`b.parquet, column "price": is utf8 here, but float64 in a.parquet`:       write("b.parquet", id, price),
		`c.parquet, column "price": is missing here, but a.parquet has it`:        write("c.parquet", id),
		`a.parquet, column "more": is missing here, but d.parquet has it (this f`: write("d.parquet", id, arrow.Field{Name: "price", Type: arrow.PrimitiveTypes.Float64}, arrow.Field{Name: "more", Type: arrow.BinaryTypes.String}),
	} {
		_, err := Open(context.Background(), Options{}, a, in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if e := (*Error)(nil); !errors.As(err, &e) || e.Code != CodeSchemaClash {
			t.Errorf("%v has no code %s", err, CodeSchemaClash)
		}
	}
}

func TestUnreadableInputsSayWhy(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.csv")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in   Input
		want string
	}{
		{File(filepath.Join(dir, "absent.csv")), "absent.csv: no such file or directory"},
		{File(dir), "is a directory"},
		{File(empty), "is empty; the first line must name the columns"},
		{Stream("standard input", strings.NewReader("")), "standard input: is empty"},
		{Stream("standard input", strings.NewReader("\x1f\x8b\x08\x00")), "standard input: holds neither Parquet"},
		{Stream("standard input", strings.NewReader(" [ ] ")), "standard input: holds no rows"},
		{Stream("standard input", io.MultiReader(strings.NewReader("a,b\n"), failing{})), "cannot make a temporary copy: the pipe broke"},
	} {
		temp := t.TempDir()
		_, err := Open(context.Background(), Options{TempDir: temp}, c.in)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
		if left, _ := os.ReadDir(temp); len(left) > 0 {
			t.Errorf("%v left a temporary file", err)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the pipe broke") }

func TestReadingHonoursItsContext(t *testing.T) {
	src, err := Open(context.Background(), Options{}, Stream("in", strings.NewReader("a,b\n1,2\n")))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := src.Next(ctx); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	if _, err := Open(ctx, Options{}, Stream("in", strings.NewReader("a,b\n1,2\n"))); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestRowsLongerThanTheWindow(t *testing.T) {
	long := strings.Repeat(`long ""text""`+"\n", 100_000)
	text := "a,b\n" + `1,"` + long + "\"\n2,x\n"
	src, err := Open(context.Background(), Options{}, Stream("in", strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for rec := range records(t, src) {
		got := rec.Column(1).(*array.String)
		if got.Value(0) != strings.ReplaceAll(long, `""`, `"`) || got.Value(1) != "x" {
			t.Error("the long field changed")
		}
	}
	asJSON, _ := json.Marshal(map[string]string{"b": long})
	src, err = Open(context.Background(), Options{}, Stream("in", bytes.NewReader(asJSON)))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for rec := range records(t, src) {
		if rec.Column(0).(*array.String).Value(0) != long {
			t.Error("the long string changed")
		}
	}
}
