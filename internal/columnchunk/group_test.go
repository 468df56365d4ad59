package columnchunk

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/decimal128"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

var testOptions = Options{PageBytes: 1 << 20, DictionaryBytes: 1 << 20, Compress: compressZstd}

var zstdEncoder, _ = zstd.NewWriter(nil, zstd.WithZeroFrames(true), zstd.WithAllLitEntropyCompression(true))

func compressZstd(dst, src []byte, _ Effort) []byte { return zstdEncoder.EncodeAll(src, dst[:0]) }

// fataler is a test or a property.
type fataler interface {
	Helper()
	Fatal(...any)
}

// assemble lays records out as a Parquet file, a row group each.
func assemble(t fataler, s *arrow.Schema, o Options, groups ...[]arrow.Record) []byte {
	t.Helper()
	props := parquet.NewWriterProperties(parquet.WithVersion(parquet.V2_LATEST), parquet.WithCompression(compress.Codecs.Zstd))
	stored, err := pqarrow.ToParquet(s, props, pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	footer := metadata.NewFileMetadataBuilder(stored, props, nil)
	var out bytes.Buffer
	out.WriteString("PAR1")
	g := NewGroup(s, o)
	for i, recs := range groups {
		for _, rec := range recs {
			g.Add(rec, 0, int(rec.NumRows()))
		}
		if _, err := g.WriteTo(&out, int64(out.Len()), footer.AppendRowGroup(), int16(i)); err != nil {
			t.Fatal(err)
		}
	}
	meta, err := footer.Finish()
	if err != nil {
		t.Fatal(err)
	}
	at := out.Len()
	if _, err := meta.WriteTo(&out, nil); err != nil {
		t.Fatal(err)
	}
	length := binary.LittleEndian.AppendUint32(nil, uint32(out.Len()-at))
	out.Write(length)
	out.WriteString("PAR1")
	return out.Bytes()
}

// readBack reads a file with arrow-go, which is the oracle.
func readBack(t fataler, mem memory.Allocator, body []byte) arrow.Table {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fr, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{BatchSize: 1 << 16}, mem)
	if err != nil {
		t.Fatal(err)
	}
	table, err := fr.ReadTable(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return table
}

var everyType = arrow.NewSchema([]arrow.Field{
	{Name: "bool", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
	{Name: "i8", Type: arrow.PrimitiveTypes.Int8, Nullable: true},
	{Name: "i16", Type: arrow.PrimitiveTypes.Int16, Nullable: true},
	{Name: "i32", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	{Name: "i64", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "required", Type: arrow.PrimitiveTypes.Int64},
	{Name: "f32", Type: arrow.PrimitiveTypes.Float32, Nullable: true},
	{Name: "f64", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	{Name: "date", Type: arrow.FixedWidthTypes.Date32, Nullable: true},
	{Name: "ts", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, Nullable: true},
	{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "binary", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "decimal", Type: &arrow.Decimal128Type{Precision: 20, Scale: 2}, Nullable: true},
}, nil)

// everything builds n rows whose values repeat more or less, in runs or not, with more or fewer nulls.
func everything(mem memory.Allocator, r *rand.Rand, n, distinct, run, nullsIn int) arrow.Record {
	b := array.NewRecordBuilder(mem, everyType)
	defer b.Release()
	v := int64(0)
	for i := range n {
		if i%run == 0 {
			v = r.Int64N(int64(distinct)) - int64(distinct)/2
		}
		for c, f := range everyType.Fields() {
			if f.Nullable && nullsIn > 0 && r.IntN(nullsIn) == 0 {
				b.Field(c).AppendNull()
				continue
			}
			switch b := b.Field(c).(type) {
			case *array.BooleanBuilder:
				b.Append(v%3 == 0)
			case *array.Int8Builder:
				b.Append(int8(v))
			case *array.Int16Builder:
				b.Append(int16(v))
			case *array.Int32Builder:
				b.Append(int32(v) * 77777)
			case *array.Int64Builder:
				b.Append(v * 1e12)
			case *array.Float32Builder:
				b.Append(float32(v) / 3)
			case *array.Float64Builder:
				b.Append(math.Sqrt(float64(v))) // NaN for some
			case *array.Date32Builder:
				b.Append(arrow.Date32(v))
			case *array.TimestampBuilder:
				b.Append(arrow.Timestamp(v * 1e6))
			case *array.StringBuilder:
				b.Append(fmt.Sprintf("value %d", v)[r.IntN(2)*6:])
			case *array.BinaryBuilder:
				b.Append(binary.BigEndian.AppendUint64(nil, uint64(v)))
			case *array.Decimal128Builder:
				b.Append(decimal128.FromI64(v * 1e9))
			}
		}
	}
	return b.NewRecord()
}

func TestEveryTypeReadsBackAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := memory.NewGoAllocator()
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		o := testOptions
		o.PageBytes = rapid.SampledFrom([]int{256, 8 << 10, 1 << 20}).Draw(t, "page")
		o.DictionaryBytes = rapid.SampledFrom([]int{0, 512, 1 << 20}).Draw(t, "dictionary")
		var groups [][]arrow.Record
		var all []arrow.Record
		for range rapid.IntRange(1, 2).Draw(t, "groups") {
			var recs []arrow.Record
			for range rapid.IntRange(1, 3).Draw(t, "records") {
				rec := everything(mem, r, rapid.SampledFrom([]int{1, 7, 100, 5000, 30_000}).Draw(t, "rows"),
					rapid.SampledFrom([]int{1, 2, 100, 1 << 20}).Draw(t, "distinct"), rapid.SampledFrom([]int{1, 9, 1000}).Draw(t, "run"),
					rapid.SampledFrom([]int{0, 1, 2, 50}).Draw(t, "nulls"))
				from := rapid.Int64Range(0, rec.NumRows()-1).Draw(t, "from")
				slice := rec.NewSlice(from, rec.NumRows())
				recs = append(recs, slice)
			}
			groups = append(groups, recs)
			all = append(all, recs...)
		}
		body := assemble(t, everyType, o, groups...)
		if again := assemble(t, everyType, o, groups...); !bytes.Equal(again, body) {
			t.Fatal("the same rows gave another file")
		}
		got := readBack(t, mem, body)
		defer got.Release()
		want := array.NewTableFromRecords(everyType, all)
		defer want.Release()
		for i := range everyType.Fields() {
			g, err := array.Concatenate(got.Column(i).Data().Chunks(), mem)
			if err != nil {
				t.Fatal(err)
			}
			w, err := array.Concatenate(want.Column(i).Data().Chunks(), mem)
			if err != nil {
				t.Fatal(err)
			}
			if !array.ApproxEqual(g, w, array.WithNaNsEqual(true), array.WithAbsTolerance(0)) {
				t.Fatalf("column %s differs", everyType.Field(i).Name)
			}
		}
	})
}

// bigEndian reads a decimal as Parquet stores it.
func bigEndian(b []byte) decimal128.Num {
	v := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return decimal128.FromBigInt(v)
}

// Floats that are no numbers are above all others in what a chunk says of its rows, and in no statistics, which other
// engines read in their own ways.
func TestBoundsOfFloats(t *testing.T) {
	nan, zero := math.NaN(), 0.0
	for _, typ := range []arrow.DataType{arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64} {
		for _, dictionary := range []int{0, 1 << 20} {
			for _, c := range []struct {
				values    []float64
				low, high float64
				said      bool
			}{
				{[]float64{3, -2.5, 7}, -2.5, 7, true},
				{[]float64{3, nan, 7}, 3, nan, false},
				{[]float64{nan}, nan, nan, false},
				{[]float64{zero}, -zero, zero, true},
				{[]float64{math.Inf(1), math.Inf(-1)}, math.Inf(-1), math.Inf(1), true},
			} {
				b := array.NewBuilder(memory.DefaultAllocator, typ)
				for _, v := range c.values {
					if err := b.AppendValueFromString(fmt.Sprint(v)); err != nil {
						t.Fatal(err)
					}
				}
				o := testOptions
				o.DictionaryBytes = dictionary
				column := NewColumn(typ, false, o)
				column.Add(b.NewArray(), 0, len(c.values))
				chunk := column.End()
				got := func(b []byte) float64 {
					if len(b) == 4 {
						return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
					}
					return math.Float64frombits(binary.LittleEndian.Uint64(b))
				}
				same := func(a, b float64) bool { return a == b || a != a && b != b }
				low, high := got(chunk.Low), got(chunk.High)
				if !same(low, c.low) || !same(high, c.high) || chunk.Statistics.HasMin != c.said {
					t.Errorf("%v of %v: %v to %v, in statistics %v", typ, c.values, low, high, chunk.Statistics.HasMin)
				}
				if low == 0 && (!math.Signbit(low) || math.Signbit(high)) {
					t.Errorf("%v of %v: the zeros have the signs %v and %v", typ, c.values, math.Signbit(low), math.Signbit(high))
				}
			}
		}
	}
}

func TestStatisticsNeverExcludeAValue(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, distinct := range []int{1, 100, 1 << 30} {
		rec := everything(memory.DefaultAllocator, r, 40_000, distinct, 1, 7)
		body := assemble(t, everyType, testOptions, []arrow.Record{rec})
		reader, err := file.NewParquetReader(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range everyType.Fields() {
			chunk, err := reader.MetaData().RowGroup(0).ColumnChunk(i)
			if err != nil {
				t.Fatal(err)
			}
			stats, err := chunk.Statistics()
			if err != nil {
				t.Fatal(err)
			}
			if stats.NullCount() != int64(rec.Column(i).NullN()) {
				t.Errorf("%s: %d nulls, want %d", f.Name, stats.NullCount(), rec.Column(i).NullN())
			}
			switch c := rec.Column(i).(type) {
			case *array.Int64:
				s := stats.(*metadata.Int64Statistics)
				var values []int64
				for j, v := range c.Int64Values() {
					if c.IsValid(j) {
						values = append(values, v)
					}
				}
				if s.Min() != slices.Min(values) || s.Max() != slices.Max(values) {
					t.Errorf("%s: %d to %d, want %d to %d", f.Name, s.Min(), s.Max(), slices.Min(values), slices.Max(values))
				}
			case *array.String:
				s := stats.(*metadata.ByteArrayStatistics)
				var values []string
				for j := range c.Len() {
					if c.IsValid(j) {
						values = append(values, c.Value(j))
					}
				}
				if string(s.Min()) != slices.Min(values) || string(s.Max()) != slices.Max(values) {
					t.Errorf("%s: %q to %q, want %q to %q", f.Name, s.Min(), s.Max(), slices.Min(values), slices.Max(values))
				}
			case *array.Float64:
				var values []float64
				for j, v := range c.Float64Values() {
					if c.IsValid(j) {
						values = append(values, v)
					}
				}
				if slices.ContainsFunc(values, math.IsNaN) {
					if stats.HasMinMax() {
						t.Errorf("%s has bounds, which leave out NaN", f.Name)
					}
				} else if s := stats.(*metadata.Float64Statistics); !s.HasMinMax() || s.Min() != slices.Min(values) || s.Max() != slices.Max(values) {
					t.Errorf("%s: %v to %v, want %v to %v", f.Name, s.Min(), s.Max(), slices.Min(values), slices.Max(values))
				}
			case *array.Decimal128:
				s := stats.(*metadata.FixedLenByteArrayStatistics)
				var low, high decimal128.Num
				first := true
				for j, v := range c.Values() {
					if c.IsValid(j) && (first || v.Less(low)) {
						low = v
					}
					if c.IsValid(j) && (first || v.Greater(high)) {
						high = v
					}
					first = first && !c.IsValid(j)
				}
				if got := [2]decimal128.Num{bigEndian(s.Min()), bigEndian(s.Max())}; got != [2]decimal128.Num{low, high} {
					t.Errorf("%s: %v to %v, want %v to %v", f.Name, got[0], got[1], low, high)
				}
			}
		}
	}
}

func TestHybridRunsAndPackedGroupsDecodeToTheirValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(0, 24).Draw(t, "width")
		var values []uint32
		for range rapid.IntRange(1, 20).Draw(t, "stretches") {
			v := rapid.Uint32Range(0, 1<<width-1)
			if rapid.Bool().Draw(t, "run") {
				values = append(values, slices.Repeat([]uint32{v.Draw(t, "v")}, rapid.IntRange(1, 40).Draw(t, "n"))...)
			} else {
				values = append(values, rapid.SliceOfN(v, 0, 20).Draw(t, "values")...)
			}
		}
		if got := decodeHybrid(appendHybrid(nil, values, width), width); len(got) < len(values) || !slices.Equal(got[:len(values)], values) {
			t.Fatalf("%v, want %v", got, values)
		}
	})
}

