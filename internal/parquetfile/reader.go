package parquetfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/metadata"

	"tidemark/internal/objstore"
)

const (
	// batchRows is the default for ReaderOptions.BatchRows.
	batchRows = 64 << 10
	// batchBytes is about how many bytes of Arrow data a batch holds at most, if one row alone is not more.
	batchBytes = 16 << 20
)

// ReaderOptions say what is read. The zero value reads everything.
type ReaderOptions struct {
	Mem       memory.Allocator // of the records; nil for Go's
	BatchRows int              // most rows per record; 0 for 65,536
	Columns   []string         // top-level columns to read, in this order; nil for all
	Size      int64            // of the file, if the caller knows it: saves a request
	XXH3      string           // of the whole file; if given, it is verified before a row is returned
}

// Reader reads one file, front to back. It is not safe for concurrent use.
type Reader struct {
	source  source
	meta    *metadata.FileMetaData
	groups  []RowGroup
	nodes   []*node
	schema  *arrow.Schema
	options ReaderOptions
	pool    sync.Pool // of buffers, for arrow-go

	group int        // the next row group to open
	open  *openGroup // nil between row groups
}

// openGroup is the row group that is being read.
type openGroup struct {
	index  int
	leaves map[int]*leafReader
	left   int64 // rows not yet returned
	rows   int64 // per batch
}

// OpenReader opens a file of the store and reads its footer. Bytes that are no such file are a *FileError; errors of the
// store are passed on.
func OpenReader(ctx context.Context, s objstore.Store, key string, options ReaderOptions) (*Reader, error) {
	if options.Mem == nil {
		options.Mem = memory.DefaultAllocator
	}
	if options.BatchRows == 0 {
		options.BatchRows = batchRows
	}
	if options.Size == 0 {
		info, err := s.Head(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("opening %s: %w", key, err)
		}
		options.Size = info.Size
	}
	r := &Reader{source: source{store: s, key: key, size: options.Size}, options: options}
	r.pool.New = func() any { return memory.NewResizableBuffer(memory.DefaultAllocator) }
	if r.source.size < int64(2*len(magic)+4) {
		return nil, &FileError{key, -1, "", fmt.Errorf("%d bytes are no parquet file", r.source.size)}
	}
	if r.source.size <= smallMax || options.XXH3 != "" && r.source.size <= wholeMax {
		if err := r.source.fetchWhole(ctx); err != nil {
			return nil, err
		}
	}
	if options.XXH3 != "" {
		if err := r.source.verify(ctx, options.XXH3); err != nil {
			return nil, err
		}
	}
	if err := r.readFooter(ctx); err != nil {
		return nil, err
	}
	if err := r.selectColumns(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Reader) readFooter(ctx context.Context) error {
	size := r.source.size
	tail, err := r.source.read(ctx, size-min(size, tailBytes), min(size, tailBytes))
	if err != nil {
		return err
	}
	n, err := footerLength(tail, size)
	if err != nil {
		return &FileError{r.source.key, -1, "", err}
	}
	if n+trailerBytes > int64(len(tail)) {
		if tail, err = r.source.read(ctx, size-n-trailerBytes, n+trailerBytes); err != nil {
			return err
		}
	}
	end := int64(len(tail)) - trailerBytes
	if r.meta, err = parseFooter(tail[end-n : end]); err != nil {
		return &FileError{r.source.key, -1, "", err}
	}
	if err := checkRowGroups(r.source.key, r.meta, size-n-trailerBytes); err != nil {
		return err
	}
	r.groups = rowGroupsOf(r.meta)
	return nil
}

func (r *Reader) selectColumns() error {
	nodes, err := columnsOf(r.source.key, r.meta)
	if err != nil {
		return err
	}
	r.nodes = nodes
	if r.options.Columns != nil {
		r.nodes = nil
		for _, name := range r.options.Columns {
			i := 0
			for i < len(nodes) && nodes[i].field.Name != name {
				i++
			}
			if i == len(nodes) {
				return fmt.Errorf("parquet file %s has no column %q", r.source.key, name)
			}
			r.nodes = append(r.nodes, nodes[i])
		}
	}
	fields := make([]arrow.Field, len(r.nodes))
	for i, n := range r.nodes {
		fields[i] = n.field
	}
	r.schema = arrow.NewSchema(fields, nil)
	return nil
}

// Schema is the schema of the records: the columns read, with types that the Parquet schema alone determines.
func (r *Reader) Schema() *arrow.Schema { return r.schema }

// Rows is the number of rows in the file.
func (r *Reader) Rows() int64 { return r.meta.NumRows }

// Next returns the next rows, which the caller releases; io.EOF after the last. Damage is a *FileError, and after any
// error Next returns nothing more of the file.
func (r *Reader) Next(ctx context.Context) (arrow.Record, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if r.open == nil {
			if r.group == len(r.meta.RowGroups) {
				return nil, io.EOF
			}
			if err := r.openGroup(ctx, r.group); err != nil {
				return nil, err
			}
			r.group++
		}
		if r.open.left > 0 {
			rec, err := r.decode()
			if err != nil {
				r.Close()
			}
			return rec, err
		}
		r.closeGroup()
	}
}

