package columnchunk

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"pgregory.net/rapid"
)

// padded is a body as deltas reads it.
func padded(b []byte) []byte { return append(slices.Clone(b), make([]byte, unpackPadding)...)[:len(b)] }

// integers draws values of a width: near each other or not, sorted or not, at the ends of their range or not.
func integers(t *rapid.T, width int) []uint64 {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	spread := rapid.IntRange(0, 8*width).Draw(t, "bits of difference")
	step := rapid.SampledFrom([]int64{0, 1, 1000, -7}).Draw(t, "step")
	v := rapid.SampledFrom([]int64{0, math.MaxInt64, math.MinInt64, math.MaxInt32, -5}).Draw(t, "from")
	out := make([]uint64, rapid.SampledFrom([]int{0, 1, 2, 31, 32, 33, 34, 128, 129, 130, 1000, 5000}).Draw(t, "values"))
	for i := range out {
		noise := int64(0)
		if spread > 0 {
			noise = int64(r.Uint64() >> (64 - spread))
		}
		v += step
		out[i] = uint64(v + noise)
		if width == 4 {
			out[i] = uint64(int64(int32(out[i])))
		}
	}
	return out
}

func TestDeltasReadBackInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]int{4, 8}).Draw(t, "width")
		values := integers(t, width)
		body := appendDelta(nil, values, width)
		if bound := 12 + 10 + (len(values)/deltaBlock+1)*(10+4+deltaBlock*width); len(body) > bound {
			t.Errorf("%d values take %d bytes", len(values), len(body))
		}
		var d deltas
		n, err := d.open(padded(body), width)
		if err != nil || n != len(values) {
			t.Fatalf("%d values: %d, %v", len(values), n, err)
		}
		got := make([]uint64, n)
		for at := 0; at < n; {
			some := min(n-at, rapid.SampledFrom([]int{1, 5, 32, 100, 4096}).Draw(t, "piece"))
			if err := d.read(got[at : at+some]); err != nil {
				t.Fatal(err)
			}
			at += some
		}
		if !slices.Equal(got, values) {
			t.Fatal("other values")
		}
		if err := d.read(make([]uint64, 1)); err == nil {
			t.Error("there was one more value")
		}
	})
}

// The golden bytes are those of the Parquet format's description of the encoding, for its two examples, in blocks of 128.
func TestDeltasAreThoseOfTheFormat(t *testing.T) {
	words := func(values ...int64) (out []uint64) {
		for _, v := range values {
			out = append(out, uint64(v))
		}
		return out
	}
	head := []byte{0x80, 0x01, 4} // blocks of 128 in four miniblocks
	for _, c := range []struct {
		values []uint64
		want   []byte
	}{
		// 1 to 5: a first value of 1 and differences of 1, none above the least.
		{words(1, 2, 3, 4, 5), append(slices.Clone(head), 5, 2, 2, 0, 0, 0, 0)},
		// 7, 5, 3, 1, 2, 3, 4, 5: a least difference of -2, and above it 0, 0, 0, 3, 3, 3, 3 in two bits each.
		{words(7, 5, 3, 1, 2, 3, 4, 5), append(slices.Clone(head), 8, 14, 3, 2, 0, 0, 0, 0b11_000000, 0b00_111111, 0, 0, 0, 0, 0, 0)},
		{nil, append(slices.Clone(head), 0, 0)},
	} {
		if got := appendDelta(nil, c.values, 8); !bytes.Equal(got, c.want) {
			t.Errorf("%v: % x, want % x", c.values, got, c.want)
		}
	}
}

