package parquetfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/metadata"
)

// Row groups move from file to file as they are, encoded. What makes that right:
//
//  1. The columns of both files are the same to the last detail of the Parquet schema: equal physical types are not equal
//     columns, DECIMAL and INT64, say.
//  2. Every offset in the copied part of the footer is shifted. What would point elsewhere, page indexes and bloom
//     filters, is left out.
//  3. Bounds are kept only if we have written them, and so know what they mean. Counts of nulls are kept.
//  4. The headers of all pages are walked: they fill the chunk exactly and count the values that the footer says.

// rawMax is the largest row group, encoded, that is moved in memory as it is. Ours end far below.
const rawMax = 256 << 20

// RowGroup describes a row group of an open file.
type RowGroup struct {
	Rows  int64
	Bytes int64 // encoded
	// First and Last are the keys of its first and last row, if the file was written with WriterOptions.Key; else nil.
	First, Last []byte
}

// RowGroups describes the row groups, in order.
func (r *Reader) RowGroups() []RowGroup { return r.groups }

func rowGroupsOf(meta *metadata.FileMetaData) []RowGroup {
	out := make([]RowGroup, len(meta.RowGroups))
	keys := keysOf(meta)
	for i, g := range meta.RowGroups {
		out[i].Rows = g.NumRows
		for _, c := range g.Columns {
			out[i].Bytes += c.MetaData.TotalCompressedSize
		}
		if keys != nil {
			out[i].First, out[i].Last = keys[i].first, keys[i].last
		}
	}
	return out
}

// RawRowGroup is a row group as the file holds it.
type RawRowGroup struct {
	path   string
	meta   *metadata.FileMetaData
	index  int
	chunks [][]byte // by column
	pages  [][]page // of each
	keys   keyRange
}

// Rows is the number of rows.
func (g *RawRowGroup) Rows() int64 { return g.meta.RowGroups[g.index].NumRows }

// FetchRowGroup reads a row group without decoding it. Page headers that contradict the footer are a *FileError. It may be
// called beside Next.
func (r *Reader) FetchRowGroup(ctx context.Context, index int) (*RawRowGroup, error) {
	g := &RawRowGroup{path: r.source.key, meta: r.meta, index: index, keys: keyRange{r.groups[index].First, r.groups[index].Last}}
	spans, err := chunkSpans(r.meta.RowGroup(index))
	if err != nil {
		return nil, &FileError{r.source.key, index, "", err}
	}
	if g.chunks, err = r.source.readSpans(ctx, spans); err != nil {
		var damaged *FileError
		if errors.As(err, &damaged) {
			damaged.RowGroup = index
		}
		return nil, err
	}
	for i, chunk := range g.chunks {
		column := r.meta.Schema.Column(i)
		about, err := r.meta.RowGroup(index).ColumnChunk(i)
		var pages []page
		if err == nil {
			pages, err = scanPages(chunk, about, column.PhysicalType())
		}
		if err != nil {
			return nil, &FileError{r.source.key, index, column.Path(), err}
		}
		g.pages = append(g.pages, pages)
	}
	return g, nil
}

// chunkSpans are where the columns of a row group lie.
func chunkSpans(group *metadata.RowGroupMetaData) ([]span, error) {
	spans := make([]span, group.NumColumns())
	total := int64(0)
	for i := range spans {
		about, err := group.ColumnChunk(i)
		if err != nil {
			return nil, err
		}
		start, n := chunkRange(about)
		spans[i] = span{start: start, n: n, want: i}
		total += n
	}
	if total > rawMax {
		return nil, fmt.Errorf("%d bytes of one row group; at most %d are moved as they are", total, rawMax)
	}
	return spans, nil
}

// Takes says whether CopyRowGroup takes row groups of a file: it has the writer's columns exactly, and no row group is too
// large to be moved as it is.
func (w *Writer) Takes(r *Reader) bool {
	flat, ok := w.file.(*flatRowGroups)
	if !ok || !sameColumns(flat.columns, r.meta) {
		return false
	}
	for _, g := range r.groups {
		if g.Bytes > rawMax {
			return false
		}
	}
	return true
}

// Copies says whether a Writer of the given columns Takes row groups of a file.
func Copies(r *Reader, columns *arrow.Schema) bool {
	w, err := NewWriter(io.Discard, columns, WriterOptions{})
	if err != nil {
		return false
	}
	defer w.Abort()
	return w.Takes(r)
}

// sameColumns compares whole schemas, but for the name of the root, which means nothing.
func sameColumns(want, have *metadata.FileMetaData) bool {
	a, b := want.FileMetaData.Schema, have.FileMetaData.Schema
	return len(a) == len(b) && reflect.DeepEqual(a[1:], b[1:])
}