// Seek makes Next go on with the first row of a row group.
func (r *Reader) Seek(rowGroup int) {
	r.closeGroup()
	r.group = rowGroup
}

// openGroup fetches the wanted column chunks of a row group and starts to decode them.
func (r *Reader) openGroup(ctx context.Context, index int) error {
	group := r.meta.RowGroup(index)
	leaves, spans, err := r.wanted(group)
	if err != nil {
		return &FileError{r.source.key, index, "", err}
	}
	chunks, err := r.source.readSpans(ctx, spans)
	if err != nil {
		var damaged *FileError
		if errors.As(err, &damaged) {
			damaged.RowGroup = index
		}
		return err
	}
	open := &openGroup{index: index, leaves: map[int]*leafReader{}, left: group.NumRows()}
	r.open = open
	for i, leaf := range leaves {
		meta, err := group.ColumnChunk(leaf.leaf)
		if err == nil {
			open.leaves[leaf.leaf], err = newLeafReader(leaf, r.meta.Schema.Column(leaf.leaf), meta, chunks[i], writtenByUs(r.meta), r.options.Mem, &r.pool)
		}
		if err != nil {
			delete(open.leaves, leaf.leaf)
			r.Close()
			return &FileError{r.source.key, index, r.meta.Schema.Column(leaf.leaf).Path(), err}
		}
	}
	open.rows = r.rowsPerBatch(open, group)
	return nil
}

// wanted are the leaves to be read and where a row group has them.
func (r *Reader) wanted(group *metadata.RowGroupMetaData) (leaves []*node, spans []span, err error) {
	for _, n := range r.nodes {
		leaves = n.leaves(leaves)
	}
	for i, leaf := range leaves {
		meta, err := group.ColumnChunk(leaf.leaf)
		if err != nil {
			return nil, nil, err
		}
		start, n := chunkRange(meta)
		spans = append(spans, span{start: start, n: n, want: i})
	}
	return leaves, spans, nil
}

// rowsPerBatch cuts batches by rows and by bytes.
func (r *Reader) rowsPerBatch(open *openGroup, group *metadata.RowGroupMetaData) int64 {
	rows := min(int64(r.options.BatchRows), max(1, group.NumRows()))
	perRow := 0.0
	for i, leaf := range open.leaves {
		values := 1.0 // per row
		if meta, err := group.ColumnChunk(i); err == nil && group.NumRows() > 0 {
			values = max(1, float64(meta.NumValues())/float64(group.NumRows()))
		}
		perRow += leaf.cost.perRow * values
		rows = min(rows, max(1, int64(float64(leaf.cost.rowsMax)/values)))
	}
	if perRow > 0 {
		rows = min(rows, max(1, int64(batchBytes/perRow)))
	}
	return rows
}