// decodeHybrid is the specification read aloud.
func decodeHybrid(b []byte, width int) (out []uint32) {
	for len(b) > 0 {
		header, n := binary.Uvarint(b)
		b = b[n:]
		if header&1 == 0 {
			v := uint32(0)
			for i := range (width + 7) / 8 {
				v |= uint32(b[i]) << (8 * i)
			}
			b = b[(width+7)/8:]
			out = append(out, slices.Repeat([]uint32{v}, int(header>>1))...)
			continue
		}
		groups := int(header >> 1)
		for i := range groups * 8 {
			v := uint32(0)
			for bit := range width {
				at := i*width + bit
				v |= uint32(b[at/8]>>(at%8)&1) << bit
			}
			out = append(out, v)
		}
		b = b[groups*width:]
	}
	return out
}

func BenchmarkEncode(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, distinct := range []int{300, 1 << 30} {
		b.Run(fmt.Sprintf("distinct-%d", distinct), func(b *testing.B) {
			rec := everything(memory.DefaultAllocator, r, 200_000, distinct, 1, 0)
			b.Run("columnchunk", func(b *testing.B) {
				size := 0
				for b.Loop() {
					size = len(assemble(b, everyType, testOptions, []arrow.Record{rec}))
				}
				b.ReportMetric(float64(rec.NumRows()*int64(b.N))/b.Elapsed().Seconds(), "rows/s")
				b.ReportMetric(float64(size), "bytes")
			})
			b.Run("pqarrow", func(b *testing.B) {
				size := 0
				for b.Loop() {
					var out bytes.Buffer
					w, err := pqarrow.NewFileWriter(everyType, &out, parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd)), pqarrow.DefaultWriterProps())
					if err != nil {
						b.Fatal(err)
					}
					if err := w.WriteBuffered(rec); err != nil {
						b.Fatal(err)
					}
					if err := w.Close(); err != nil {
						b.Fatal(err)
					}
					size = out.Len()
				}
				b.ReportMetric(float64(rec.NumRows()*int64(b.N))/b.Elapsed().Seconds(), "rows/s")
				b.ReportMetric(float64(size), "bytes")
			})
		})
	}
}

