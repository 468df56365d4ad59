package columnchunk

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

const (
	// blockRows is how many rows are taken at a time: the scratch that they are converted in stays in the cache, and
	// page and dictionary are at most that much above their bounds.
	blockRows = 4096
	// probeValues is after how many values a dictionary is given up that found more than every second one to be new. Where the
	// chunk before has ended so, few are enough.
	probeValues      = 16 << 10
	probeAgainValues = 2 << 10
	// paysValues is the fewest values whose dictionary is judged at the end of a chunk: of fewer it does not matter.
	paysValues = 1 << 10
	// formPages is for how many pages a form holds that was chosen by trying all, and formGain the part of the bytes that a
	// more costly one must save: indices without order are as small after little effort.
	formPages = 16
	formGain  = 0.05
	// storePages is the same for pages that are stored: trying costs little where nothing is found, and not trying costs the
	// most where there has come to be something.
	storePages = 3
	// deltaSure is how many times smaller than its values a page of differences is that is taken without trying how small the
	// values can be compressed, which takes longer than all else.
	deltaSure = 4
	// formBytesMin is the size from which a page is tried in all forms: of smaller ones it does not matter, and they are a bad
	// sample.
	formBytesMin = 4 << 10
	// boundBytesMax is the longest value that is kept as a minimum or maximum: longer ones cost every reader of the
	// footer more than they save.
	boundBytesMax = 64
	// levelsRoom is the room for the levels of a page without nulls: a length, a run's header and its level.
	levelsRoom = 16
)

// Options say how chunks are encoded. All are needed.
type Options struct {
	PageBytes       int // size at which a data page ends, before compression
	DictionaryBytes int // size at which a dictionary is given up, before compression
	// Compress compresses src into dst, which it may grow.
	Compress func(dst, src []byte, effort Effort) []byte
}

// Effort is how hard a page is compressed.
type Effort int

// The efforts.
const (
	Store    Effort = iota // as it is, in the codec's frame
	Fast                   // two to four times as fast as Thorough
	Thorough               // smaller, where there is something to find
)

// form is how the data pages of a column are written: its indices, and its plain values.
type form struct {
	effort Effort
	delta  bool // plain values as their differences
	left   int  // pages until all forms are tried again
}

// kind is how the values of a column are stored.
type kind int

const (
	unsupported kind = iota
	bits1            // BOOLEAN
	words            // INT32, INT64, FLOAT, DOUBLE
	text             // BYTE_ARRAY
	fixed            // FIXED_LEN_BYTE_ARRAY, decimals
)

func kindOf(dt arrow.DataType) (k kind, width int) {
	switch dt := dt.(type) {
	case *arrow.BooleanType:
		return bits1, 0
	case *arrow.Int8Type, *arrow.Int16Type, *arrow.Int32Type, *arrow.Date32Type, *arrow.Float32Type:
		return words, 4
	case *arrow.Int64Type, *arrow.TimestampType, *arrow.Float64Type:
		return words, 8
	case *arrow.StringType, *arrow.BinaryType:
		return text, 4
	case *arrow.Decimal128Type:
		return fixed, int(pqarrow.DecimalSize(dt.Precision))
	}
	return unsupported, 0
}

// Supports says whether a type is encoded here.
func Supports(dt arrow.DataType) bool {
	k, _ := kindOf(dt)
	return k != unsupported
}

// Bounds says whether chunks of a type know their least and greatest value.
func Bounds(dt arrow.DataType) bool {
	k, _ := kindOf(dt)
	return k != unsupported && k != bits1
}

// Column encodes the chunks of one column, one after the other. It is not safe for concurrent use.
type Column struct {
	options  Options
	kind     kind
	width    int // bytes of a value in a page; for text of its length
	float    bool
	differs  bool // the values may be written as their differences, which a Decoder reads
	optional bool

	// The open page. Values are indices while there is a dictionary, else plain.
	levels  levels
	count   int // values in it that are not null
	indices []uint32
	plain   []byte // behind room for levels

	// The open chunk.
	dictionary   *dictionary
	full         bool // the dictionary takes no more: later pages are plain
	probe        int  // values after which the dictionary is judged
	pages        [][]byte
	pagesBytes   int64
	pagesCoded   int // pages of indices
	pagesPlain   int
	pagesDelta   int
	rows, nulls  int64
	uncompressed int64
	bounds       bounds

	coded, uncoded form // of pages of indices, and of others

	scratch    []uint64
	body       []byte
	delta      []byte
	compressed []byte
	other      []byte
	source     source
	numbered   []uint32
}

