package parquetfile

import (
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"

	"tidemark/internal/columns"
	"tidemark/internal/schema"
)

const (
	// rowGroupBytes is the default for WriterOptions.RowGroupBytes: large enough that a reader's requests are few and
	// its pages full, small enough that a merge can hold one of every open run.
	rowGroupBytes = 16 << 20
	// rowGroupRows ends a row group of data that encodes to almost nothing.
	rowGroupRows = 1 << 20
	// rowGroupRaw, bytes of Arrow data, ends a row group of data that compresses so well that its raw bytes would
	// exhaust a reader; also, no column of a row group can come near 2 GiB.
	rowGroupRaw = 256 << 20
	// sliceRaw is how many bytes of Arrow data go to the encoder at a time: arrow-go looks at the size of its dictionaries
	// and pages only between slices, and both are to be about 1 MiB.
	sliceRaw = 4 << 20
	// rowGroupsMax is how many row groups a file can number: ordinals are 16 bits wide.
	rowGroupsMax = 1<<15 - 1
	// pageBytes is the size of a data page and of a dictionary, bytes, before compression.
	pageBytes = 1 << 20
	// createdBy follows the form that readers parse.
	createdBy = "tidemark version 1.0.0"
)

// WriterOptions say how a file is written. The zero value is good.
type WriterOptions struct {
	Mem            memory.Allocator // nil for Go's
	RowGroupBytes  int64            // encoded bytes at which a row group ends; 0 for 16 MiB
	IndexedColumns int              // leaf columns with statistics; 0 for 32, or AllColumns, NoColumns
	// Key, if given, is the key by which the rows are sorted, of one row: the file gets an index of its row groups' keys.
	// The result is the writer's.
	Key func(rec arrow.Record, row int) ([]byte, error)
}

// Summary describes a finished file.
type Summary struct {
	Rows, Bytes int64
	XXH3        string // of the whole file, 16 hexadecimal digits; empty if files were joined into it
	Stats       *Stats
	Schema      string // schema.Fingerprint of the columns
}

// Writer writes one file. It is not safe for concurrent use. Close or Abort must be called.
type Writer struct {
	mem     memory.Allocator
	schema  *arrow.Schema
	nested  bool
	options WriterOptions
	sink    *sink
	file    rowGroups
	stats   *Stats
	err     error // why the file can no longer be finished

	groups              int   // row groups begun
	open                bool  // the last of them takes more rows
	groupRows, groupRaw int64 // in the open row group
	raw                 int64 // bytes of Arrow data in finished row groups
	copied              int64 // bytes of row groups that were copied encoded
	keys                keyIndex
}

// NewWriter starts a file of the given columns, whose types must be among those that [schema.Schema.Arrow] gives. It
// writes to w, which it never closes.
func NewWriter(w io.Writer, columns *arrow.Schema, options WriterOptions) (*Writer, error) {
	if err := checkStored(columns); err != nil {
		return nil, err
	}
	if options.Mem == nil {
		options.Mem = memory.DefaultAllocator
	}
	if options.RowGroupBytes == 0 {
		options.RowGroupBytes = rowGroupBytes
	}
	out := &Writer{
		mem:     options.Mem,
		schema:  arrow.NewSchema(columns.Fields(), nil),
		options: options,
		sink:    newSink(w),
		stats:   newStats(columns, options.IndexedColumns),
		keys:    keyIndex{keyOf: options.Key},
	}
	for _, f := range columns.Fields() {
		_, isNested := f.Type.(arrow.NestedType)
		out.nested = out.nested || isNested
	}
	err := contain(func() (err error) {
		out.file, err = newRowGroups(out.schema, out.sink, out.stats, options.Mem)
		return err
	})
	if out.sink.err != nil { // arrow-go panics when the first bytes cannot be written; this is why
		err = out.sink.err
	}
	if err != nil {
		return nil, fmt.Errorf("starting a parquet file: %w", err)
	}
	return out, nil
}

