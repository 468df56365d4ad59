package merge

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/decimal256"
	"github.com/apache/arrow/go/v17/arrow/float16"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/columns/columnstest"
	"tidemark/internal/table"
	"tidemark/writer"
)

// sample is some columns of values: batches as a program appends them, and the cells that the table has to hold, row by row
// over all batches. An id is put before the columns.
type sample struct {
	batches []arrow.Record
	want    []string
}

// column makes an array of a type.
func column[B array.Builder](mem memory.Allocator, t arrow.DataType, fill func(B)) arrow.Array {
	b := array.NewBuilder(mem, t)
	defer b.Release()
	fill(b.(B))
	return b.NewArray()
}

// batchOf makes a record of arrays, which it takes over; their columns are called c0, c1 and so on.
func batchOf(arrays ...arrow.Array) arrow.Record {
	fields := make([]arrow.Field, len(arrays))
	for i, a := range arrays {
		fields[i] = arrow.Field{Name: fmt.Sprintf("c%d", i), Type: a.DataType(), Nullable: true}
	}
	rec := array.NewRecord(arrow.NewSchema(fields, nil), arrays, int64(arrays[0].Len()))
	for _, a := range arrays {
		a.Release()
	}
	return rec
}

// rowsOfColumns is the cells of columns, row by row.
func rowsOfColumns(columns ...[]string) (rows []string) {
	for i := range columns[0] {
		var cells []string
		for _, c := range columns {
			cells = append(cells, c[i])
		}
		rows = append(rows, strings.Join(cells, "|"))
	}
	return rows
}

func longTexts(mem memory.Allocator) (s sample) {
	for batch := range 2 {
		s.batches = append(s.batches, batchOf(column(mem, arrow.BinaryTypes.String, func(b *array.StringBuilder) {
			for i := range 2 {
				text := strings.Repeat(string(rune('a'+2*batch+i)), 1<<20-1) + string(rune('A'+i))
				b.Append(text)
				s.want = append(s.want, fmt.Sprintf("%q", text))
			}
			b.Append("")
			b.AppendNull()
			s.want = append(s.want, `""`, "null")
		})))
	}
	return s
}

// dictionaries differ in their values, their order, what is null in them, and in how they are indexed.
func dictionaries(mem memory.Allocator) (s sample) {
	batch := func(index arrow.DataType, texts, blobs string, at string, want ...string) {
		dictionary := func(values arrow.DataType, words string) arrow.Array {
			t := &arrow.DictionaryType{IndexType: index, ValueType: values}
			indices, _, err := array.FromJSON(mem, index, strings.NewReader(at))
			if err != nil {
				panic(err)
			}
			defer indices.Release()
			dict := column(mem, values, func(b array.Builder) {
				for _, word := range strings.Split(words, " ") {
					switch b := b.(type) {
					case *array.StringBuilder:
						if word == "null" {
							b.AppendNull()
						} else {
							b.Append(word)
						}
					case *array.BinaryBuilder:
						b.Append([]byte(word))
					}
				}
			})
			defer dict.Release()
			return array.NewDictionaryArray(t, indices, dict)
		}
		s.batches = append(s.batches, batchOf(dictionary(arrow.BinaryTypes.String, texts), dictionary(arrow.BinaryTypes.Binary, blobs)))
		s.want = append(s.want, want...)
	}
	batch(arrow.PrimitiveTypes.Int8, "a b", "\xff \xfe", `[0,1,null,0]`, `"a"|ff`, `"b"|fe`, `null|null`, `"a"|ff`)
	batch(arrow.PrimitiveTypes.Int8, "b a", "\xff\x00 \x80", `[0,1]`, `"b"|ff00`, `"a"|80`)
	batch(arrow.PrimitiveTypes.Int32, "unused null c", "x y \xc3", `[1,2,2]`, `null|79`, `"c"|c3`, `"c"|c3`)
	batch(arrow.PrimitiveTypes.Uint16, "only", "z", `[null,null]`, `null|null`, `null|null`)
	return s
}

