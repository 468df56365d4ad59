package parquetfile

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"tidemark/internal/columnchunk"
	"tidemark/internal/columns"
)

// Layout is what a table's flat columns look like in a Parquet file.
type Layout struct {
	arrow *arrow.Schema
	taken func(*Reader) bool
}

// LayoutOf returns nil for columns whose row groups cannot be recoded: nested ones.
func LayoutOf(columns *arrow.Schema) (*Layout, error) {
	for _, f := range columns.Fields() {
		if !columnchunk.Supports(f.Type) {
			return nil, nil
		}
	}
	_, stored, err := flatColumns(columns, encoding(columns, memory.DefaultAllocator), pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, err
	}
	return &Layout{arrow: columns, taken: func(r *Reader) bool { return sameColumns(stored, r.meta) }}, nil
}

// Recodes says whether Writer.Recode takes the row groups of a file: it has exactly the columns of the layout, a Writer has
// written it, and so its values are such as may be stored, and its chunks say how many nulls they have.
func (l *Layout) Recodes(r *Reader) bool {
	if l == nil || !writtenByUs(r.meta) || !l.taken(r) {
		return false
	}
	for i, group := range r.meta.RowGroups {
		if r.groups[i].Bytes > rawMax {
			return false
		}
		for _, chunk := range group.Columns {
			about := chunk.MetaData
			if compress.Compression(about.Codec) != compress.Codecs.Zstd || about.Statistics == nil || about.Statistics.NullCount == nil {
				return false
			}
		}
	}
	return true
}

// Recode appends the rows of a row group of a file that a layout of the writer's columns Recodes, without decoding what
// need not be decoded. A row group that is not what its footer says is a *FileError, and the file being written is lost.
func (w *Writer) Recode(g *RawRowGroup) error {
	if w.err == nil {
		w.err = w.recode(g)
	}
	return w.err
}

func (w *Writer) recode(g *RawRowGroup) error {
	flat, ok := w.file.(*flatRowGroups)
	if !ok || !sameColumns(flat.columns, g.meta) {
		return errors.New("a row group of other columns cannot be recoded: ask Recodes first")
	}
	if g.Rows() == 0 {
		return nil
	}
	raw := g.rawBytes()
	if err := w.openGroup(g.Rows(), raw); err != nil {
		return err
	}
	chunks := make([]columnchunk.Encoded, len(g.chunks))
	for i := range chunks {
		var err error
		if chunks[i], err = g.encoded(i); err != nil {
			return g.damaged(i, err)
		}
	}
	if err := w.stats.addEncoded(w.schema, g, chunks); err != nil {
		return err
	}
	err := w.contain(func() error { return flat.group.AddEncoded(g.Rows(), chunks) })
	var in *columnchunk.EncodedError
	if errors.As(err, &in) {
		return g.damaged(in.Column, in.Err)
	}
	if err != nil {
		return err
	}
	if w.groupRows == 0 {
		w.keys.open.first = g.keys.first
	}
	w.keys.open.last = g.keys.last
	w.groupRows += g.Rows()
	w.groupRaw += raw
	return nil
}

func (g *RawRowGroup) damaged(column int, err error) error {
	return &FileError{g.path, g.index, g.meta.Schema.Column(column).Path(), err}
}

// encoded is a chunk as columnchunk takes it.
func (g *RawRowGroup) encoded(column int) (columnchunk.Encoded, error) {
	said := g.meta.RowGroups[g.index].Columns[column].MetaData.Statistics
	e := columnchunk.Encoded{Bytes: g.chunks[column], Nulls: *said.NullCount, Decompress: decompress}
	if said.MinValue != nil && said.MaxValue != nil {
		e.Min, e.Max = said.MinValue, said.MaxValue
		if width := fixedPhysical(g.meta.Schema.Column(column)); width > 0 && (len(e.Min) != width || len(e.Max) != width) {
			return e, fmt.Errorf("bounds of %d and %d bytes", len(e.Min), len(e.Max))
		}
	}
	if e.Nulls < 0 || e.Nulls > g.Rows() {
		return e, fmt.Errorf("%d nulls in %d rows", e.Nulls, g.Rows())
	}
	var err error
	e.Pages, err = encodedPages(g.pages[column])
	return e, err
}

// encodedPages are pages as columnchunk takes them.
func encodedPages(pages []page) ([]columnchunk.EncodedPage, error) {
	out := make([]columnchunk.EncodedPage, len(pages))
	for i, p := range pages {
		encoding := parquet.Encoding(p.encoding)
		coded, delta := encoding == parquet.Encodings.RLEDict, encoding == parquet.Encodings.DeltaBinaryPacked
		if p.kind == pageDataV2 || !coded && !delta && encoding != parquet.Encodings.Plain || delta && p.kind == pageDictionary {
			return nil, fmt.Errorf("page %d is encoded as %s, which Tidemark does not write", i, parquet.Encoding(p.encoding))
		}
		out[i] = columnchunk.EncodedPage{
			Start: p.start, Body: p.body, End: p.body + p.compressed, Uncompressed: p.uncompressed, Values: int(p.values),
			Dictionary: p.kind == pageDictionary, Coded: coded, Delta: delta,
		}
	}
	return out, nil
}

