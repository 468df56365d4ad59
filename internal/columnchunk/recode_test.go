package columnchunk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

var zstdDecoder, _ = zstd.NewReader(nil)

func decompressZstd(dst, src []byte, n int) ([]byte, error) {
	out, err := zstdDecoder.DecodeAll(src, dst[:0])
	if err == nil && len(out) != n {
		err = errors.New("another length")
	}
	return out, err
}

// encodedOf is a chunk as somebody who reads it from a file has it.
func encodedOf(c Chunk) Encoded {
	e := Encoded{Nulls: c.Statistics.NullCount, Decompress: decompressZstd}
	if c.Statistics.HasMin {
		e.Min, e.Max = c.Statistics.Min, c.Statistics.Max
	}
	for i, page := range append([][]byte{c.Dictionary}, c.Pages...) {
		if len(page) == 0 {
			continue
		}
		at := 0
		field := func() int {
			at++ // its head
			v, n := binary.Varint(page[at:])
			at += n
			return int(v)
		}
		p := EncodedPage{Start: len(e.Bytes), Dictionary: i == 0}
		field() // kind
		p.Uncompressed = field()
		compressed := field()
		at++ // of the structure
		p.Values = field()
		encoding := field()
		p.Coded, p.Delta = encoding == encodingDictionary && !p.Dictionary, encoding == encodingDelta
		p.Body, p.End = len(e.Bytes)+len(page)-compressed, len(e.Bytes)+len(page)
		e.Pages = append(e.Pages, p)
		e.Bytes = append(e.Bytes, page...)
	}
	return e
}

// encode is a record as the chunks of a row group.
func encode(rec arrow.Record, o Options) (out []Encoded) {
	for i, f := range rec.Schema().Fields() {
		c := NewColumn(f.Type, f.Nullable, o)
		c.Add(rec.Column(i), 0, int(rec.NumRows()))
		out = append(out, encodedOf(c.End()))
	}
	return out
}

// However rows and encoded chunks alternate, and however their pages and dictionaries were cut, the row group holds the
// rows in order, and its statistics are those of the rows.
func TestRecodedChunksReadBackAsTheirRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := memory.NewGoAllocator()
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		sizes := rapid.SampledFrom([]int{0, 300, 20_000, 1 << 20})
		pages := rapid.SampledFrom([]int{256, 8 << 10, 40_000, 1 << 20})
		o := testOptions
		o.PageBytes, o.DictionaryBytes = pages.Draw(t, "page"), sizes.Draw(t, "dictionary")
		recoded := NewGroup(everyType, o)
		var all []arrow.Record
		for range rapid.IntRange(1, 5).Draw(t, "parts") {
			rec := everything(mem, r, rapid.SampledFrom([]int{1, 7, 1500, 9000}).Draw(t, "rows"),
				rapid.SampledFrom([]int{1, 2, 100, 4000, 1 << 20}).Draw(t, "distinct"), rapid.SampledFrom([]int{1, 9, 1000}).Draw(t, "run"),
				rapid.SampledFrom([]int{0, 1, 2, 50}).Draw(t, "nulls"))
			all = append(all, rec)
			if rapid.Bool().Draw(t, "decoded") {
				recoded.Add(rec, 0, int(rec.NumRows()))
				continue
			}
			other := testOptions
			other.PageBytes, other.DictionaryBytes = pages.Draw(t, "its page"), sizes.Draw(t, "its dictionary")
			if err := recoded.AddEncoded(rec.NumRows(), encode(rec, other)); err != nil {
				t.Fatal(err)
			}
		}
		want := array.NewTableFromRecords(everyType, all)
		defer want.Release()
		body := layOut(t, recoded)
		got := readBack(t, mem, body)
		defer got.Release()
		for i, f := range everyType.Fields() {
			g, err := array.Concatenate(got.Column(i).Data().Chunks(), mem)
			if err != nil {
				t.Fatal(err)
			}
			w, err := array.Concatenate(want.Column(i).Data().Chunks(), mem)
			if err != nil {
				t.Fatal(err)
			}
			if !array.ApproxEqual(g, w, array.WithNaNsEqual(true), array.WithAbsTolerance(0)) {
				t.Fatalf("column %s differs", f.Name)
			}
		}
	})
}