// decimals are the largest, the smallest and the least values of every precision, with no, some and only digits behind the
// point, once as 128 and once as 256 bits.
func decimals(mem memory.Allocator) (s sample) {
	var arrays []arrow.Array
	var cells [][]string
	for precision := int32(1); precision <= 38; precision++ {
		largest := new(big.Int).Sub(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil), big.NewInt(1))
		values := []*big.Int{largest, new(big.Int).Neg(largest), big.NewInt(1), big.NewInt(-1), big.NewInt(0)}
		for _, scale := range []int32{0, precision / 2, precision} {
			var want []string
			for _, v := range values {
				want = append(want, v.String())
			}
			cells = append(cells, append(want, "null"))
			arrays = append(arrays, column(mem, &arrow.Decimal128Type{Precision: precision, Scale: scale}, func(b *array.Decimal128Builder) {
				for _, v := range values {
					b.Append(decimal128.FromBigInt(v))
				}
				b.AppendNull()
			}))
		}
		cells = append(cells, cells[len(cells)-1])
		arrays = append(arrays, column(mem, &arrow.Decimal256Type{Precision: precision, Scale: precision}, func(b *array.Decimal256Builder) {
			for _, v := range values {
				b.Append(decimal256.FromBigInt(v))
			}
			b.AppendNull()
		}))
	}
	return sample{[]arrow.Record{batchOf(arrays...)}, rowsOfColumns(cells...)}
}

// timestamps are the last instants that a column of each unit, with and without zones, can bring into a table.
func timestamps(mem memory.Allocator) sample {
	var arrays []arrow.Array
	var cells [][]string
	for unit, micros := range map[arrow.TimeUnit]int64{arrow.Second: 1e6, arrow.Millisecond: 1e3, arrow.Microsecond: 1, arrow.Nanosecond: 0} {
		for _, zone := range []string{"", "UTC", "Europe/Oslo", "-11:30"} {
			first, last, one := int64(math.MinInt64), int64(math.MaxInt64), int64(1)
			if unit == arrow.Nanosecond {
				first, last, one = first/1000*1000, last/1000*1000, 1000
			} else {
				first, last = first/micros, last/micros
			}
			var want []string
			arrays = append(arrays, column(mem, &arrow.TimestampType{Unit: unit, TimeZone: zone}, func(b *array.TimestampBuilder) {
				for _, v := range []int64{first, last, -one, 0, one} {
					b.Append(arrow.Timestamp(v))
					if unit == arrow.Nanosecond {
						want = append(want, fmt.Sprint(v/1000))
					} else {
						want = append(want, fmt.Sprint(v*micros))
					}
				}
				b.AppendNull()
			}))
			cells = append(cells, append(want, "null"))
		}
	}
	return sample{[]arrow.Record{batchOf(arrays...)}, rowsOfColumns(cells...)}
}

// floats are the special values of each width.
func floats(mem memory.Allocator) sample {
	values := []float64{math.NaN(), math.Copysign(0, -1), 0, math.Inf(1), math.Inf(-1), 1.5}
	var cells []string
	for _, v := range values {
		if math.IsNaN(v) {
			cells = append(cells, "NaN")
		} else {
			cells = append(cells, fmt.Sprintf("%v/%x", v, math.Float64bits(v)))
		}
	}
	cells = append(cells, "null")
	arrays := []arrow.Array{
		column(mem, arrow.FixedWidthTypes.Float16, func(b *array.Float16Builder) {
			for _, v := range values {
				b.Append(float16.New(float32(v)))
			}
			b.AppendNull()
		}),
		column(mem, arrow.PrimitiveTypes.Float32, func(b *array.Float32Builder) {
			for _, v := range values {
				b.Append(float32(v))
			}
			b.AppendNull()
		}),
		column(mem, arrow.PrimitiveTypes.Float64, func(b *array.Float64Builder) {
			b.AppendValues(values, nil)
			b.AppendNull()
		}),
	}
	return sample{[]arrow.Record{batchOf(arrays...)}, rowsOfColumns(cells, cells, cells)}
}