// bounds are the least and the greatest value of a chunk.
type bounds struct {
	any              bool
	lost             bool // some values are not known: there are none
	low, high        int64
	lowReal, topReal float64 // of floats; those that are no numbers are above all others,
	nan              bool    // and there were some
	lowText, topText []byte
	signed           bool // texts are decimals: big-endian, in two's complement
}

// NewColumn encodes columns of a type that Supports; optional columns may have nulls.
func NewColumn(dt arrow.DataType, optional bool, o Options) *Column {
	c := &Column{options: o, optional: optional}
	c.kind, c.width = kindOf(dt)
	c.float = arrow.IsFloating(dt.ID())
	c.differs = c.kind == words && !c.float && Decodes(dt)
	c.plain = make([]byte, levelsRoom)
	c.coded.effort, c.uncoded.effort = Fast, Fast // until a page is large enough to be tried
	c.begin()
	return c
}

func (c *Column) begin() {
	c.probe = probeValues
	if c.pagesPlain+c.pagesDelta > 0 && c.pagesCoded == 0 {
		c.probe = probeAgainValues
	}
	c.dictionary, c.full = nil, c.kind == bits1
	if !c.full {
		width := c.width
		if c.kind == fixed {
			width = 0
		}
		c.dictionary = newDictionary(width)
	}
	c.pages, c.pagesBytes, c.pagesCoded, c.pagesPlain, c.pagesDelta = nil, 0, 0, 0, 0
	c.rows, c.nulls, c.uncompressed = 0, 0, 0
	c.bounds = bounds{low: math.MaxInt64, high: math.MinInt64, lowReal: math.Inf(1), topReal: math.Inf(-1), signed: c.kind == fixed}
}

// Buffered is the number of bytes the open chunk would have if it ended now, about.
func (c *Column) Buffered() int64 {
	n := len(c.plain)/2 + len(c.indices)
	if c.dictionary != nil {
		n += c.dictionary.bytes / 2
	}
	return c.pagesBytes + int64(n)
}

// Add encodes n values of an array of the column's type, from value from on.
func (c *Column) Add(arr arrow.Array, from, n int) {
	for n > 0 {
		take := min(n, blockRows)
		c.levels.add(arr, from, take)
		c.rows += int64(take)
		switch c.kind {
		case bits1:
			c.addBits(arr.(*array.Boolean), from, take)
		case words:
			c.addWords(c.wordsOf(arr, from, take))
		case text:
			c.addTexts(arr, from, take)
		case fixed:
			c.addDecimals(arr.(*array.Decimal128), from, take)
		}
		from, n = from+take, n-take
		c.settle()
	}
}

// settle gives up a dictionary that does not pay, and ends a page that is full.
func (c *Column) settle() {
	if d := c.dictionary; d != nil && !c.full {
		values := int(c.rows-c.nulls) - c.levels.nulls
		if d.bytes > c.options.DictionaryBytes || values >= c.probe && c.pagesCoded == 0 && 2*d.len() > values {
			c.giveUp()
		}
	}
	c.endFullPage()
}

func (c *Column) endFullPage() {
	if len(c.plain)-levelsRoom >= c.options.PageBytes || 4*len(c.indices) >= c.options.PageBytes {
		c.endPage()
	}
}

// giveUp goes over to plain values. A dictionary that no page refers to yet is undone.
func (c *Column) giveUp() {
	c.full = true
	if c.pagesCoded > 0 {
		c.endPage()
		return
	}
	d := c.dictionary
	for _, i := range c.indices {
		if c.kind == words {
			c.plain = appendWord(c.plain, d.words[i], c.width)
		} else {
			c.plain = c.appendText(c.plain, d.at(int(i)))
		}
	}
	c.indices, c.dictionary = c.indices[:0], nil
}

func appendWord(dst []byte, v uint64, width int) []byte {
	if width == 4 {
		return binary.LittleEndian.AppendUint32(dst, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(dst, v)
}

func (c *Column) appendText(dst, v []byte) []byte {
	if c.kind == text {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(v)))
	}
	return append(dst, v...)
}

// endPage writes the open page, if it has rows.
func (c *Column) endPage() {
	if c.levels.rows == 0 {
		return
	}
	c.body = c.body[:0]
	if c.optional {
		c.body = c.levels.append(c.body)
	}
	var page []byte
	if c.dictionary != nil && (!c.full || len(c.indices) > 0) {
		page = c.codedPage()
	} else {
		page = c.plainPage()
	}
	c.pages = append(c.pages, page)
	c.pagesBytes += int64(len(page))
	c.nulls += int64(c.levels.nulls)
	c.levels.reset()
	c.indices, c.plain, c.count = c.indices[:0], c.plain[:levelsRoom], 0
}