// layOut makes a file of one row group.
func layOut(t fataler, g *Group) []byte {
	t.Helper()
	props := parquet.NewWriterProperties(parquet.WithVersion(parquet.V2_LATEST), parquet.WithCompression(compress.Codecs.Zstd))
	stored, err := pqarrow.ToParquet(everyType, props, pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	footer := metadata.NewFileMetadataBuilder(stored, props, nil)
	var out bytes.Buffer
	out.WriteString("PAR1")
	if _, err := g.WriteTo(&out, 4, footer.AppendRowGroup(), 0); err != nil {
		t.Fatal(err)
	}
	meta, err := footer.Finish()
	if err != nil {
		t.Fatal(err)
	}
	at := out.Len()
	if _, err := meta.WriteTo(&out, nil); err != nil {
		t.Fatal(err)
	}
	out.Write(binary.LittleEndian.AppendUint32(nil, uint32(out.Len()-at)))
	out.WriteString("PAR1")
	return out.Bytes()
}

// What a recoded column says of its bounds and nulls is what the rows say, and never less than that.
func TestStatisticsOfRecodedChunksAreThoseOfTheirRows(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, distinct := range []int{1, 50, 1 << 30} {
		for i, f := range everyType.Fields() {
			plain, recoded := NewColumn(f.Type, f.Nullable, testOptions), NewColumn(f.Type, f.Nullable, testOptions)
			for range 3 {
				rec := everything(memory.DefaultAllocator, r, 9000, distinct, 1, 5)
				plain.Add(rec.Column(i), 0, 9000)
				if err := recoded.AddEncoded(encode(rec, testOptions)[i]); err != nil {
					t.Fatal(err)
				}
			}
			want, have := plain.End(), recoded.End()
			w, h := want.Statistics, have.Statistics
			if h.NullCount != w.NullCount || h.HasMin != w.HasMin || !bytes.Equal(h.Min, w.Min) || !bytes.Equal(h.Max, w.Max) {
				t.Errorf("%s of %d distinct values: %+v, want %+v", f.Name, distinct, h, w)
			}
			if have.Values != want.Values {
				t.Errorf("%s: %d values, want %d", f.Name, have.Values, want.Values)
			}
		}
	}
}

// A chunk whose bounds are not known leaves none to the chunk that takes it up.
func TestUnknownBoundsOfARecodedChunkAreContagious(t *testing.T) {
	rec := everything(memory.DefaultAllocator, rand.New(rand.NewPCG(1, 1)), 2000, 40, 1, 0)
	for i, f := range everyType.Fields() {
		e := encode(rec, testOptions)[i]
		if e.Min == nil {
			continue
		}
		c := NewColumn(f.Type, f.Nullable, testOptions)
		c.Add(rec.Column(i), 0, 1000)
		e.Min, e.Max = nil, nil
		if err := c.AddEncoded(e); err != nil {
			t.Fatal(err)
		}
		if c.End().Statistics.HasMin {
			t.Errorf("%s has bounds that leave out values", f.Name)
		}
	}
}

// Whatever bytes a chunk has, recoding it ends in an error or in as many rows as its pages say.
func TestRecodingDamagedChunksDoesNotPanic(t *testing.T) {
	rec := everything(memory.DefaultAllocator, rand.New(rand.NewPCG(1, 2)), 400, 60, 3, 4)
	store := testOptions
	store.Compress = func(dst, src []byte, _ Effort) []byte { return append(dst, src...) } // so that damage goes deeper
	for i, f := range everyType.Fields() {
		whole := encode(rec, store)[i]
		for at := range whole.Bytes {
			e := whole
			e.Bytes = bytes.Clone(whole.Bytes)
			e.Bytes[at] ^= []byte{0x80, 0x01, 0xff}[at%3]
			e.Decompress = func(dst, src []byte, n int) ([]byte, error) {
				if len(src) != n {
					return nil, errors.New("another length")
				}
				return append(dst[:0], src...), nil
			}
			c := NewColumn(f.Type, f.Nullable, testOptions)
			if err := c.AddEncoded(e); err == nil && c.rows != rec.NumRows() {
				t.Fatalf("%s: byte %d: %d rows", f.Name, at, c.rows)
			}
		}
	}
}

// A page of indices whose dictionary numbers its entries as the open chunk does moves as it is, and so does a large page of
// plain values.
func TestPagesThatNeedNoChangeMoveAsTheyAre(t *testing.T) {
	integers := func(n int, value func(i int) int64) arrow.Array {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		defer b.Release()
		for i := range n {
			b.Append(value(i))
		}
		return b.NewArray()
	}
	r := rand.New(rand.NewPCG(5, 5))
	for name, arr := range map[string]arrow.Array{
		"coded": integers(100_000, func(i int) int64 { return int64(i % 100) }),
		"plain": integers(10_000, func(int) int64 { return r.Int64() }),
	} {
		from := NewColumn(arr.DataType(), true, testOptions)
		from.Add(arr, 0, arr.Len())
		chunk := from.End()
		to := NewColumn(arr.DataType(), true, testOptions)
		for range 2 {
			if err := to.AddEncoded(encodedOf(chunk)); err != nil {
				t.Fatal(err)
			}
		}
		both := to.End()
		if len(both.Pages) != 2*len(chunk.Pages) || !bytes.Equal(both.Pages[0], chunk.Pages[0]) || !bytes.Equal(both.Pages[len(chunk.Pages)], chunk.Pages[0]) {
			t.Errorf("%s: %d pages of %d, others than before", name, len(both.Pages), len(chunk.Pages))
		}
	}
}