// bytesOfAnyKind are bytes that are no text, beside text that is hardly any.
func bytesOfAnyKind(mem memory.Allocator) sample {
	blobs := []string{"\xff\xfe", "", "\x00", "a\x80b", "\xed\xa0\x80", "\xf4\x90\x80\x80"}
	texts := []string{"", "\x00", "a\x00", "\U0010ffff", "\ufeff", "日本"}
	fixed := []string{"\xff\xfe", "\x00\x00", "ab", "\x80\x80", "\x00\x01", "\xc3\x28"}
	var cells [3][]string
	for i := range blobs {
		cells[0] = append(cells[0], fmt.Sprintf("%x", blobs[i]))
		cells[1] = append(cells[1], fmt.Sprintf("%q", texts[i]))
		cells[2] = append(cells[2], fmt.Sprintf("%x", fixed[i]))
	}
	for i := range cells {
		cells[i] = append(cells[i], "null")
	}
	return sample{[]arrow.Record{batchOf(
		column(mem, arrow.BinaryTypes.Binary, func(b *array.BinaryBuilder) { b.AppendStringValues(append(blobs, ""), notLast(len(blobs))) }),
		column(mem, arrow.BinaryTypes.String, func(b *array.StringBuilder) { b.AppendValues(append(texts, ""), notLast(len(texts))) }),
		column(mem, &arrow.FixedSizeBinaryType{ByteWidth: 2}, func(b *array.FixedSizeBinaryBuilder) {
			for _, v := range fixed {
				b.Append([]byte(v))
			}
			b.AppendNull()
		}),
	)}, rowsOfColumns(cells[0], cells[1], cells[2])}
}

// notLast is a validity of n values and a null.
func notLast(n int) []bool { return append(slices.Repeat([]bool{true}, n), false) }

// nested is null at every depth of a struct of a list of structs with a map, and in lists of other kinds.
func nested(mem memory.Allocator) (s sample) {
	deep := arrow.StructOf(
		arrow.Field{Name: "items", Nullable: true, Type: arrow.ListOf(arrow.StructOf(
			arrow.Field{Name: "x", Type: arrow.BinaryTypes.String, Nullable: true},
			arrow.Field{Name: "counts", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32), Nullable: true},
		))},
		arrow.Field{Name: "amount", Type: &arrow.Decimal128Type{Precision: 5, Scale: 2}, Nullable: true},
	)
	pair := arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int16)
	large := arrow.LargeListOf(arrow.BinaryTypes.String)
	batch := func(columns [3]string, want ...string) {
		var arrays []arrow.Array
		for i, t := range []arrow.DataType{deep, pair, large} {
			a, _, err := array.FromJSON(mem, t, strings.NewReader(columns[i]))
			if err != nil {
				panic(err)
			}
			arrays = append(arrays, a)
		}
		s.batches = append(s.batches, batchOf(arrays...))
		s.want = append(s.want, want...)
	}
	batch([3]string{
		`[null, {"items":null,"amount":null}, {"items":[],"amount":"-999.99"}]`, `[null,[1,2],[null,3]]`, `[null,[],[null,""]]`,
	}, `null|null|null`, `{null,null}|[1,2]|[]`, `{[],-99999}|[null,3]|[null,""]`)
	batch([3]string{
		`[{"items":[null,{"x":null,"counts":null},{"x":"","counts":[]}],"amount":"999.99"},
		  {"items":[{"x":"a","counts":[{"key":"","value":null},{"key":"k","value":7}]}],"amount":null}, null]`,
		`[[null,null],null,[4,5]]`, `[["a","b",null],null,["c"]]`,
	}, `{[null,{null,null},{"",[]}],99999}|[null,null]|["a","b",null]`, `{[{"a",[{"",null},{"k",7}]}],null}|null|null`, `null|[4,5]|["c"]`)
	return s
}

// plain are numbers and truths, so that unsigned and long ones are widened too.
func plain(mem memory.Allocator) sample {
	rows := []struct {
		json, want string
	}{
		{`{"b":true,"i8":-128,"i64":-9223372036854775808,"u8":255,"u32":4294967295,"u64":18446744073709551615,"d":"1582-10-15"}`,
			"true|-128|-9223372036854775808|255|4294967295|18446744073709551615|-141427"},
		{`{"b":false,"i8":127,"i64":9223372036854775807,"u8":0,"u32":0,"u64":0,"d":"9999-12-31"}`,
			"false|127|9223372036854775807|0|0|0|2932896"},
		{`{}`, "null|null|null|null|null|null|null"},
	}
	s := arrow.NewSchema([]arrow.Field{
		{Name: "b", Type: arrow.FixedWidthTypes.Boolean, Nullable: true}, {Name: "i8", Type: arrow.PrimitiveTypes.Int8, Nullable: true},
		{Name: "i64", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "u8", Type: arrow.PrimitiveTypes.Uint8, Nullable: true},
		{Name: "u32", Type: arrow.PrimitiveTypes.Uint32, Nullable: true}, {Name: "u64", Type: arrow.PrimitiveTypes.Uint64, Nullable: true},
		{Name: "d", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
	}, nil)
	var out sample
	for _, r := range rows {
		rec, _, err := array.RecordFromJSON(mem, s, strings.NewReader("["+r.json+"]"), array.WithUseNumber())
		if err != nil {
			panic(err)
		}
		out.batches = append(out.batches, rec)
		out.want = append(out.want, r.want)
	}
	return out
}

var samples = map[string]func(memory.Allocator) sample{
	"texts of a megabyte": longTexts, "dictionaries": dictionaries, "decimals": decimals, "timestamps": timestamps, "floats": floats,
	"bytes": bytesOfAnyKind, "nested": nested, "plain": plain,
}

// withID puts the column id before the columns of rows from..to of a batch.
func withID(mem memory.Allocator, batch arrow.Record, from, to int64, id func(row int64) int64) arrow.Record {
	part := batch.NewSlice(from, to)
	defer part.Release()
	ids := column(mem, arrow.PrimitiveTypes.Int64, func(b *array.Int64Builder) {
		for row := from; row < to; row++ {
			b.Append(id(row))
		}
	})
	defer ids.Release()
	fields := append([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}}, part.Schema().Fields()...)
	return array.NewRecord(arrow.NewSchema(fields, nil), append([]arrow.Array{ids}, part.Columns()...), to-from)
}