// decode returns the next batch of the open row group.
func (r *Reader) decode() (arrow.Record, error) {
	rows := min(r.open.rows, r.open.left)
	out := make([]arrow.Array, 0, len(r.nodes))
	defer func() { releaseAll(out) }()
	b := builder{mem: r.options.Mem, leaves: r.open.leaves}
	for _, n := range r.nodes {
		for _, leaf := range n.leaves(nil) {
			if err := contain(func() error { return r.open.leaves[leaf.leaf].load(rows, r.options.Mem) }); err != nil {
				return nil, r.damaged(r.meta.Schema.Column(leaf.leaf).Path(), err)
			}
		}
		var arr arrow.Array
		err := contain(func() (err error) {
			arr, err = b.build(n)
			return err
		})
		if err != nil {
			return nil, r.damaged(n.field.Name, err)
		}
		out = append(out, arr)
		if int64(arr.Len()) != rows {
			return nil, r.damaged(n.field.Name, fmt.Errorf("%d values where %d rows were expected", arr.Len(), rows))
		}
	}
	r.open.left -= rows
	return array.NewRecord(r.schema, out, rows), nil
}

func (r *Reader) damaged(column string, err error) error {
	return &FileError{r.source.key, r.open.index, column, err}
}

func (r *Reader) closeGroup() {
	if r.open == nil {
		return
	}
	for _, leaf := range r.open.leaves {
		leaf.close()
	}
	r.open = nil
}

// Close frees what the reader holds. Records it returned stay good.
func (r *Reader) Close() error {
	r.closeGroup()
	r.group = len(r.meta.RowGroups)
	r.source.whole = nil
	return nil
}

// MemoryEstimate is about the most bytes the reader holds at a time, records it returned aside: the file if it is read
// whole, else the encoded columns of its largest row group; their open pages and dictionaries; and a batch under
// construction, twice while it is put together. It never falls when a file is larger in any part.
func (r *Reader) MemoryEstimate() int64 {
	var leaves []*node
	for _, n := range r.nodes {
		leaves = n.leaves(leaves)
	}
	held, pages, batch := int64(len(r.source.whole)), int64(0), int64(0)
	for g, group := range r.meta.RowGroups {
		encoded, open, decoded := int64(0), int64(0), int64(0)
		for _, leaf := range leaves {
			chunk := group.Columns[leaf.leaf].MetaData
			encoded += chunk.TotalCompressedSize
			open += min(max(chunk.TotalUncompressedSize, 0), 2*pageBytes) + chunkOverhead
			decoded = min(decoded+r.decodedMost(g, leaf.leaf), batchBytes)
		}
		if r.source.whole == nil {
			held = max(held, encoded)
		}
		pages = max(pages, open)
		batch = max(batch, decoded)
	}
	return held + pages + 2*batch
}

// decodedMost is the most bytes of a batch that are a chunk's, as far as a footer tells: a dictionary of texts may stand for
// any number of them.
func (r *Reader) decodedMost(rowGroup, leaf int) int64 {
	const levels = 8 // bytes per value for nulls, offsets and nesting
	chunk, err := r.meta.RowGroup(rowGroup).ColumnChunk(leaf)
	if err != nil {
		return batchBytes // checkRowGroups has seen it
	}
	values := min(max(chunk.NumValues(), 0), batchBytes)
	column := r.meta.Schema.Column(leaf)
	switch {
	case column.PhysicalType() != parquet.Types.ByteArray:
		return values * (int64(fixedWidth(column)) + levels)
	case chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0:
		return batchBytes
	}
	return min(max(chunk.TotalUncompressedSize(), 0), batchBytes) + values*levels
}

// chunkOverhead is about what decoding a column takes beside its values: levels, and the values of a page as slices.
const chunkOverhead = 256 << 10
