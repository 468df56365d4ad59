package columnchunk

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/columns"
)

// Decodes says whether a Decoder makes arrays of a type: those whose values a file holds as Arrow does, and text.
func Decodes(dt arrow.DataType) bool {
	switch dt.ID() {
	case arrow.INT32, arrow.DATE32, arrow.INT64, arrow.TIMESTAMP, arrow.FLOAT32, arrow.FLOAT64, arrow.STRING, arrow.BINARY:
		return true
	}
	return false
}

// Decoder decodes a chunk of a flat column into Arrow, some rows at a time. Whole stretches of values move at once: a text
// of a dictionary page or of a plain page is copied, and nothing else is done for it. It is not safe for concurrent use.
type Decoder struct {
	typ      arrow.DataType
	width    int // of a value; 0 for text
	optional bool
	chunk    Encoded
	next     int // page

	// The open page.
	left     int     // rows not yet returned
	valid    []byte  // a bit per row of the page; nil if none is null
	at       int     // the next row, in valid
	plain    []byte  // values not yet returned
	indices  *hybrid // instead of them,
	deltas   *deltas // or these
	body     []byte  // of the page, with padding behind it
	validity []byte

	dictionary []byte
	starts     []uint32 // of a dictionary's texts, after their lengths
	entries    int
	block      []uint32
	words      []uint64
}

// NewDecoder decodes a chunk of a type that Decodes, from its first row on. Of the chunk, Bytes, Pages and Decompress must be
// set. Pages that are not what their headers say are errors, at the row where they are met.
func NewDecoder(dt arrow.DataType, optional bool, chunk Encoded) *Decoder {
	d := &Decoder{typ: dt, optional: optional, chunk: chunk}
	if fixed, ok := dt.(arrow.FixedWidthDataType); ok {
		d.width = fixed.Bytes()
	}
	return d
}

// errLevels says that the definition levels of a page are no levels of its rows.
var errLevels = errors.New("its levels are not those of its rows")

// decoding is the array that is being made.
type decoding struct {
	mem      memory.Allocator
	rows     int // in all
	at       int // rows made
	nulls    int
	validity *memory.Buffer // nil as long as no row is null
	offsets  *memory.Buffer // of text
	values   *memory.Buffer
}

func (o *decoding) release() {
	for _, b := range []*memory.Buffer{o.validity, o.offsets, o.values} {
		if b != nil {
			b.Release()
		}
	}
}

// Next decodes the next n rows, which must be there.
func (d *Decoder) Next(mem memory.Allocator, n int) (arrow.Array, error) {
	o := &decoding{mem: mem, rows: n}
	if d.width > 0 {
		o.values = columns.NewBuffer(mem, n*d.width)
	} else {
		o.offsets, o.values = columns.NewBuffer(mem, (n+1)*arrow.Int32SizeBytes), memory.NewResizableBuffer(mem)
		arrow.Int32Traits.CastFromBytes(o.offsets.Bytes())[0] = 0
	}
	for o.at < n {
		if err := d.some(o); err != nil {
			o.release()
			return nil, err
		}
	}
	if d.width > 0 {
		return columns.Make(d.typ, n, o.nulls, nil, o.validity, o.values), nil
	}
	return columns.Make(d.typ, n, o.nulls, nil, o.validity, o.offsets, o.values), nil
}

// some decodes rows of one page.
func (d *Decoder) some(o *decoding) error {
	for d.left == 0 {
		if err := d.open(); err != nil {
			return err
		}
	}
	n := min(d.left, o.rows-o.at)
	values := n
	if d.valid != nil {
		values = bitutil.CountSetBits(d.valid, d.at, n)
	}
	o.mark(d.valid, d.at, n, n-values)
	var err error
	switch {
	case d.deltas != nil:
		err = d.deltaFixed(o, n, values)
	case d.width > 0 && d.indices == nil:
		err = d.plainFixed(o, n, values)
	case d.width > 0:
		err = d.codedFixed(o, n, values)
	case d.indices == nil:
		err = d.plainText(o, n, values)
	default:
		err = d.codedText(o, n, values)
	}
	d.left -= n
	d.at += n
	o.at += n
	return err
}

// mark notes which of the next rows are null.
func (o *decoding) mark(valid []byte, from, n, nulls int) {
	if nulls > 0 && o.validity == nil {
		o.validity = columns.NewBuffer(o.mem, int(bitutil.BytesForBits(int64(o.rows))))
		bitutil.SetBitsTo(o.validity.Bytes(), 0, int64(o.rows), true)
	}
	if nulls > 0 {
		bitutil.CopyBitmap(valid, from, n, o.validity.Bytes(), o.at)
	}
	o.nulls += nulls
}