// appender is a writer or a router.
type appender interface {
	append(rec arrow.Record) error
	seal() error
	close() error
}

type shardAppender struct {
	w *world
	*writer.Writer
}

func (a shardAppender) append(rec arrow.Record) error { return a.Append(a.w.ctx, rec) }
func (a shardAppender) close() error                  { return a.Close(a.w.ctx) }
func (a shardAppender) seal() error                   { _, err := a.Seal(a.w.ctx); return err }

type bucketAppender struct {
	w *world
	*writer.Router
}

func (a bucketAppender) append(rec arrow.Record) error { return a.Append(a.w.ctx, rec) }
func (a bucketAppender) close() error                  { return a.Close(a.w.ctx) }
func (a bucketAppender) seal() error                   { _, err := a.Seal(a.w.ctx); return err }

// appender opens the writer that programs have, on shard a of an append table or on all buckets.
func (w *world) appender() appender {
	w.t.Helper()
	d := writer.Deps{Store: w.store, Clock: w.clock, Random: w.random, Mem: w.mem}
	c := writer.Config{Root: w.store.URL(), Table: tableName}
	if w.table.Mode == table.Upsert {
		r, err := writer.OpenRouterWith(w.ctx, c, d)
		if err != nil {
			w.t.Fatal(err)
		}
		return bucketAppender{w, r}
	}
	c.Shard = "a"
	a, err := writer.ClaimWith(w.ctx, c, d)
	if err != nil {
		w.t.Fatal(err)
	}
	return shardAppender{w, a}
}

// appendAll appends the rows of a sample as the ids that id gives them, those with a negative id excepted, a generation for
// every second batch, with batches and a generation of no rows between them.
func (w *world) appendAll(s sample, id func(row int64) int64) {
	w.t.Helper()
	a := w.appender()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	give := func(batch arrow.Record, from, to, before int64) {
		rec := withID(w.mem, batch, from, to, func(row int64) int64 { return id(before + row) })
		must(a.append(rec))
		rec.Release()
	}
	before := int64(0)
	for i, batch := range s.batches {
		give(batch, 0, 0, before)
		for from := int64(0); from < batch.NumRows(); from++ {
			to := from
			for to < batch.NumRows() && id(before+to) >= 0 {
				to++
			}
			if to > from {
				give(batch, from, to, before)
				from = to
			}
		}
		give(batch, batch.NumRows(), batch.NumRows(), before)
		before += batch.NumRows()
		if i%2 == 1 {
			must(a.seal())
			must(a.seal()) // of no rows
		}
	}
	must(a.seal())
	must(a.close())
}