// Blocks of other sizes than ours are read too.
func TestDeltasOfOtherWritersAreRead(t *testing.T) {
	body := []byte{0x80, 0x02, 2, 3, 0, 2, 8, 0} // blocks of 256 in two miniblocks; 0, then differences of 1 and more
	body = append(body, 4, 9)
	body = append(body, make([]byte, 126)...)
	var d deltas
	if n, err := d.open(padded(body), 8); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	got := make([]uint64, 3)
	if err := d.read(got); err != nil || !slices.Equal(got, []uint64{0, 5, 15}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestDamagedDeltasAreErrorsOrOtherValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.SampledFrom([]int{4, 8}).Draw(t, "width")
		body := appendDelta(nil, integers(t, width), width)
		for range rapid.IntRange(1, 3).Draw(t, "damages") {
			body[rapid.IntRange(0, len(body)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		body = body[:rapid.IntRange(0, len(body)).Draw(t, "cut")]
		var d deltas
		n, err := d.open(padded(body), width)
		for got := make([]uint64, 100); err == nil && n > 0; n -= min(n, len(got)) {
			err = d.read(got[:min(n, len(got))])
		}
	})
}

// What is sorted, or of few bits, is written as differences, arrow-go reads it, and the footer says so.
func TestIntegersAreWrittenAsDifferences(t *testing.T) {
	s := arrow.NewSchema([]arrow.Field{
		{Name: "sorted", Type: arrow.PrimitiveTypes.Int64}, {Name: "narrow", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: "at", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, Nullable: true},
		{Name: "wide", Type: arrow.PrimitiveTypes.Int64}, {Name: "float", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	r := rand.New(rand.NewPCG(1, 2))
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	for i := range 20_000 {
		b.Field(0).(*array.Int64Builder).Append(int64(8*i + r.IntN(8)))
		b.Field(1).(*array.Int32Builder).Append(r.Int32N(1<<20) - 1<<19)
		b.Field(2).(*array.TimestampBuilder).Append(arrow.Timestamp(r.Int64N(1e13)))
		b.Field(3).(*array.Int64Builder).Append(int64(r.Uint64()))
		b.Field(4).(*array.Float64Builder).Append(float64(i))
		if i%100 == 0 {
			b.Field(1).AppendNull()
			b.Field(0).(*array.Int64Builder).Append(int64(8 * i))
			b.Field(2).AppendNull()
			b.Field(3).(*array.Int64Builder).Append(0)
			b.Field(4).(*array.Float64Builder).Append(0)
		}
	}
	rec := b.NewRecord()
	defer rec.Release()
	o := testOptions
	o.PageBytes, o.DictionaryBytes = 64<<10, 0
	body := assemble(t, s, o, []arrow.Record{rec})
	got := readBack(t, memory.DefaultAllocator, body)
	defer got.Release()
	want := array.NewTableFromRecords(s, []arrow.Record{rec})
	defer want.Release()
	for i, f := range s.Fields() {
		if !array.ChunkedEqual(got.Column(i).Data(), want.Column(i).Data()) {
			t.Errorf("%s has other values", f.Name)
		}
	}
	f, err := file.NewParquetReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, want := range []bool{true, true, true, false, false} {
		chunk, err := f.MetaData().RowGroup(0).ColumnChunk(i)
		if err != nil {
			t.Fatal(err)
		}
		if says := slices.Contains(chunk.Encodings(), parquet.Encodings.DeltaBinaryPacked); says != want {
			t.Errorf("%s is encoded as %v", s.Field(i).Name, chunk.Encodings())
		}
	}
}

func BenchmarkDelta(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, next := range map[string]func(i int) uint64{
		"sorted": func(i int) uint64 { return uint64(8*i + r.IntN(8)) },
		"random": func(int) uint64 { return r.Uint64N(1e13) },
	} {
		values := make([]uint64, 1<<14)
		for i := range values {
			values[i] = next(i)
		}
		body := padded(appendDelta(nil, values, 8))
		b.Run(name+"/write", func(b *testing.B) {
			b.SetBytes(int64(8 * len(values)))
			for b.Loop() {
				body = appendDelta(body[:0], values, 8)
			}
		})
		body = padded(body)
		b.Run(name+"/read", func(b *testing.B) {
			b.SetBytes(int64(8 * len(values)))
			b.ReportMetric(8*float64(len(body))/float64(len(values)), "bits/value")
			for b.Loop() {
				var d deltas
				if _, err := d.open(body, 8); err != nil {
					b.Fatal(err)
				}
				if err := d.read(values); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
