package columnchunk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/apache/arrow/go/v17/arrow/bitutil"
)

// A chunk that this package has encoded need not be decoded to be packed with others:
//
//  1. Its dictionary is merged into the open chunk's: one look-up per distinct value, not per row.
//  2. Pages of indices are unpacked, translated and packed again; the values they stand for are never made. If the
//     translation changes nothing, the page moves as it is.
//  3. Pages of plain values, or of their differences, move as they are if they are large enough to be pages of the new
//     chunk; the values of smaller ones are put together.
//  4. If the open chunk has no dictionary any more, the values that indices stand for are copied out of the chunk's own.
//
// What decides is the same as for rows: a dictionary that is full or does not pay is given up.

// splicedBytesMin is the size from which a page, before compression and for differences before those, is moved as it is:
// reading a page costs some microseconds, and this is about as much again for its values.
const splicedBytesMin = 16 << 10

// undeltaMax is the most that the values of a page of differences may take: damage could say any number of them in few bytes,
// and a Column writes a quarter of a million at most.
const undeltaMax = 16 << 20

// Encoded is a chunk that was encoded by a Column of the same type and nullability, as it lies in a file.
type Encoded struct {
	Bytes    []byte // of all pages
	Pages    []EncodedPage
	Nulls    int64
	Min, Max []byte // in its statistics; nil if there are none
	// Decompress turns the body of a page into n bytes, in dst if there is room.
	Decompress func(dst, src []byte, n int) ([]byte, error)
	// Observe, if given, is called with all distinct values that rows of the chunk have, in parts: n values, PLAIN. It
	// must not keep them.
	Observe func(plain []byte, n int) error
}

// EncodedPage is a page of an encoded chunk: where its header and body lie, and what its header says.
type EncodedPage struct {
	Start, Body, End int
	Uncompressed     int
	Values           int
	Dictionary       bool
	Coded            bool // a data page of indices into the dictionary,
	Delta            bool // or of differences of integers; else of plain values
}

var (
	errCut   = errors.New("a page ends before its last value")
	errIndex = errors.New("a page refers to a value that the dictionary does not have")
)

// source is the chunk that is being recoded.
type source struct {
	Encoded
	words    []uint64 // entries of its dictionary,
	text     [][]byte // or these
	numbers  []uint32 // of the entries in the open chunk's dictionary; nil without one
	same     bool     // they are the same in both
	nulls    int64    // in the pages that were opened
	body     []byte   // of the dictionary page
	page     []byte   // of the page in hand, with padding behind it
	deltas   deltas
	plain    []byte // values of a page of differences
	validity []byte
}

// AddEncoded adds the rows of a chunk. After an error, which means that the chunk is not what it is said to be, the
// open chunk is void.
func (c *Column) AddEncoded(e Encoded) error {
	s := &c.source
	s.Encoded, s.nulls = e, 0
	s.words, s.text, s.numbers = s.words[:0], s.text[:0], nil
	defer func() { s.Encoded = Encoded{} }()
	rows := 0
	for _, p := range e.Pages {
		if !p.Dictionary {
			rows += p.Values
		}
	}
	if int64(rows) > e.Nulls {
		c.boundEncoded()
	}
	for i, p := range e.Pages {
		var err error
		switch {
		case p.Dictionary:
			err = c.mergeDictionary(p, rows)
		case p.Coded:
			err = c.addCoded(p)
		default:
			err = c.addPlain(p)
		}
		if err != nil {
			return fmt.Errorf("page %d: %w", i, err)
		}
	}
	if s.nulls > e.Nulls {
		return fmt.Errorf("%d nulls where its statistics say %d", s.nulls, e.Nulls)
	}
	c.nulls += e.Nulls - s.nulls // in pages that were moved as they are
	return nil
}

// boundEncoded widens the bounds of the open chunk by those of the other, or gives them up if it has none.
func (c *Column) boundEncoded() {
	s, b := &c.source, &c.bounds
	switch {
	case c.kind == bits1:
	case s.Min == nil || s.Max == nil:
		b.lost = true
	case c.kind == words:
		c.bound([]uint64{word(s.Min, c.width, c.float), word(s.Max, c.width, c.float)})
	default:
		b.text(s.Min)
		b.text(s.Max)
	}
}