// open opens the next data page.
func (d *Decoder) open() error {
	if d.next == len(d.chunk.Pages) {
		return errors.New("the column ends before its last row")
	}
	p := d.chunk.Pages[d.next]
	d.next++
	if p.Dictionary {
		return d.readDictionary(p)
	}
	body, err := d.chunk.Decompress(d.body[:0], d.chunk.Bytes[p.Body:p.End], p.Uncompressed)
	if err != nil {
		return err
	}
	d.body = append(body, make([]byte, unpackPadding)...)
	rest := d.body[:len(body)]
	d.valid, d.at = nil, 0
	if d.optional {
		if rest, err = d.levels(rest, p.Values); err != nil {
			return err
		}
	}
	d.plain, d.indices, d.deltas = rest, nil, nil
	if p.Delta {
		if d.deltas, err = d.differences(rest); err != nil {
			return err
		}
	} else if p.Coded && len(rest) > 0 {
		if d.indices, err = newHybrid(rest[1:], int(rest[0])); err != nil {
			return err
		}
	} else if p.Coded {
		d.indices = &hybrid{}
	}
	d.left = p.Values
	return nil
}

// levels reads which of n rows are null and returns what follows.
func (d *Decoder) levels(b []byte, n int) ([]byte, error) {
	coded, rest, err := splitLevels(b)
	if err != nil {
		return nil, err
	}
	h := hybrid{b: coded, width: 1}
	for at := 0; at < n; {
		if err := h.begin(); err != nil {
			return nil, err
		}
		run := min(h.run, n-at)
		switch {
		case h.packed:
			d.mixed(at, n)
			bitutil.CopyBitmap(h.b, 0, run, d.valid, at)
			h.b = h.b[h.bytes:]
		case h.value > 1:
			return nil, errLevels
		case h.value == 0:
			d.mixed(at, n)
			bitutil.SetBitsTo(d.valid, int64(at), int64(run), false)
		case d.valid != nil:
			bitutil.SetBitsTo(d.valid, int64(at), int64(run), true)
		}
		at += run
	}
	return rest, nil
}

// mixed gives the page a bitmap; its first rows so far are not null.
func (d *Decoder) mixed(at, n int) {
	if d.valid != nil {
		return
	}
	if size := (n + 7) / 8; cap(d.validity) < size {
		d.validity = make([]byte, size)
	}
	d.valid = d.validity[:(n+7)/8]
	bitutil.SetBitsTo(d.valid, 0, int64(at), true)
}

func (d *Decoder) readDictionary(p EncodedPage) error {
	body, err := d.chunk.Decompress(nil, d.chunk.Bytes[p.Body:p.End], p.Uncompressed)
	if err != nil {
		return err
	}
	d.dictionary, d.entries = body, p.Values
	if d.width > 0 {
		if len(body)/d.width < p.Values {
			return errCut
		}
		return nil
	}
	d.starts = make([]uint32, 0, p.Values)
	for at := 0; len(d.starts) < p.Values; {
		size, err := textAt(body, at)
		if err != nil {
			return err
		}
		d.starts = append(d.starts, uint32(at+4))
		at += 4 + size
	}
	return nil
}

// textAt is the length of the text that begins at a place of plain values with its length.
func textAt(b []byte, at int) (int, error) {
	if len(b)-at < 4 {
		return 0, errCut
	}
	size := binary.LittleEndian.Uint32(b[at:])
	if uint64(size) > uint64(len(b)-at-4) {
		return 0, errCut
	}
	return int(size), nil
}

// spread moves values that lie close together at the start of n places to the places that are not null, and clears the others.
func (d *Decoder) spread(b []byte, n, values int) {
	from := values
	for i := n - 1; i >= 0 && from <= i; i-- {
		place := b[i*d.width : (i+1)*d.width]
		if bitutil.BitIsSet(d.valid, d.at+i) {
			from--
			copy(place, b[from*d.width:(from+1)*d.width])
		} else {
			clear(place)
		}
	}
}

func (d *Decoder) plainFixed(o *decoding, n, values int) error {
	if len(d.plain) < values*d.width {
		return errCut
	}
	dst := o.values.Bytes()[o.at*d.width : (o.at+n)*d.width]
	copy(dst, d.plain[:values*d.width])
	d.plain = d.plain[values*d.width:]
	if values < n {
		d.spread(dst, n, values)
	}
	return nil
}

// differences opens a page of them.
func (d *Decoder) differences(b []byte) (*deltas, error) {
	if d.width == 0 || arrow.IsFloating(d.typ.ID()) {
		return nil, errDelta
	}
	out := &deltas{}
	_, err := out.open(b, d.width) // reading more than there are is an error
	return out, err
}