// cells are the rows that a scan gives, bit by bit, sorted.
func (w *world) cells() (rows []string) {
	w.t.Helper()
	_, records, err := Scan(w.ctx, w.deps(), tableName, ScanOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for rec, err := range records {
		if err != nil {
			w.t.Fatal(err)
		}
		rows = append(rows, columnstest.Rows(rec)...)
	}
	slices.Sort(rows)
	return rows
}

// expectCells compares the rows that a scan gives, and those that arrow-go reads from the files, with cells by id.
func (w *world) expectCells(want map[int64]string) {
	w.t.Helper()
	var rows []string
	for id, cells := range want {
		rows = append(rows, fmt.Sprintf("%d|%s", id, cells))
	}
	slices.Sort(rows)
	for reader, got := range map[string][]string{"a scan": w.cells(), "arrow-go": w.byArrow()} {
		if !slices.Equal(got, rows) {
			w.t.Errorf("%s gives %d rows, want %d:\n%.2000q\nwant\n%.2000q", reader, len(got), len(rows), got, rows)
		}
	}
	w.expectNoStrayFiles()
}

// What programs append is in the table bit by bit once it is merged, whichever way its rows took: decoded, joined, recoded,
// compacted, or folded into files that were there before.
func TestEveryValueSurvivesAWholeMerge(t *testing.T) {
	for name, make := range samples {
		world := func(t *testing.T, key ...string) (*world, sample) {
			s := make(memory.DefaultAllocator)
			first := withID(memory.DefaultAllocator, s.batches[0], 0, 0, nil)
			return newWorld(t, table.CreateOptions{Schema: schemaOf(first.Schema()), Key: key, Buckets: 2 * len(key)}), s
		}
		t.Run(name+"/append", func(t *testing.T) {
			w, s := world(t)
			want := map[int64]string{}
			n := int64(len(s.want))
			for round := range int64(3) {
				w.appendAll(s, func(row int64) int64 { return round*n + row })
				for row, cells := range s.want {
					want[round*n+int64(row)] = cells
				}
				d := w.deps()
				if round == 1 {
					d = w.joining()
				}
				if out, err := Run(w.ctx, d, w.request("a")); err != nil || len(out.Failures) > 0 {
					t.Fatal(err, out.Failures)
				}
				w.expectCells(want)
			}
			if out := w.compact(); out.FilesAdded != 1 || len(w.liveFiles()) != 1 {
				t.Fatalf("compacted into %q: %+v", w.liveFiles(), out)
			}
			w.expectCells(want)
		})
		for _, rowGroup := range []int64{0, 1} { // the second: untouched row groups are copied
			t.Run(fmt.Sprintf("%s/upsert/%d", name, rowGroup), func(t *testing.T) {
				w, s := world(t, "id")
				w.rowGroupBytes = rowGroup
				want := map[int64]string{}
				n := int64(len(s.want))
				w.appendAll(s, func(row int64) int64 { return row })
				for row, cells := range s.want {
					want[int64(row)] = cells
				}
				w.merge(w.buckets()...)
				w.expectCells(want)
				// The first half of the values for the second half of the keys, from behind.
				w.appendAll(s, func(row int64) int64 {
					if row >= n/2 {
						return -1
					}
					return n - 1 - row
				})
				for row := range n / 2 {
					want[n-1-row] = s.want[row]
				}
				w.merge(w.buckets()...)
				w.expectCells(want)
				a := w.appender()
				gone := fromJSONOf(w, []arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, fieldOp}, `[{"id":0,"_op":"d"}]`)
				if err := a.append(gone); err != nil {
					t.Fatal(err)
				}
				gone.Release()
				if err := a.close(); err != nil { // it seals
					t.Fatal(err)
				}
				delete(want, 0)
				w.merge(w.buckets()...)
				w.expectCells(want)
			})
		}
	}
}

