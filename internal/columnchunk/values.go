package columnchunk

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
)

// wordsOf are the values that are not null, as 64-bit words: integers with their sign extended, floats as their bits.
// They are good until the next call.
func (c *Column) wordsOf(arr arrow.Array, from, n int) []uint64 {
	if arr.NullN() == 0 && c.width == 8 {
		data := arr.Data()
		all := arrow.Uint64Traits.CastFromBytes(data.Buffers()[1].Bytes())
		return all[data.Offset()+from : data.Offset()+from+n]
	}
	out := c.scratch[:0]
	switch a := arr.(type) {
	case *array.Int8:
		out = widen(out, a, a.Int8Values()[from:from+n], from)
	case *array.Int16:
		out = widen(out, a, a.Int16Values()[from:from+n], from)
	case *array.Int32:
		out = widen(out, a, a.Int32Values()[from:from+n], from)
	case *array.Date32:
		out = widen(out, a, a.Date32Values()[from:from+n], from)
	case *array.Int64:
		out = widen(out, a, a.Int64Values()[from:from+n], from)
	case *array.Timestamp:
		out = widen(out, a, a.TimestampValues()[from:from+n], from)
	case *array.Float32:
		for i, v := range a.Float32Values()[from : from+n] {
			if a.IsValid(from + i) {
				out = append(out, uint64(math.Float32bits(v)))
			}
		}
	case *array.Float64:
		for i, v := range a.Float64Values()[from : from+n] {
			if a.IsValid(from + i) {
				out = append(out, math.Float64bits(v))
			}
		}
	}
	c.scratch = out
	return out
}

func widen[T ~int8 | ~int16 | ~int32 | ~int64](out []uint64, a arrow.Array, values []T, from int) []uint64 {
	if a.NullN() == 0 {
		for _, v := range values {
			out = append(out, uint64(int64(v)))
		}
		return out
	}
	valid, offset := a.NullBitmapBytes(), a.Data().Offset()+from
	for i, v := range values {
		if bitutil.BitIsSet(valid, offset+i) {
			out = append(out, uint64(int64(v)))
		}
	}
	return out
}

func (c *Column) addWords(values []uint64) {
	if len(values) == 0 {
		return
	}
	if !c.full {
		d := c.dictionary
		known := len(d.words)
		for _, v := range values {
			c.indices = append(c.indices, d.addWord(v))
		}
		c.bound(d.words[known:])
		return
	}
	if c.width == 8 {
		c.plain = append(c.plain, arrow.Uint64Traits.CastToBytes(values)...)
	} else {
		for _, v := range values {
			c.plain = binary.LittleEndian.AppendUint32(c.plain, uint32(v))
		}
	}
	c.bound(values)
}

// bound widens the bounds by values.
func (c *Column) bound(values []uint64) {
	switch {
	case !c.float:
		c.bounds.words(values)
	case c.width == 4:
		c.bounds.reals(values, func(v uint64) float64 { return float64(math.Float32frombits(uint32(v))) })
	default:
		c.bounds.reals(values, math.Float64frombits)
	}
}

func (b *bounds) reals(values []uint64, real func(uint64) float64) {
	for _, v := range values {
		switch f := real(v); {
		case f != f:
			b.nan = true
		default:
			b.any = true
			b.lowReal, b.topReal = min(b.lowReal, f), max(b.topReal, f)
		}
	}
}

func (b *bounds) words(values []uint64) {
	b.any = b.any || len(values) > 0
	low, high := b.low, b.high
	for _, v := range values {
		low, high = min(low, int64(v)), max(high, int64(v))
	}
	b.low, b.high = low, high
}

func (b *bounds) text(v []byte) {
	if !b.any || b.compare(v, b.lowText) < 0 {
		b.lowText = append(b.lowText[:0], v...)
	}
	if !b.any || b.compare(v, b.topText) > 0 {
		b.topText = append(b.topText[:0], v...)
	}
	b.any = true
}

func (b *bounds) compare(v, w []byte) int {
	if b.signed && (v[0]^w[0])&0x80 != 0 { // one of them is negative
		return int(int8(v[0])) - int(int8(w[0]))
	}
	return bytes.Compare(v, w)
}

func (c *Column) addTexts(arr arrow.Array, from, n int) {
	data := arr.Data()
	if data.Buffers()[1] == nil || data.Buffers()[1].Len() == 0 {
		return // only nulls, or nothing
	}
	offsets := arrow.Int32Traits.CastFromBytes(data.Buffers()[1].Bytes())[data.Offset()+from:]
	var values []byte
	if data.Buffers()[2] != nil {
		values = data.Buffers()[2].Bytes()
	}
	var valid []byte
	if arr.NullN() > 0 {
		valid = arr.NullBitmapBytes()
	}
	for i := range n {
		if valid == nil || bitutil.BitIsSet(valid, data.Offset()+from+i) {
			c.addText(values[offsets[i]:offsets[i+1]])
		}
	}
}

func (c *Column) addText(v []byte) {
	if !c.full {
		known := len(c.dictionary.ends)
		i := c.dictionary.addText(v)
		c.indices = append(c.indices, i)
		if int(i) == known {
			c.bounds.text(v)
		}
		return
	}
	c.plain = c.appendText(c.plain, v)
	c.bounds.text(v)
}

func (c *Column) addDecimals(arr *array.Decimal128, from, n int) {
	var full [16]byte
	for i := from; i < from+n; i++ {
		if arr.IsNull(i) {
			continue
		}
		v := arr.Value(i)
		binary.BigEndian.PutUint64(full[:8], uint64(v.HighBits()))
		binary.BigEndian.PutUint64(full[8:], v.LowBits())
		c.addText(full[16-c.width:])
	}
}

func (c *Column) addBits(arr *array.Boolean, from, n int) {
	for i := from; i < from+n; i++ {
		if arr.IsNull(i) {
			continue
		}
		if c.count%8 == 0 {
			c.plain = append(c.plain, 0)
		}
		if arr.Value(i) {
			bitutil.SetBit(c.plain[levelsRoom:], c.count)
		}
		c.count++
	}
}
