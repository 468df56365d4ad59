package columnchunk

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"pgregory.net/rapid"
)

// decode decodes a chunk in batches of the sizes that next gives.
func decode(mem memory.Allocator, f arrow.Field, chunk Encoded, rows int, next func(left int) int) (parts []arrow.Array, err error) {
	d := NewDecoder(f.Type, f.Nullable, chunk)
	for rows > 0 {
		n := next(rows)
		part, err := d.Next(mem, n)
		if err != nil {
			return parts, err
		}
		parts = append(parts, part)
		rows -= n
	}
	return parts, nil
}

// However pages, dictionaries and batches are cut, what is decoded is what was encoded.
func TestWhatIsDecodedIsWhatWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		o := testOptions
		o.PageBytes = rapid.SampledFrom([]int{256, 8 << 10, 1 << 20}).Draw(t, "page")
		o.DictionaryBytes = rapid.SampledFrom([]int{0, 300, 20_000, 1 << 20}).Draw(t, "dictionary")
		rec := everything(memory.DefaultAllocator, r, rapid.SampledFrom([]int{1, 7, 1500, 9000}).Draw(t, "rows"),
			rapid.SampledFrom([]int{1, 2, 100, 4000, 1 << 20}).Draw(t, "distinct"), rapid.SampledFrom([]int{1, 9, 1000}).Draw(t, "run"),
			rapid.SampledFrom([]int{0, 1, 2, 50}).Draw(t, "nulls"))
		defer rec.Release()
		for i, chunk := range encode(rec, o) {
			f := rec.Schema().Field(i)
			if !Decodes(f.Type) {
				continue
			}
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			parts, err := decode(mem, f, chunk, int(rec.NumRows()), func(left int) int {
				return min(left, rapid.SampledFrom([]int{1, 13, 4096, 1 << 20}).Draw(t, "batch"))
			})
			if err != nil {
				t.Fatalf("column %s: %v", f.Name, err)
			}
			at := int64(0)
			for _, part := range parts {
				want := array.NewSlice(rec.Column(i), at, at+int64(part.Len()))
				if !array.ApproxEqual(part, want, array.WithNaNsEqual(true), array.WithAbsTolerance(0)) {
					t.Fatalf("column %s differs from row %d on", f.Name, at)
				}
				at += int64(part.Len())
				want.Release()
				part.Release()
			}
			mem.AssertSize(t, 0)
			if _, err := decode(mem, f, chunk, int(rec.NumRows())+1, func(left int) int { return left }); err == nil {
				t.Fatalf("column %s has a row more than was encoded", f.Name)
			}
			mem.AssertSize(t, 0)
		}
	})
}

// Damage is an error or other values, never a panic, and leaves nothing allocated.
func TestDamagedPagesAreErrorsOrOtherValues(t *testing.T) {
	o := testOptions
	o.PageBytes, o.DictionaryBytes = 2000, 20_000
	// Pages as they are, so that damage is not found by their decompression.
	o.Compress = func(dst, src []byte, _ Effort) []byte { return append(dst, src...) }
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		rec := everything(memory.DefaultAllocator, r, 900, rapid.SampledFrom([]int{2, 100, 1 << 20}).Draw(t, "distinct"), 1, rapid.SampledFrom([]int{0, 3}).Draw(t, "nulls"))
		defer rec.Release()
		for i, chunk := range encode(rec, o) {
			f := rec.Schema().Field(i)
			if !Decodes(f.Type) {
				continue
			}
			chunk.Decompress = func(dst, src []byte, _ int) ([]byte, error) { return append(dst, src...), nil }
			for range 20 {
				damaged := chunk
				damaged.Bytes = slices.Clone(chunk.Bytes)
				damaged.Pages = slices.Clone(chunk.Pages)
				for range 1 + r.IntN(3) {
					damaged.Bytes[r.IntN(len(damaged.Bytes))] = byte(r.Uint32())
				}
				if p := &damaged.Pages[r.IntN(len(damaged.Pages))]; r.IntN(3) == 0 {
					p.Values += r.IntN(5) - 2
				} else if r.IntN(3) == 0 {
					p.End -= r.IntN(p.End - p.Body + 1)
				}
				mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
				parts, _ := decode(mem, f, damaged, 900, func(left int) int { return min(left, 400) })
				for _, part := range parts {
					part.Release()
				}
				mem.AssertSize(t, 0)
			}
		}
	})
}

// FuzzDecoder decodes a dictionary and a page that nobody has compressed, so that damage goes deep.
func FuzzDecoder(f *testing.F) {
	var types []arrow.DataType
	for _, field := range everyType.Fields() {
		if Decodes(field.Type) {
			types = append(types, field.Type)
		}
	}
	o := testOptions
	o.Compress = func(dst, src []byte, _ Effort) []byte { return append(dst, src...) }
	for _, distinct := range []int{3, 1 << 20} {
		rec := everything(memory.DefaultAllocator, rand.New(rand.NewPCG(1, 1)), 40, distinct, 1, 3)
		for i, chunk := range encode(rec, o) {
			field := everyType.Field(i)
			typ := slices.IndexFunc(types, func(dt arrow.DataType) bool { return arrow.TypeEqual(dt, field.Type) })
			if typ < 0 {
				continue
			}
			dictionary, page := EncodedPage{}, chunk.Pages[len(chunk.Pages)-1]
			if chunk.Pages[0].Dictionary {
				dictionary = chunk.Pages[0]
			}
			f.Add(uint8(typ), field.Nullable, page.Coded, page.Delta, chunk.Bytes[dictionary.Body:dictionary.End], uint16(dictionary.Values), chunk.Bytes[page.Body:page.End], uint16(page.Values))
		}
		rec.Release()
	}
	for typ, dt := range types {
		if fixed, ok := dt.(arrow.FixedWidthDataType); ok && !arrow.IsFloating(dt.ID()) {
			values := []uint64{5, 7, 3, 1 << 30, 12, 12, 12}
			f.Add(uint8(typ), false, false, true, []byte{}, uint16(0), appendDelta(nil, values, fixed.Bytes()), uint16(len(values)))
		}
	}
	f.Fuzz(func(t *testing.T, typ uint8, optional, coded, delta bool, dictionary []byte, entries uint16, page []byte, values uint16) {
		if len(dictionary) < 4*int(entries) {
			return // no page is let through that says so
		}
		chunk := Encoded{Bytes: slices.Concat(dictionary, page), Decompress: func(dst, src []byte, _ int) ([]byte, error) { return append(dst, src...), nil }}
		chunk.Pages = []EncodedPage{
			{End: len(dictionary), Uncompressed: len(dictionary), Values: int(entries), Dictionary: true},
			{Body: len(dictionary), End: len(chunk.Bytes), Uncompressed: len(page), Values: int(values), Coded: coded, Delta: delta},
		}
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		defer mem.AssertSize(t, 0)
		parts, err := decode(mem, arrow.Field{Type: types[int(typ)%len(types)], Nullable: optional}, chunk, int(values), func(left int) int { return min(left, 100) })
		rows := 0
		for _, part := range parts {
			rows += part.Len()
			_ = part.String() // touches every value
			part.Release()
		}
		if err == nil && rows != int(values) {
			t.Errorf("%d rows of %d", rows, values)
		}
	})
}