// checkStored refuses columns of types that our files do not hold.
func checkStored(columns *arrow.Schema) error {
	if columns.NumFields() == 0 {
		return fmt.Errorf("a parquet file needs at least one column")
	}
	stored, err := schema.FromArrow(columns)
	if err != nil {
		return err
	}
	for i, f := range stored.Arrow().Fields() {
		if have := columns.Field(i).Type; !arrow.TypeEqual(have, f.Type) {
			return fmt.Errorf("column %q has type %s, which is stored as %s: project the rows first", f.Name, have, f.Type)
		}
	}
	return nil
}

// encoding says how columns are encoded. Floats get no Parquet statistics: arrow-go's leave NaN out, so an engine that
// orders it highest would skip rows that it should find.
func encoding(columns *arrow.Schema, mem memory.Allocator) *parquet.WriterProperties {
	options := []parquet.WriterProperty{
		parquet.WithAllocator(mem),
		parquet.WithVersion(parquet.V2_LATEST),
		parquet.WithDataPageVersion(parquet.DataPageV1),
		parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithDataPageSize(pageBytes),
		parquet.WithDictionaryPageSizeLimit(pageBytes),
		parquet.WithCreatedBy(createdBy),
	}
	for _, path := range floatLeaves(columns.Fields(), "") {
		options = append(options, parquet.WithStatsFor(path, false))
	}
	return parquet.NewWriterProperties(options...)
}

// floatLeaves are the Parquet paths of the float columns.
func floatLeaves(fields []arrow.Field, path string) []string {
	var out []string
	for _, f := range fields {
		switch dt := f.Type.(type) {
		case *arrow.Float32Type, *arrow.Float64Type:
			out = append(out, path+f.Name)
		case *arrow.StructType:
			out = append(out, floatLeaves(dt.Fields(), path+f.Name+".")...)
		case *arrow.ListType:
			out = append(out, floatLeaves([]arrow.Field{{Name: "element", Type: dt.Elem()}}, path+f.Name+".list.")...)
		case *arrow.MapType:
			entry := []arrow.Field{{Name: "key", Type: dt.KeyType()}, {Name: "value", Type: dt.ItemType()}}
			out = append(out, floatLeaves(entry, path+f.Name+".key_value.")...)
		}
	}
	return out
}

// Write appends the rows of a record, which must have the writer's columns. A record with a value that the file must not
// hold is refused whole with a *schema.ValueError, and the file stays good; after any other error it cannot be finished.
func (w *Writer) Write(rec arrow.Record) error {
	if w.err != nil {
		return w.err
	}
	if rec.Schema() != w.schema && schema.Fingerprint(rec.Schema()) != schema.Fingerprint(w.schema) {
		return fmt.Errorf("the rows have the columns %s, the file has %s", rec.Schema(), w.schema)
	}
	aligned := array.NewRecord(w.schema, rec.Columns(), rec.NumRows()) // drops metadata, which arrow-go would compare
	defer aligned.Release()
	if err := schema.CheckValues(aligned); err != nil {
		return err
	}
	if err := w.writeRows(aligned, 0, int(rec.NumRows())); err != nil {
		w.err = err
	}
	return w.err
}

// writeRows writes n rows from row from on, in slices of a bounded number of bytes.
func (w *Writer) writeRows(rec arrow.Record, from, n int) error {
	if n == 0 {
		return nil
	}
	raw := columns.Size(rec, from, n)
	if (raw > sliceRaw || n > rowGroupRows) && n > 1 {
		if err := w.writeRows(rec, from, n/2); err != nil {
			return err
		}
		return w.writeRows(rec, from+n/2, n-n/2)
	}
	slice, err := w.slice(rec, from, n)
	if err != nil {
		return err
	}
	defer slice.Release()
	if err := w.openGroup(int64(n), raw); err != nil {
		return err
	}
	if err := w.keys.take(rec, from, n, w.groupRows == 0); err != nil {
		return err
	}
	w.stats.add(slice)
	if err := w.contain(func() error { return w.file.add(slice) }); err != nil {
		return err
	}
	w.groupRows += int64(n)
	w.groupRaw += raw
	return nil
}

// slice is a part of a record. Nested columns are copied: arrow-go misreads some that are slices or not canonical.
func (w *Writer) slice(rec arrow.Record, from, n int) (arrow.Record, error) {
	if w.nested {
		return columns.Concat(w.mem, w.schema, []columns.Run{{Source: rec, From: from, N: n}})
	}
	return rec.NewSlice(int64(from), int64(from+n)), nil
}

