package columnchunk

import (
	"encoding/binary"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
)

// Parquet's numbers for what is written here.
const (
	pageData       = 0
	pageDictionary = 2

	encodingPlain      = 0
	encodingRLE        = 3
	encodingDelta      = 5
	encodingDictionary = 8
)

// levels are the definition levels of the rows of the open page: which are null.
type levels struct {
	rows  int
	nulls int
	valid []byte // a bit per row; nil as long as no row is null
}

func (l *levels) add(arr arrow.Array, from, n int) {
	nulls := 0
	bitmap, offset := arr.NullBitmapBytes(), arr.Data().Offset()+from
	if arr.NullN() > 0 && len(bitmap) > 0 {
		nulls = n - bitutil.CountSetBits(bitmap, offset, n)
	}
	l.addBits(bitmap, offset, n, nulls)
}

// addBits adds the levels of n rows, some of them null if nulls is not 0: then a bitmap says from an offset on which are
// not.
func (l *levels) addBits(bitmap []byte, offset, n, nulls int) {
	if nulls > 0 || l.valid != nil {
		if l.valid == nil {
			l.grow(l.rows)
			bitutil.SetBitsTo(l.valid, 0, int64(l.rows), true)
		}
		l.grow(l.rows + n)
		if nulls > 0 {
			bitutil.CopyBitmap(bitmap, offset, n, l.valid, l.rows)
		} else {
			bitutil.SetBitsTo(l.valid, int64(l.rows), int64(n), true)
		}
	}
	l.rows += n
	l.nulls += nulls
}

// grow makes room for n rows, new bits zero. Whole groups of eight are written, so the room is never less.
func (l *levels) grow(n int) {
	if l.valid == nil {
		l.valid = make([]byte, 0, max(64, n/4))
	}
	for len(l.valid) < (n+7)/8 {
		l.valid = append(l.valid, 0)
	}
}

// append appends the levels as a data page V1 has them: a length, then a run, or the validity bits, which are levels
// of one bit.
func (l *levels) append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	if l.nulls == 0 {
		dst = binary.AppendUvarint(dst, uint64(l.rows)<<1)
		dst = append(dst, 1)
	} else {
		dst = binary.AppendUvarint(dst, uint64(len(l.valid))<<1|1)
		dst = append(dst, l.valid...)
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// splitLevels cuts the levels of a page off what follows them.
func splitLevels(b []byte) (coded, rest []byte, err error) {
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return nil, nil, errCut
	}
	n := int(binary.LittleEndian.Uint32(b))
	return b[4 : 4+n], b[4+n:], nil
}

func (l *levels) reset() { l.rows, l.nulls, l.valid = 0, 0, nil }

// page is a page: its header, then its body, which is in c.compressed.
func (c *Column) page(kind, values, encoding int, body []byte) []byte {
	var header [pageHeaderMax]byte
	h := appendPageHeader(header[:0], kind, len(body), len(c.compressed), values, encoding)
	c.uncompressed += int64(len(h) + len(body))
	page := make([]byte, len(h)+len(c.compressed))
	copy(page[copy(page, h):], c.compressed)
	return page
}

// saves says whether n bytes are enough less than most to be worth more effort.
func saves(n, most int) bool { return float64(n) < (1-formGain)*float64(most) }

// compress compresses a body into c.compressed.
func (c *Column) compress(body []byte, effort Effort) {
	c.compressed = c.options.Compress(c.compressed[:0], body, effort)
}

// codedPage is the open page of indices, compressed with the effort that pays.
func (c *Column) codedPage() []byte {
	width := widthFor(c.dictionary.len())
	c.body = appendHybrid(append(c.body, byte(width)), c.indices, width)
	f := &c.coded
	if f.left > 0 || len(c.body) < formBytesMin {
		f.left = max(f.left-1, 0)
		c.compress(c.body, f.effort)
	} else {
		*f = form{effort: Fast, left: formPages}
		c.compress(c.body, Fast)
		c.other = c.options.Compress(c.other[:0], c.body, Thorough)
		switch {
		case saves(len(c.other), len(c.compressed)):
			f.effort = Thorough
			c.compressed, c.other = c.other, c.compressed
		case !saves(len(c.compressed), len(c.body)):
			c.store(f, c.body)
		}
	}
	c.pagesCoded++
	return c.page(pageData, c.levels.rows, encodingDictionary, c.body)
}