func fromJSONOf(w *world, fields []arrow.Field, rows string) arrow.Record {
	w.t.Helper()
	rec, _, err := array.RecordFromJSON(w.mem, arrow.NewSchema(fields, nil), strings.NewReader(rows))
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// Keys of every kind are one key where their values are one, however they are written: all NaNs, and both zeros. The newest
// version of each stays, and none is lost for its length or its bytes.
func TestTheNewestVersionOfAKeyOfAnyKindStays(t *testing.T) {
	long := strings.Repeat("k", 1<<20)
	edge := decimal128.GetMaxValue(38)
	for name, c := range map[string]struct {
		keys arrow.Array
		same []int // which keys are one
	}{
		"double": {column(memory.DefaultAllocator, arrow.PrimitiveTypes.Float64, func(b *array.Float64Builder) {
			b.AppendValues([]float64{math.NaN(), math.Float64frombits(0xfff8000000000001), math.Copysign(0, -1), 0, math.Inf(1), math.Inf(-1), math.SmallestNonzeroFloat64}, nil)
		}), []int{0, 0, 1, 1, 2, 3, 4}},
		"float": {column(memory.DefaultAllocator, arrow.PrimitiveTypes.Float32, func(b *array.Float32Builder) {
			b.AppendValues([]float32{math.Float32frombits(0xffc00001), float32(math.NaN()), 0, float32(math.Copysign(0, -1)), -1, 1}, nil)
		}), []int{0, 0, 1, 1, 2, 3}},
		"text": {column(memory.DefaultAllocator, arrow.BinaryTypes.String, func(b *array.StringBuilder) {
			b.AppendValues([]string{"", "\x00", "\x00\x00", long, long + "a", long + "b", "\U0010ffff", ""}, nil)
		}), []int{0, 1, 2, 3, 4, 5, 6, 0}},
		"bytes": {column(memory.DefaultAllocator, arrow.BinaryTypes.Binary, func(b *array.BinaryBuilder) {
			b.AppendStringValues([]string{"\xff", "\xff\x00", "", "\x00", "\xc3", "\xff"}, nil)
		}), []int{0, 1, 2, 3, 4, 0}},
		"decimal": {column(memory.DefaultAllocator, &arrow.Decimal128Type{Precision: 38, Scale: 38}, func(b *array.Decimal128Builder) {
			b.AppendValues([]decimal128.Num{edge, edge.Negate(), decimal128.FromI64(1), decimal128.FromI64(-1), decimal128.FromI64(0)}, nil)
		}), []int{0, 1, 2, 3, 4}},
		"instant": {column(memory.DefaultAllocator, &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, func(b *array.TimestampBuilder) {
			b.AppendValues([]arrow.Timestamp{math.MinInt64, math.MaxInt64, -1, 0}, nil)
		}), []int{0, 1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			fields := []arrow.Field{{Name: "k", Type: c.keys.DataType()}, {Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}
			w := newWorld(t, table.CreateOptions{Schema: schemaOf(arrow.NewSchema(fields, nil)), Key: []string{"k"}, Buckets: 2})
			newest := map[int]string{}
			for round := range 3 {
				a := w.appender()
				for i, same := range c.same {
					key := array.NewSlice(c.keys, int64(i), int64(i+1))
					n := column(w.mem, arrow.PrimitiveTypes.Int64, func(b *array.Int64Builder) { b.Append(int64(100*round + i)) })
					rec := array.NewRecord(arrow.NewSchema(fields, nil), []arrow.Array{key, n}, 1)
					key.Release()
					n.Release()
					if err := a.append(rec); err != nil {
						t.Fatal(err)
					}
					newest[same] = columnstest.Rows(rec)[0]
					rec.Release()
				}
				if err := a.close(); err != nil {
					t.Fatal(err)
				}
				if round != 1 { // two generations of a bucket in one merge, too
					w.merge(w.buckets()...)
				}
			}
			want := slices.Sorted(maps.Values(newest))
			if got := w.cells(); !slices.Equal(got, want) {
				t.Errorf("the table holds\n%.3000q\nwant\n%.3000q", got, want)
			}
			w.expectNoStrayFiles()
		})
	}
}

// Batches without rows among others, which other programs may seal, change nothing.
func TestBatchesWithoutRowsAmongOthersChangeNothing(t *testing.T) {
	rows := []row{{key: "a", value: 1}, {key: "b", value: 2}, {key: "c", value: 3}}
	run := func(w *world, upsert, join bool) {
		shard, d := "a", w.deps()
		if upsert {
			shard = w.buckets()[0]
		}
		if join {
			d = w.joining()
		}
		none := record(w.mem, nil, upsert)
		defer none.Release()
		for range 2 {
			some, more := record(w.mem, rows[:2], upsert), record(w.mem, rows[2:], upsert)
			w.sealRecord(shard, none, some, none, none, more, none)
			w.sealRecord(shard, none, none)
			some.Release()
			more.Release()
		}
		if out, err := Run(w.ctx, d, w.request(shard)); err != nil || len(out.Failures) > 0 || out.Generations != 4 {
			w.t.Fatal(err, out)
		}
		want := rows
		if !upsert {
			want = append(slices.Clone(rows), rows...)
		}
		w.expect(want)
		w.expectNoStrayFiles()
	}
	t.Run("decoded", func(t *testing.T) { run(newWorld(t, appendTable()), false, false) })
	t.Run("joined", func(t *testing.T) { run(newWorld(t, appendTable()), false, true) })
	t.Run("upsert", func(t *testing.T) { run(newWorld(t, upsertTable(1, false)), true, false) })
}