// Pages get the form that pays: all are tried now and then, and hold for the pages between.
func TestPagesGetTheFormThatPays(t *testing.T) {
	var efforts []Effort
	sizes := map[Effort]int{Store: 100} // percent
	o := testOptions
	o.PageBytes = 1
	o.Compress = func(dst, src []byte, effort Effort) []byte {
		efforts = append(efforts, effort)
		return append(dst, src[:len(src)*sizes[effort]/100]...)
	}
	integers := func(next func(i int) int64) arrow.Array {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		for i := range blockRows {
			b.Append(next(i))
		}
		return b.NewArray()
	}
	few, sorted := integers(func(i int) int64 { return int64(i % 250) }), integers(func(i int) int64 { return int64(i) })
	some := integers(func(i int) int64 { return int64(uint64(i*i) * 0x9e3779b97f4a7c15 >> 24) })
	wide := integers(func(i int) int64 { return int64(uint64(i*i) * 0x9e3779b97f4a7c15) })
	b := array.NewStringBuilder(memory.DefaultAllocator)
	b.AppendStringValues(slices.Repeat([]string{"some text"}, 1000), nil)
	texts := b.NewArray()
	const indices, plain, delta = "indices", "plain", "delta"
	for _, c := range []struct {
		values         arrow.Array
		dictionary     int
		fast, thorough int
		tried          []Effort
		then           Effort
		as             string
	}{
		{few, 1 << 20, 70, 69, []Effort{Fast, Thorough}, Fast, indices},
		{few, 1 << 20, 70, 50, []Effort{Fast, Thorough}, Thorough, indices},
		{few, 1 << 20, 98, 97, []Effort{Fast, Thorough, Store}, Store, indices},
		{texts, 0, 50, 0, []Effort{Fast}, Fast, plain},
		{texts, 0, 99, 0, []Effort{Fast, Store}, Store, plain},
		{sorted, 0, 90, 0, []Effort{Fast}, Fast, delta},             // the differences are all the same
		{sorted, 0, 98, 0, []Effort{Fast, Store}, Store, delta},     // and here are not made smaller
		{some, 0, 98, 0, []Effort{Fast, Fast, Store}, Store, delta}, // 43 bits each, against 98 % of 64
		{some, 0, 90, 0, []Effort{Fast, Fast}, Fast, delta},         // and both made smaller
		{some, 0, 50, 0, []Effort{Fast, Fast}, Fast, delta},
		{wide, 0, 50, 0, []Effort{Fast, Fast}, Fast, plain}, // differences are 65 bits or so
		{wide, 0, 99, 0, []Effort{Fast, Fast, Store}, Store, plain},
	} {
		name := fmt.Sprintf("%v, %d and %d %%", c.values.DataType(), c.fast, c.thorough)
		sizes[Fast], sizes[Thorough] = c.fast, c.thorough
		o.DictionaryBytes = c.dictionary
		column := NewColumn(c.values.DataType(), false, o)
		for page := range 2 * (formPages + 1) {
			efforts = nil
			column.Add(c.values, 0, c.values.Len())
			want, holds := []Effort{c.then}, formPages
			if c.then == Store {
				holds = storePages
			}
			if page%(holds+1) == 0 {
				want = c.tried
			}
			if !slices.Equal(efforts, want) {
				t.Errorf("%s: page %d was written with %v, want %v", name, page, efforts, want)
			}
		}
		if got := map[string]int{indices: column.pagesCoded, plain: column.pagesPlain, delta: column.pagesDelta}; got[c.as] != 2*(formPages+1) {
			t.Errorf("%s: %v pages, all of them want to be of %s", name, got, c.as)
		}
	}
}

// After a chunk whose dictionary did not pay, the next one's is judged after few values; one that pays is still found.
func TestADictionaryThatDidNotPayIsJudgedEarlierInTheNextChunk(t *testing.T) {
	integers := func(n, distinct int) arrow.Array {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		for i := range n {
			b.Append(int64(i % distinct * 0x9e3779b9))
		}
		return b.NewArray()
	}
	c := NewColumn(arrow.PrimitiveTypes.Int64, false, testOptions)
	unique, few := integers(2*probeValues, 2*probeValues), integers(2*probeValues, 10)
	for i, step := range []struct {
		values  arrow.Array
		givenUp int // after so many values
	}{{unique, probeValues}, {unique, blockRows}, {few, 0}, {unique, probeValues}} {
		after := 0
		for from := 0; from < step.values.Len(); from += blockRows {
			c.Add(step.values, from, blockRows)
			if c.full && after == 0 {
				after = from + blockRows
			}
		}
		if after != step.givenUp {
			t.Errorf("chunk %d: the dictionary was given up after %d values, want %d", i, after, step.givenUp)
		}
		if chunk := c.End(); chunk.Values != int64(step.values.Len()) {
			t.Errorf("chunk %d has %d values", i, chunk.Values)
		}
	}
}
