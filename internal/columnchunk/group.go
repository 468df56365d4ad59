package columnchunk

import (
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"golang.org/x/sync/errgroup"
)

// Group encodes the row groups of a file, one after the other. It is not safe for concurrent use.
type Group struct {
	columns []*Column
	rows    int64
}

// NewGroup encodes records of a schema all of whose types Supports.
func NewGroup(s *arrow.Schema, o Options) *Group {
	g := &Group{}
	for _, f := range s.Fields() {
		g.columns = append(g.columns, NewColumn(f.Type, f.Nullable, o))
	}
	return g
}

// Add encodes n rows of a record, from row from on. Columns are encoded side by side; when Add returns the record is
// no longer needed.
func (g *Group) Add(rec arrow.Record, from, n int) {
	g.rows += int64(n)
	if n < blockRows/4 || runtime.GOMAXPROCS(0) == 1 {
		for i, c := range g.columns {
			c.Add(rec.Column(i), from, n)
		}
		return
	}
	var all sync.WaitGroup
	for i, c := range g.columns {
		all.Go(func() { c.Add(rec.Column(i), from, n) })
	}
	all.Wait()
}

// EncodedError says which column's chunk could not be added.
type EncodedError struct {
	Column int
	Err    error
}

func (e *EncodedError) Error() string { return fmt.Sprintf("column %d: %v", e.Column, e.Err) }

// Unwrap returns the cause.
func (e *EncodedError) Unwrap() error { return e.Err }

// AddEncoded adds the rows of another row group, given by the chunks of its columns, which are recoded side by side. After
// an error, which is an *EncodedError, the open row group is void.
func (g *Group) AddEncoded(rows int64, chunks []Encoded) error {
	g.rows += rows
	var all errgroup.Group
	for i, c := range g.columns {
		all.Go(func() error {
			before := c.rows
			err := c.AddEncoded(chunks[i])
			if err == nil && c.rows-before != rows {
				err = fmt.Errorf("%d values in %d rows", c.rows-before, rows)
			}
			if err != nil {
				return &EncodedError{i, err}
			}
			return nil
		})
	}
	return all.Wait()
}

// Rows is the number of rows in the open row group.
func (g *Group) Rows() int64 { return g.rows }

// Buffered is about the number of bytes of the open row group if it ended now.
func (g *Group) Buffered() (n int64) {
	for _, c := range g.columns {
		n += c.Buffered()
	}
	return n
}

// WriteTo ends the open row group: it writes its chunks to w, which stands at an offset of the file, and describes them
// in the footer. It returns the chunks. The next row group begins.
func (g *Group) WriteTo(w io.Writer, offset int64, footer *metadata.RowGroupMetaDataBuilder, ordinal int16) ([]Chunk, error) {
	uncompressed := int64(0)
	footer.SetNumRows(int(g.rows))
	g.rows = 0
	chunks := make([]Chunk, len(g.columns))
	var all sync.WaitGroup
	for i, c := range g.columns {
		all.Go(func() { chunks[i] = c.End() })
	}
	all.Wait()
	for _, chunk := range chunks {
		about := footer.NextColumnChunk()
		about.SetStats(chunk.Statistics)
		info := metadata.ChunkMetaInfo{
			NumValues: chunk.Values, IndexPageOffset: -1, DataPageOffset: offset + int64(len(chunk.Dictionary)),
			CompressedSize: int64(len(chunk.Dictionary)) + chunk.PagesBytes, UncompressedSize: chunk.Uncompressed,
		}
		if len(chunk.Dictionary) > 0 {
			info.DictPageOffset = offset
		}
		for _, part := range append([][]byte{chunk.Dictionary}, chunk.Pages...) {
			if _, err := w.Write(part); err != nil {
				return nil, err
			}
			offset += int64(len(part))
		}
		// No statistics of encodings: arrow-go would list them in random order, and nobody needs them.
		coded := len(chunk.Dictionary) > 0
		if err := about.Finish(info, coded, coded && chunk.PagesPlain > 0, metadata.EncodingStats{}, nil); err != nil {
			return nil, err
		}
		if said := about.Contents().MetaData; chunk.PagesDelta > 0 && !coded && chunk.PagesPlain == 0 {
			said.Encodings[0] = encodingDelta // instead of plain
		} else if chunk.PagesDelta > 0 {
			said.Encodings = append(said.Encodings, encodingDelta)
		}
		uncompressed += chunk.Uncompressed
	}
	return chunks, footer.Finish(uncompressed, ordinal)
}