// CopyRowGroup appends a row group of a file that the writer Takes, as it is. The open row group ends before it.
func (w *Writer) CopyRowGroup(g *RawRowGroup) error {
	if w.err != nil {
		return w.err
	}
	if w.err = w.copyRowGroup(g); w.err != nil {
		return w.err
	}
	return nil
}

func (w *Writer) copyRowGroup(g *RawRowGroup) error {
	flat, ok := w.file.(*flatRowGroups)
	if !ok || !sameColumns(flat.columns, g.meta) {
		return errors.New("a row group of other columns cannot be copied: ask Takes first")
	}
	w.endGroup()
	if err := w.number(); err != nil {
		return err
	}
	before := w.sink.bytes
	if err := w.contain(func() error { return flat.copy(g) }); err != nil {
		return err
	}
	w.copied += w.sink.bytes - before
	w.keys.add(g.Rows(), g.keys)
	return w.stats.addGroup(w.schema, g.meta, g.index)
}

// copy writes a row group's chunks and describes them in the footer.
func (g *flatRowGroups) copy(raw *RawRowGroup) error {
	if err := g.end(); err != nil {
		return err
	}
	return g.describe(raw.meta, raw.index, func(i int, start int64) (int64, error) {
		shift := g.sink.bytes - start
		_, err := g.sink.Write(raw.chunks[i])
		return shift, err
	})
}

// describe describes a row group of another file in the footer. place puts a chunk into this file and says how far it lies
// behind where it was.
func (g *flatRowGroups) describe(meta *metadata.FileMetaData, index int, place func(column int, start int64) (shift int64, err error)) error {
	from := meta.RowGroups[index]
	footer := g.footer.AppendRowGroup()
	footer.SetNumRows(int(from.NumRows))
	for i := range from.Columns {
		old, err := meta.RowGroup(index).ColumnChunk(i)
		if err != nil {
			return err
		}
		start, n := chunkRange(old)
		shift, err := place(i, start)
		if err != nil {
			return err
		}
		about, described := footer.NextColumnChunk().Contents(), *from.Columns[i].MetaData
		about.FileOffset = start + n + shift
		about.MetaData = &described
		described.DataPageOffset += shift
		described.DictionaryPageOffset = nil
		if start < old.DataPageOffset() {
			at := start + shift
			described.DictionaryPageOffset = &at
		}
		described.IndexPageOffset, described.BloomFilterOffset = nil, nil
		if s := described.Statistics; s != nil && !writtenByUs(meta) {
			nulls := *s
			nulls.Min, nulls.Max, nulls.MinValue, nulls.MaxValue, nulls.DistinctCount = nil, nil, nil, nil, nil
			described.Statistics = &nulls
		}
	}
	g.ordinal++
	return footer.Finish(from.TotalByteSize, g.ordinal-1)
}

func writtenByUs(meta *metadata.FileMetaData) bool { return meta.GetCreatedBy() == createdBy }

// addGroup takes in the rows of an encoded row group of flat columns: what its chunks say of nulls and bounds. A column
// whose chunk does not say it has no bounds in the whole file.
func (s *Stats) addGroup(columns *arrow.Schema, meta *metadata.FileMetaData, index int) error {
	group := meta.RowGroups[index]
	s.NumRecords += group.NumRows
	for _, c := range s.columns {
		said := group.Columns[c.field].MetaData.Statistics
		switch {
		case said != nil && said.NullCount != nil:
			c.nulls += *said.NullCount
		case columns.Field(c.field).Nullable:
			c.uncounted = true
		}
		if c.bounds == nil || said != nil && said.NullCount != nil && *said.NullCount == group.NumRows {
			continue
		}
		if said == nil || said.MinValue == nil || said.MaxValue == nil || !writtenByUs(meta) {
			c.unbounded = true
			continue
		}
		known, err := c.addBounds(columns.Field(c.field).Type, said.MinValue, said.MaxValue)
		if err != nil {
			return fmt.Errorf("statistics of column %q: %w", c.name, err)
		}
		c.unbounded = c.unbounded || !known
	}
	return nil
}

// boundsArray is the two values of a chunk's statistics; nil for types whose statistics we do not write.
func boundsArray(dt arrow.DataType, low, high []byte) (arrow.Array, error) {
	if _, ok := dt.(*arrow.StringType); ok {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		defer b.Release()
		b.AppendValues([]string{string(low), string(high)}, nil)
		return b.NewArray(), nil
	}
	if _, ok := dt.(arrow.FixedWidthDataType); !ok || dt.ID() == arrow.BOOL {
		return nil, nil
	}
	both, err := plainArray(dt, len(low), append(append(make([]byte, 0, len(low)+len(high)), low...), high...), 2)
	if err != nil || len(low) != len(high) {
		return nil, fmt.Errorf("bounds of %d and %d bytes for %s", len(low), len(high), dt)
	}
	return both, nil
}