// fixedPhysical is the size of the values of a column in statistics, 0 if it varies.
func fixedPhysical(c *schema.Column) int {
	switch c.PhysicalType() {
	case parquet.Types.Int32, parquet.Types.Float:
		return 4
	case parquet.Types.Int64, parquet.Types.Double:
		return 8
	case parquet.Types.FixedLenByteArray:
		return c.TypeLength()
	}
	return 0
}

// decompress decodes zstd into dst, which it replaces if there is no room.
func decompress(dst, src []byte, n int) ([]byte, error) {
	const padding = 8 // the caller's
	if cap(dst) < n+padding {
		dst = make([]byte, 0, n+n/4+padding)
	}
	out, err := decoder.DecodeAll(src, dst[:0:n])
	if err != nil {
		return nil, err
	}
	if len(out) != n {
		return nil, fmt.Errorf("%d bytes where its header says %d", len(out), n)
	}
	return dst[:n], nil
}

// rawBytes estimates the bytes of the rows in Arrow, taking the entries of a dictionary for equally frequent.
func (g *RawRowGroup) rawBytes() int64 {
	total := int64(0)
	for i, pages := range g.pages {
		column := g.meta.Schema.Column(i)
		if column.PhysicalType() != parquet.Types.ByteArray {
			total += g.Rows() * int64(fixedWidth(column))
			continue
		}
		perEntry := int64(0)
		for _, p := range pages {
			switch {
			case p.kind == pageDictionary:
				perEntry = int64(p.uncompressed) / max(p.values, 1)
			case parquet.Encoding(p.encoding) == parquet.Encodings.Plain:
				total += int64(p.uncompressed)
			default:
				total += p.values * (perEntry + 4)
			}
		}
	}
	return total
}

// addEncoded takes in the rows of a row group that is recoded: what its chunks say of nulls and bounds. Where they do not
// say the bounds, the values are asked for while they are recoded.
func (s *Stats) addEncoded(of *arrow.Schema, g *RawRowGroup, chunks []columnchunk.Encoded) error {
	s.NumRecords += g.Rows()
	for _, c := range s.columns {
		chunk := &chunks[c.field]
		c.nulls += chunk.Nulls
		if c.bounds == nil || chunk.Nulls == g.Rows() {
			continue
		}
		typ, column := of.Field(c.field).Type, g.meta.Schema.Column(c.field)
		if chunk.Min != nil {
			known, err := c.addBounds(typ, chunk.Min, chunk.Max)
			if err != nil {
				return g.damaged(c.field, err)
			}
			if known {
				continue
			}
		}
		chunk.Observe = func(plain []byte, n int) error {
			arr, err := plainArray(typ, column.TypeLength(), plain, n)
			if err != nil || arr == nil {
				return err
			}
			defer arr.Release()
			c.bounds.add(arr, nil)
			return nil
		}
	}
	return nil
}

var errPlain = errors.New("plain values are cut off")

// plainArray makes an array of n plain values of a column with bounds.
func plainArray(dt arrow.DataType, length int, plain []byte, n int) (arrow.Array, error) {
	mem := memory.DefaultAllocator
	switch dt := dt.(type) {
	case *arrow.StringType:
		return plainTexts(plain, n)
	case *arrow.Decimal128Type:
		if length <= 0 || len(plain) != n*length {
			return nil, errPlain
		}
		b := array.NewFixedSizeBinaryBuilder(mem, &arrow.FixedSizeBinaryType{ByteWidth: length})
		defer b.Release()
		for i := range n {
			b.Append(plain[i*length : (i+1)*length])
		}
		values := b.NewArray()
		defer values.Release()
		return decimals(mem, values, dt)
	case arrow.FixedWidthDataType:
		width := dt.Bytes()
		stored := max(width, 4) // small integers are stored in four bytes
		if len(plain) != n*stored {
			return nil, errPlain
		}
		buf := columns.NewBuffer(mem, n*width)
		for i := range n {
			copy(buf.Bytes()[i*width:(i+1)*width], plain[i*stored:])
		}
		return columns.Make(dt, n, 0, nil, nil, buf), nil
	}
	return nil, fmt.Errorf("%s has no bounds", dt)
}

// plainTexts is the lowest and the highest of n texts; nil if there is none.
func plainTexts(plain []byte, n int) (arrow.Array, error) {
	var low, high []byte
	for i := range n {
		if len(plain) < 4 {
			return nil, errPlain
		}
		size := uint64(binary.LittleEndian.Uint32(plain))
		if size > uint64(len(plain)-4) {
			return nil, errPlain
		}
		v := plain[4 : 4+size]
		plain = plain[4+size:]
		if i == 0 || string(v) < string(low) {
			low = v
		}
		if i == 0 || string(v) > string(high) {
			high = v
		}
	}
	if n == 0 {
		return nil, nil
	}
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues([]string{string(low), string(high)}, nil)
	return b.NewArray(), nil
}