// store is for a body that compression does not make smaller.
func (c *Column) store(f *form, body []byte) {
	f.effort, f.left = Store, storePages
	c.compress(body, Store)
}

// plainPage is the open page of values without a dictionary, in the form that pays: integers as their differences where
// that is no larger, and nothing compressed much, for searching random bits longer finds nothing.
func (c *Column) plainPage() []byte {
	f := &c.uncoded
	var delta []byte
	try := f.left == 0 && len(c.plain) >= formBytesMin
	if c.differs && (f.delta || try) {
		c.delta = appendDelta(append(c.delta[:0], c.body...), c.wordsOfPage(), c.width)
		delta = c.delta
	}
	plain := c.plainBody()
	if try {
		c.chooseForm(plain, delta)
	} else if f.left = max(f.left-1, 0); f.delta && len(delta) < len(plain) {
		c.compress(delta, f.effort)
	} else {
		c.compress(plain, f.effort)
		delta = nil
	}
	if delta != nil && f.delta {
		c.pagesDelta++
		return c.page(pageData, c.levels.rows, encodingDelta, delta)
	}
	c.pagesPlain++
	return c.page(pageData, c.levels.rows, encodingPlain, plain)
}

// chooseForm compresses a page in every form and takes the one that pays for it and for some of the next.
func (c *Column) chooseForm(plain, delta []byte) {
	f := &c.uncoded
	*f = form{effort: Fast, left: formPages}
	if delta != nil && deltaSure*len(delta) <= len(plain) {
		f.delta = true
		if c.compress(delta, Fast); !saves(len(c.compressed), len(delta)) {
			c.store(f, delta)
		}
		return
	}
	c.compress(plain, Fast)
	if delta != nil {
		c.other = c.options.Compress(c.other[:0], delta, Fast)
		switch compressible := saves(len(c.other), len(delta)); {
		case compressible && saves(len(c.other), len(c.compressed)):
			f.delta = true
			c.compressed, c.other = c.other, c.compressed
			return
		case !compressible && len(delta) < len(plain) && !saves(len(c.compressed), len(delta)):
			f.delta = true
			c.store(f, delta)
			return
		}
	}
	if !saves(len(c.compressed), len(plain)) {
		c.store(f, plain)
	}
}

// wordsOfPage are the plain values of the open page. They are good until the next call.
func (c *Column) wordsOfPage() []uint64 {
	b := c.plain[levelsRoom:]
	if c.width == 8 {
		return arrow.Uint64Traits.CastFromBytes(b)
	}
	out := c.scratch[:0]
	for ; len(b) > 0; b = b[4:] {
		out = append(out, word(b, 4, false))
	}
	c.scratch = out
	return out
}

// pageHeaderMax is above the size of any page header written here: seven numbers of at most eleven bytes.
const pageHeaderMax = 96

// appendPageHeader appends a PageHeader in Thrift's compact protocol.
func appendPageHeader(dst []byte, kind, uncompressed, compressed, values, encoding int) []byte {
	field := func(delta byte, v int) {
		dst = append(dst, delta<<4|5) // i32
		dst = binary.AppendVarint(dst, int64(v))
	}
	field(1, kind)
	field(1, uncompressed)
	field(1, compressed)
	const structure = 12
	if kind == pageDictionary {
		dst = append(dst, 4<<4|structure) // field 7 after 3
		field(1, values)
		field(1, encoding)
	} else {
		dst = append(dst, 2<<4|structure) // field 5 after 3
		field(1, values)
		field(1, encoding)
		field(1, encodingRLE) // definition levels
		field(1, encodingRLE) // repetition levels
	}
	return append(dst, 0, 0) // both structures end
}
