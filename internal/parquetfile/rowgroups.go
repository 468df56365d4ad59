package parquetfile

import (
	"encoding/binary"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
	pqschema "github.com/apache/arrow/go/v17/parquet/schema"

	"tidemark/internal/columnchunk"
)

// rowGroups encodes the row groups of a file and its footer into the sink.
type rowGroups interface {
	begin() error               // a row group; the one before ends
	add(rec arrow.Record) error // to the open row group
	buffered() int64            // bytes of the open row group, about
	end() error                 // ends the open row group
	close(keys *keyIndex) error // writes the footer
	abort()                     // frees memory; nothing is written any more
}

// newRowGroups encodes flat columns with columnchunk, and nested ones with arrow-go.
func newRowGroups(s *arrow.Schema, out *sink, stats *Stats, mem memory.Allocator) (rowGroups, error) {
	props := encoding(s, mem)
	arrowProps := pqarrow.NewArrowWriterProperties(pqarrow.WithAllocator(mem))
	for _, f := range s.Fields() {
		if !columnchunk.Supports(f.Type) {
			file, err := pqarrow.NewFileWriter(s, out, props, arrowProps)
			return &nestedRowGroups{file: file}, err
		}
	}
	stored, columns, err := flatColumns(s, props, arrowProps)
	if err != nil {
		return nil, err
	}
	if _, err := out.Write(magic); err != nil {
		return nil, err
	}
	stats.leaveToChunks(s)
	return &flatRowGroups{
		sink: out, columns: columns, schema: s, stats: stats,
		group:  columnchunk.NewGroup(s, columnchunk.Options{PageBytes: pageBytes, DictionaryBytes: pageBytes, Compress: compressPage}),
		footer: metadata.NewFileMetadataBuilder(stored, props, metadata.NewKeyValueMetadata()),
	}, nil
}

// flatColumns are flat columns as Parquet has them, alone and as the footer of a file without rows.
func flatColumns(s *arrow.Schema, props *parquet.WriterProperties, arrowProps pqarrow.ArrowWriterProperties) (*pqschema.Schema, *metadata.FileMetaData, error) {
	stored, err := pqarrow.ToParquet(s, props, arrowProps)
	if err != nil {
		return nil, nil, err
	}
	columns, err := metadata.NewFileMetadataBuilder(stored, props, nil).Finish()
	return stored, columns, err
}

func compressPage(dst, src []byte, effort columnchunk.Effort) []byte {
	switch {
	case effort == columnchunk.Store && len(src) <= frameMax:
		return appendFrame(dst[:0], src)
	case effort == columnchunk.Thorough:
		return encoder.EncodeAll(src, dst[:0])
	}
	return fastEncoder.EncodeAll(src, dst[:0])
}

// flatRowGroups are the row groups of a file without nested columns.
type flatRowGroups struct {
	sink    *sink
	columns *metadata.FileMetaData // of a file without rows
	schema  *arrow.Schema
	stats   *Stats // which get bounds from the chunks
	group   *columnchunk.Group
	footer  *metadata.FileMetaDataBuilder
	ordinal int16
}

func (g *flatRowGroups) begin() error { return g.end() }

func (g *flatRowGroups) add(rec arrow.Record) error {
	g.group.Add(rec, 0, int(rec.NumRows()))
	return nil
}

func (g *flatRowGroups) buffered() int64 { return g.group.Buffered() }

func (g *flatRowGroups) end() error {
	if g.group.Rows() == 0 {
		return nil
	}
	chunks, err := g.group.WriteTo(g.sink, g.sink.bytes, g.footer.AppendRowGroup(), g.ordinal)
	g.ordinal++
	if err != nil {
		return err
	}
	return g.stats.addChunks(g.schema, chunks)
}

func (g *flatRowGroups) close(keys *keyIndex) error {
	if err := keys.put(g.footer.AppendKeyValueMetadata); err != nil {
		return err
	}
	meta, err := g.footer.Finish()
	if err != nil {
		return err
	}
	start := g.sink.bytes
	if _, err := meta.WriteTo(g.sink, nil); err != nil {
		return err
	}
	trailer := binary.LittleEndian.AppendUint32(nil, uint32(g.sink.bytes-start))
	_, err = g.sink.Write(append(trailer, magic...))
	return err
}

func (g *flatRowGroups) abort() {}

// nestedRowGroups are the row groups of a file with nested columns.
type nestedRowGroups struct{ file *pqarrow.FileWriter }

func (g *nestedRowGroups) begin() error {
	g.file.NewBufferedRowGroup()
	return nil
}

func (g *nestedRowGroups) add(rec arrow.Record) error { return g.file.WriteBuffered(rec) }

func (g *nestedRowGroups) buffered() int64 { return g.file.RowGroupTotalCompressedBytes() }

func (g *nestedRowGroups) end() error { return nil } // arrow-go ends it when it closes the file

func (g *nestedRowGroups) close(keys *keyIndex) error {
	if err := keys.put(g.file.AppendKeyValueMetadata); err != nil {
		return err
	}
	return g.file.Close()
}

func (g *nestedRowGroups) abort() { _ = g.file.Close() }