func (d *Decoder) deltaFixed(o *decoding, n, values int) error {
	dst := o.values.Bytes()[o.at*d.width : (o.at+n)*d.width]
	var err error
	if d.width == 8 {
		err = d.deltas.read(arrow.Uint64Traits.CastFromBytes(dst)[:values])
	} else {
		err = d.narrowDeltas(dst, values)
	}
	if err == nil && values < n {
		d.spread(dst, n, values)
	}
	return err
}

// narrowDeltas reads values of four bytes.
func (d *Decoder) narrowDeltas(dst []byte, values int) error {
	d.words = append(d.words[:0], make([]uint64, min(values, blockRows))...)
	for values > 0 {
		block := d.words[:min(values, len(d.words))]
		if err := d.deltas.read(block); err != nil {
			return err
		}
		for i, v := range block {
			binary.LittleEndian.PutUint32(dst[4*i:], uint32(v))
		}
		dst, values = dst[4*len(block):], values-len(block)
	}
	return nil
}

// read reads indices, which are good until the next call.
func (d *Decoder) read(n int) ([]uint32, error) {
	d.block = grow(d.block[:0], n)
	if err := d.indices.read(d.block); err != nil {
		return nil, err
	}
	for _, v := range d.block {
		if int(v) >= d.entries {
			return nil, errIndex
		}
	}
	return d.block, nil
}

func (d *Decoder) codedFixed(o *decoding, n, values int) error {
	indices, err := d.read(values)
	if err != nil {
		return err
	}
	dst := o.values.Bytes()[o.at*d.width : (o.at+n)*d.width]
	if d.width == 8 {
		for i, v := range indices {
			binary.LittleEndian.PutUint64(dst[i*8:], binary.LittleEndian.Uint64(d.dictionary[v*8:]))
		}
	} else {
		for i, v := range indices {
			binary.LittleEndian.PutUint32(dst[i*4:], binary.LittleEndian.Uint32(d.dictionary[v*4:]))
		}
	}
	if values < n {
		d.spread(dst, n, values)
	}
	return nil
}

// room makes room for the bytes of n more texts, with some to spare for those of the pages to come.
func (o *decoding) room(n int, size int) ([]byte, error) {
	before := o.values.Len()
	if before+size > math.MaxInt32 {
		return nil, errors.New("a batch of it crosses 2 GiB")
	}
	if before+size > o.values.Cap() {
		most := before + size
		if n > 0 && o.at+n < o.rows {
			most += int(float64(size) / float64(n) * float64(o.rows-o.at-n) * 1.05)
		}
		o.values.Reserve(min(most, max(2*(before+size), 1<<20)))
	}
	o.values.ResizeNoShrink(before + size)
	return o.values.Bytes()[before:], nil
}

func (d *Decoder) plainText(o *decoding, n, values int) error {
	end := 0
	for range values {
		size, err := textAt(d.plain, end)
		if err != nil {
			return err
		}
		end += 4 + size
	}
	dst, err := o.room(n, end-4*values)
	if err != nil {
		return err
	}
	offsets := arrow.Int32Traits.CastFromBytes(o.offsets.Bytes())[o.at : o.at+n+1]
	at, src := offsets[0], d.plain
	for i := range n {
		if d.valid == nil || bitutil.BitIsSet(d.valid, d.at+i) {
			size := int(binary.LittleEndian.Uint32(src))
			copy(dst, src[4:4+size])
			dst, src, at = dst[size:], src[4+size:], at+int32(size)
		}
		offsets[i+1] = at
	}
	d.plain = src
	return nil
}

func (d *Decoder) codedText(o *decoding, n, values int) error {
	indices, err := d.read(values)
	if err != nil {
		return err
	}
	total := 0
	for _, v := range indices {
		total += int(binary.LittleEndian.Uint32(d.dictionary[d.starts[v]-4:]))
	}
	dst, err := o.room(n, total)
	if err != nil {
		return err
	}
	offsets := arrow.Int32Traits.CastFromBytes(o.offsets.Bytes())[o.at : o.at+n+1]
	at := offsets[0]
	for i := range n {
		if d.valid == nil || bitutil.BitIsSet(d.valid, d.at+i) {
			start := d.starts[indices[0]]
			size := binary.LittleEndian.Uint32(d.dictionary[start-4:])
			copy(dst, d.dictionary[start:start+size])
			dst, indices, at = dst[size:], indices[1:], at+int32(size)
		}
		offsets[i+1] = at
	}
	return nil
}