// plainBody is the levels in c.body with the plain values behind them. Levels of a page without nulls are short and fit
// the room in front of the values, which then need not move.
func (c *Column) plainBody() []byte {
	if n := len(c.body); n <= levelsRoom {
		copy(c.plain[levelsRoom-n:], c.body)
		return c.plain[levelsRoom-n:]
	}
	c.body = append(c.body, c.plain[levelsRoom:]...)
	return c.body
}

// Chunk is an encoded column chunk.
type Chunk struct {
	Dictionary   []byte   // the dictionary page; empty if there is none
	Pages        [][]byte // the data pages
	PagesBytes   int64
	Values       int64 // rows, nulls included
	Uncompressed int64 // bytes, page headers included
	PagesCoded   int   // data pages of dictionary indices
	PagesPlain   int   // data pages of plain values
	PagesDelta   int   // data pages of differences
	Statistics   metadata.EncodedStatistics
	// Low and High are the bounds of what was given as rows or as chunks with bounds, however long, as statistics have
	// them, and with floats that are no numbers above all others; nil without any, and for types without Bounds. Those in
	// Statistics are of all rows, or not there.
	Low, High []byte
}

// End ends the open chunk and begins the next.
func (c *Column) End() Chunk {
	// A short chunk may end before anything has asked whether its dictionary pays.
	if values := int(c.rows-c.nulls) - c.levels.nulls; !c.full && c.pagesCoded == 0 && values >= paysValues && 2*c.dictionary.len() > values {
		c.giveUp()
	}
	c.endPage()
	out := Chunk{Pages: c.pages, PagesBytes: c.pagesBytes, Values: c.rows, PagesCoded: c.pagesCoded, PagesPlain: c.pagesPlain, PagesDelta: c.pagesDelta}
	if d := c.dictionary; d != nil && c.pagesCoded > 0 {
		body := c.body[:0]
		for _, v := range d.words {
			body = appendWord(body, v, c.width)
		}
		for i := range d.ends {
			body = c.appendText(body, d.at(i))
		}
		c.compress(body, Thorough)
		out.Dictionary = c.page(pageDictionary, d.len(), encodingPlain, body)
		c.body = body
	}
	out.Uncompressed = c.uncompressed
	out.Low, out.High = c.bounded()
	out.Statistics = c.statistics(out.Low, out.High)
	c.begin()
	return out
}

// bounded is the bounds of the open chunk.
func (c *Column) bounded() (low, high []byte) {
	b := &c.bounds
	switch {
	case c.float && b.nan && !b.any:
		nan := c.appendReal(nil, math.NaN())
		return nan, nan
	case !b.any:
		return nil, nil
	case c.float && b.nan:
		return c.appendReal(nil, zeroTo(b.lowReal, -1)), c.appendReal(nil, math.NaN())
	case c.float:
		return c.appendReal(nil, zeroTo(b.lowReal, -1)), c.appendReal(nil, zeroTo(b.topReal, 1))
	case c.kind == words:
		return appendWord(nil, uint64(b.low), c.width), appendWord(nil, uint64(b.high), c.width)
	case c.kind == text, c.kind == fixed:
		return append([]byte{}, b.lowText...), append([]byte{}, b.topText...)
	}
	return nil, nil
}

// zeroTo gives a zero a sign: as a bound it is -0.0 below and 0.0 above, says the format, for readers that tell them apart.
func zeroTo(f, sign float64) float64 {
	if f == 0 {
		return math.Copysign(0, sign)
	}
	return f
}

func (c *Column) appendReal(dst []byte, f float64) []byte {
	if c.width == 4 {
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f)))
	}
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

// statistics are without bounds where some rows are in none: an unknown chunk's, or floats that are no numbers.
func (c *Column) statistics(low, high []byte) metadata.EncodedStatistics {
	s := metadata.EncodedStatistics{HasNullCount: true, NullCount: c.nulls, Signed: true}
	if low != nil && !c.bounds.lost && !c.bounds.nan && len(low) <= boundBytesMax && len(high) <= boundBytesMax {
		s.HasMin, s.Min, s.HasMax, s.Max, s.Signed = true, low, true, high, c.kind != text
	}
	return s
}