// word reads a value as wordsOf gives it.
func word(b []byte, width int, float bool) uint64 {
	switch {
	case width == 8:
		return binary.LittleEndian.Uint64(b)
	case float:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return uint64(int64(int32(binary.LittleEndian.Uint32(b))))
}

// mergeDictionary reads the chunk's dictionary and numbers its entries in the open chunk's, unless that does not pay.
func (c *Column) mergeDictionary(p EncodedPage, rows int) error {
	s := &c.source
	if c.kind == bits1 {
		return errors.New("a dictionary of booleans")
	}
	var err error
	if s.body, err = s.Decompress(s.body[:0], s.Bytes[p.Body:p.End], p.Uncompressed); err != nil {
		return err
	}
	if s.Observe != nil {
		if err := s.Observe(s.body, p.Values); err != nil {
			return err
		}
	}
	if err := c.readEntries(p.Values); err != nil {
		return err
	}
	if c.full {
		return nil
	}
	d := c.dictionary
	known := d.len()
	knownBytes, knownText := d.bytes, len(d.text)
	if cap(c.numbered) < p.Values {
		c.numbered = make([]uint32, p.Values)
	}
	s.numbers, s.same = c.numbered[:p.Values], true
	if c.kind == words {
		for i, v := range s.words {
			s.numbers[i] = d.addWord(v)
			s.same = s.same && s.numbers[i] == uint32(i)
		}
	} else {
		for i, v := range s.text {
			s.numbers[i] = d.addText(v)
			s.same = s.same && s.numbers[i] == uint32(i)
		}
	}
	values := int(c.rows-c.nulls) - c.levels.nulls + rows - int(s.Nulls)
	if d.bytes <= c.options.DictionaryBytes && (c.pagesCoded > 0 || values < paysValues || 2*d.len() <= values) {
		return nil
	}
	// What was added goes again; the dictionary takes nothing more, so that its slots may go stale.
	if c.kind == words {
		d.words = d.words[:known]
	} else {
		d.ends, d.text = d.ends[:known], d.text[:knownText]
	}
	d.bytes = knownBytes
	s.numbers = nil
	c.giveUp()
	return nil
}

// readEntries reads n plain values of the dictionary page in s.body.
func (c *Column) readEntries(n int) error {
	s := &c.source
	b := s.body
	for range n {
		width := c.width
		if c.kind == text {
			if len(b) < 4 {
				return errCut
			}
			width, b = int(binary.LittleEndian.Uint32(b)), b[4:]
		}
		if width > len(b) || width < 0 {
			return errCut
		}
		if c.kind == words {
			s.words = append(s.words, word(b, c.width, c.float))
		} else {
			s.text = append(s.text, b[:width:width])
		}
		b = b[width:]
	}
	return nil
}

// splice moves a page as it is.
func (c *Column) splice(p EncodedPage) {
	c.endPage()
	page := append(make([]byte, 0, p.End-p.Start), c.source.Bytes[p.Start:p.End]...)
	c.pages = append(c.pages, page)
	c.pagesBytes += int64(len(page))
	c.uncompressed += int64(p.Body - p.Start + p.Uncompressed)
	c.rows += int64(p.Values)
	switch {
	case p.Coded:
		c.pagesCoded++
	case p.Delta:
		c.pagesDelta++
	default:
		c.pagesPlain++
	}
}

// open decompresses a data page and reads its levels: which rows are null, as a bitmap or nil if none is, and what
// follows.
func (c *Column) open(p EncodedPage) (valid []byte, nulls int, rest []byte, err error) {
	s := &c.source
	if s.page, err = s.Decompress(s.page[:0], s.Bytes[p.Body:p.End], p.Uncompressed); err != nil {
		return nil, 0, nil, err
	}
	if len(s.page) != p.Uncompressed {
		return nil, 0, nil, errCut
	}
	s.page = append(s.page, make([]byte, unpackPadding)...)
	rest = s.page[:p.Uncompressed]
	if !c.optional {
		return nil, 0, rest, nil
	}
	coded, rest, err := splitLevels(rest)
	if err != nil {
		return nil, 0, nil, err
	}
	if valid, err = s.levels(coded, p.Values); err != nil {
		return nil, 0, nil, err
	}
	if valid != nil {
		nulls = p.Values - bitutil.CountSetBits(valid, 0, p.Values)
	}
	s.nulls += int64(nulls)
	return valid, nulls, rest, nil
}

// levels reads definition levels of n rows in the forms that levels.append writes: one run, or one packed run.
func (s *source) levels(b []byte, n int) ([]byte, error) {
	head, used := binary.Uvarint(b)
	if used <= 0 {
		return nil, errCut
	}
	b = b[used:]
	switch {
	case head&1 == 0 && head>>1 == uint64(n) && len(b) == 1 && b[0] == 1:
		return nil, nil
	case head&1 == 1 && head>>1 <= math.MaxInt32/8 && int(head>>1)*8 >= n && len(b) == int(head>>1):
		s.validity = append(s.validity[:0], b...)
		return s.validity, nil
	}
	return nil, errors.New("levels that are not written here")
}

// addCoded adds a page of indices.
func (c *Column) addCoded(p EncodedPage) error {
	s := &c.source
	if !c.full && s.numbers != nil && s.same && p.Uncompressed >= splicedBytesMin {
		c.splice(p)
		return nil
	}
	valid, _, rest, err := c.open(p)
	if err != nil {
		return err
	}
	entries := len(s.words) + len(s.text)
	if len(rest) == 0 {
		return errCut
	}
	indices, err := newHybrid(rest[1:], int(rest[0]))
	if err != nil {
		return err
	}
	for row := 0; row < p.Values; {
		n := min(p.Values-row, blockRows)
		values := n
		if valid != nil {
			values = bitutil.CountSetBits(valid, row, n)
		}
		at := len(c.indices)
		c.indices = grow(c.indices, values)
		block := c.indices[at:]
		if err := indices.read(block); err != nil {
			return err
		}
		for _, v := range block {
			if int(v) >= entries {
				return errIndex
			}
		}
		if s.numbers != nil {
			numbers := s.numbers
			for i, v := range block {
				block[i] = numbers[v]
			}
		} else {
			c.indices = c.indices[:at]
			c.copyValues(block)
		}
		c.levels.addBits(valid, row, n, n-values)
		c.rows += int64(n)
		row += n
		c.endFullPage()
		if s.numbers != nil && c.full {
			return errors.New("a dictionary was given up within a page") // no path does that
		}
	}
	return nil
}

func grow(s []uint32, n int) []uint32 {
	if cap(s)-len(s) < n {
		s = append(make([]uint32, 0, 2*cap(s)+n), s...)
	}
	return s[:len(s)+n]
}

// copyValues appends the plain values that indices of the chunk stand for.
func (c *Column) copyValues(indices []uint32) {
	s := &c.source
	if c.kind != words {
		for _, v := range indices {
			c.plain = c.appendText(c.plain, s.text[v])
		}
		return
	}
	for _, v := range indices {
		c.plain = appendWord(c.plain, s.words[v], c.width)
	}
}

// addPlain adds a page of plain values, or of their differences.
func (c *Column) addPlain(p EncodedPage) error {
	s := &c.source
	if p.Delta && (c.kind != words || c.float) {
		return errDelta
	}
	if !c.full {
		c.giveUp()
	}
	spliced := p.Uncompressed >= splicedBytesMin || p.Delta && p.Values*c.width >= splicedBytesMin
	if spliced && s.Observe == nil {
		c.splice(p)
		return nil
	}
	before := s.nulls
	valid, nulls, rest, err := c.open(p)
	if err != nil {
		return err
	}
	values := p.Values - nulls
	if p.Delta {
		if rest, err = s.undelta(rest, values, c.width); err != nil {
			return err
		}
	}
	if s.Observe != nil {
		if err := s.Observe(rest, values); err != nil {
			return err
		}
	}
	if spliced {
		s.nulls = before
		c.splice(p)
		return nil
	}
	switch {
	case c.kind == bits1:
		if len(rest) < (values+7)/8 {
			return errCut
		}
		for len(c.plain)-levelsRoom < (c.count+values+7)/8 {
			c.plain = append(c.plain, 0)
		}
		bitutil.CopyBitmap(rest, 0, values, c.plain[levelsRoom:], c.count)
		c.count += values
	case c.kind != text && len(rest) != values*c.width:
		return errCut
	default:
		c.plain = append(c.plain, rest...)
	}
	c.levels.addBits(valid, 0, p.Values, nulls)
	c.rows += int64(p.Values)
	c.endFullPage()
	return nil
}

// undelta makes plain values of a page of differences, of which there must be n.
func (s *source) undelta(b []byte, n, width int) ([]byte, error) {
	said, err := s.deltas.open(b, width)
	if err != nil {
		return nil, err
	}
	if said != n || n*width > undeltaMax {
		return nil, errDelta
	}
	s.plain = s.plain[:0]
	for block := make([]uint64, min(n, blockRows)); n > 0; n -= len(block) {
		block = block[:min(n, len(block))]
		if err := s.deltas.read(block); err != nil {
			return nil, err
		}
		for _, v := range block {
			s.plain = appendWord(s.plain, v, width)
		}
	}
	return s.plain, nil
}