// openGroup makes room for more rows: it ends the open row group if it is full and begins one if there is none.
func (w *Writer) openGroup(rows, raw int64) error {
	full := w.groupRows+rows > rowGroupRows || w.groupRaw+raw > rowGroupRaw || w.groupEncoded() >= w.options.RowGroupBytes
	if w.open && (w.groupRows == 0 || !full) {
		return nil
	}
	w.endGroup()
	if err := w.number(); err != nil {
		return err
	}
	w.open = true
	return w.contain(w.file.begin)
}

// endGroup closes the books of the open row group, if there is one. Its bytes are written when the next begins.
func (w *Writer) endGroup() {
	if w.groupRows > 0 {
		w.keys.add(w.groupRows, w.keys.open)
	}
	w.raw += w.groupRaw
	w.groupRows, w.groupRaw, w.open = 0, 0, false
}

// number counts one more row group.
func (w *Writer) number() error {
	if w.groups == rowGroupsMax {
		return fmt.Errorf("a parquet file has at most %d row groups: use larger ones, or another file", rowGroupsMax)
	}
	w.groups++
	return nil
}

// contain runs arrow-go and prefers the sink's error, which arrow-go may have dropped or panicked over.
func (w *Writer) contain(run func() error) error {
	err := contain(run)
	if w.sink.err != nil {
		return w.sink.err
	}
	return err
}

// groupEncoded estimates what the open row group takes encoded: at least its finished pages, and at least its raw bytes by
// the ratio that the file has shown so far, one half at first.
func (w *Writer) groupEncoded() int64 {
	ratio := 0.5
	if w.raw > 0 {
		ratio = float64(w.sink.bytes-w.copied) / float64(w.raw)
	}
	return max(int64(float64(w.groupRaw)*ratio), w.file.buffered())
}

// BytesWritten estimates the size the file would have if it were closed now.
func (w *Writer) BytesWritten() int64 {
	if w.err != nil {
		return w.sink.bytes
	}
	return w.sink.bytes + w.groupEncoded()
}

// Close finishes the file and checks it: its footer parses and counts the rows written.
func (w *Writer) Close() (Summary, error) {
	if w.err != nil {
		w.Abort()
		return Summary{}, w.err
	}
	w.err = errFinished
	w.endGroup()
	err := w.contain(w.file.end)
	if err == nil {
		w.sink.keepTail()
		err = w.contain(func() error { return w.file.close(&w.keys) })
	}
	if err != nil {
		return Summary{}, fmt.Errorf("finishing a parquet file: %w", err)
	}
	if err := checkFooter(w.sink.tail, w.stats.NumRecords); err != nil {
		return Summary{}, fmt.Errorf("checking the parquet file just written: %w", err)
	}
	w.sink.tail = nil
	return Summary{
		Rows:   w.stats.NumRecords,
		Bytes:  w.sink.bytes,
		XXH3:   w.sink.sum(),
		Stats:  w.stats,
		Schema: schema.Fingerprint(w.schema),
	}, nil
}

// Abort gives the file up and frees its memory. After Close it does nothing, so it can be deferred.
func (w *Writer) Abort() {
	if w.err == errFinished {
		return
	}
	w.err = errFinished
	w.sink.discard = true
	_ = contain(func() error { w.file.abort(); return nil }) // nothing reaches the sink any more
}

// WriterMemory estimates the most bytes a writer of the given columns holds at a time: a row group's encoded pages,
// twice while they are written out, per leaf column a dictionary with its index and an open page, and a slice of rows.
func WriterMemory(columns *arrow.Schema, options WriterOptions) int64 {
	group := options.RowGroupBytes
	if group == 0 {
		group = rowGroupBytes
	}
	return 2*group + int64(countLeaves(columns.Fields()))*4*pageBytes + 2*sliceRaw
}

func countLeaves(fields []arrow.Field) int {
	leaves := 0
	for _, f := range fields {
		if nested, ok := f.Type.(arrow.NestedType); ok {
			leaves += countLeaves(nested.Fields())
		} else {
			leaves++
		}
	}
	return leaves
}
