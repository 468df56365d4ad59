package parquetfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/metadata"
)

const (
	// trailerBytes ends a file: the length of the footer and the magic.
	trailerBytes = 8
	// footerMax is the largest footer we read: 64 MiB describe a file of a million column chunks.
	footerMax = 64 << 20
	// schemaElementsMax and schemaDepthMax bound the tree of columns, which arrow-go builds by recursion.
	schemaElementsMax = 100_000
	schemaDepthMax    = 100
)

var magic = []byte("PAR1")

// footerLength reads the trailer: how many bytes of footer lie before it in a file of the given size.
func footerLength(trailer []byte, size int64) (int64, error) {
	if len(trailer) < trailerBytes || !bytes.Equal(trailer[len(trailer)-4:], magic) {
		return 0, errors.New("it does not end as a parquet file: it is truncated, or something else")
	}
	n := int64(binary.LittleEndian.Uint32(trailer[len(trailer)-trailerBytes:]))
	if n == 0 || n > size-trailerBytes-int64(len(magic)) {
		return 0, fmt.Errorf("a footer of %d bytes in a file of %d", n, size)
	}
	if n > footerMax {
		return 0, fmt.Errorf("a footer of %d bytes; at most %d are read", n, footerMax)
	}
	return n, nil
}

// parseFooter parses a footer. What it says of row groups is for checkRowGroups to check.
func parseFooter(footer []byte) (*metadata.FileMetaData, error) {
	if err := checkFooterShape(footer); err != nil {
		return nil, err
	}
	var meta *metadata.FileMetaData
	err := contain(func() (err error) {
		meta, err = metadata.NewFileMetaData(footer, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the footer does not parse: %w", err)
	}
	if meta.Schema == nil || meta.Schema.NumColumns() == 0 {
		return nil, errors.New("the footer has no columns")
	}
	if meta.IsSetEncryptionAlgorithm() {
		return nil, errors.New("it is encrypted, which Tidemark does not read")
	}
	return meta, nil
}

// checkFooterShape walks a footer without allocating: every list is as long as it says, and the tree of columns is
// neither too large nor too deep.
func checkFooterShape(footer []byte) error {
	c := &thriftCursor{b: footer}
	return c.fields(func(id int64, typ byte) (bool, error) {
		if id != 2 || typ != thriftList { // the schema
			return false, nil
		}
		n, elem, err := c.list()
		if err != nil {
			return true, err
		}
		if elem != thriftStruct || n > schemaElementsMax {
			return true, fmt.Errorf("a schema of %d elements", n)
		}
		return true, checkSchemaTree(c, n)
	})
}

// checkSchemaTree walks the elements of the schema, a tree in depth-first order.
func checkSchemaTree(c *thriftCursor, n uint64) error {
	missing := []int64{1} // children still to come, per open element; the root is a child of nothing
	for ; n > 0; n-- {
		children := int64(0)
		err := c.fields(func(id int64, typ byte) (bool, error) {
			if id != 5 || typ != thriftI32 {
				return false, nil
			}
			var err error
			children, err = c.integer()
			return true, err
		})
		if err != nil {
			return err
		}
		if len(missing) == 0 || children < 0 || children > schemaElementsMax {
			return errors.New("the schema's elements do not form a tree")
		}
		missing[len(missing)-1]--
		if children > 0 {
			missing = append(missing, children)
		}
		for len(missing) > 0 && missing[len(missing)-1] == 0 {
			missing = missing[:len(missing)-1]
		}
		if len(missing) > schemaDepthMax {
			return fmt.Errorf("columns nest deeper than %d", schemaDepthMax)
		}
	}
	if len(missing) > 0 {
		return errors.New("the schema's elements do not form a tree")
	}
	return nil
}

// checkRowGroups checks what a footer says of its row groups against the size of the file and each other.
func checkRowGroups(path string, meta *metadata.FileMetaData, size int64) error {
	rows := int64(0)
	for g, group := range meta.RowGroups {
		if group.NumRows < 0 || len(group.Columns) != meta.Schema.NumColumns() {
			return &FileError{path, g, "", fmt.Errorf("%d rows of %d columns in a file of %d columns",
				group.NumRows, len(group.Columns), meta.Schema.NumColumns())}
		}
		rows += group.NumRows
		for i, chunk := range group.Columns {
			column := meta.Schema.Column(i)
			if chunk.MetaData == nil || chunk.FilePath != nil || chunk.CryptoMetadata != nil {
				return &FileError{path, g, column.Path(), errors.New("its data is elsewhere or encrypted")}
			}
			var described *metadata.ColumnChunkMetaData
			err := contain(func() (err error) {
				described, err = meta.RowGroup(g).ColumnChunk(i)
				return err
			})
			if err == nil {
				err = checkChunk(described, column.PhysicalType(), column.TypeLength(), size)
			}
			if err == nil && column.MaxRepetitionLevel() == 0 && described.NumValues() != group.NumRows {
				err = fmt.Errorf("%d values in %d rows", described.NumValues(), group.NumRows)
			}
			if err != nil {
				return &FileError{path, g, column.Path(), err}
			}
		}
	}
	if rows != meta.NumRows {
		return &FileError{path, -1, "", fmt.Errorf("row groups of %d rows in a file of %d", rows, meta.NumRows)}
	}
	return nil
}

func checkChunk(chunk *metadata.ColumnChunkMetaData, typ parquet.Type, length int, size int64) error {
	start, n := chunkRange(chunk)
	switch {
	case start < int64(len(magic)) || n < 0 || start > size || n > size-start:
		return fmt.Errorf("bytes %d to %d of a file of %d", start, start+n, size)
	case chunk.NumValues() < 0:
		return fmt.Errorf("%d values", chunk.NumValues())
	case chunk.Type() != typ:
		return fmt.Errorf("physical type %s where the schema says %s", chunk.Type(), typ)
	case typ == parquet.Types.FixedLenByteArray && length <= 0:
		return fmt.Errorf("values of %d bytes", length)
	}
	_, err := compress.GetCodec(chunk.Compression())
	return err
}

// chunkRange is where the pages of a column chunk lie in the file.
func chunkRange(chunk *metadata.ColumnChunkMetaData) (start, n int64) {
	start = chunk.DataPageOffset()
	if at := chunk.DictionaryPageOffset(); chunk.HasDictionaryPage() && at > 0 && at < start {
		start = at
	}
	return start, chunk.TotalCompressedSize()
}

// checkFooter checks the end of a file just written: its footer must count the given rows in full row groups.
func checkFooter(tail []byte, rows int64) error {
	n, err := footerLength(tail, int64(len(tail))+int64(len(magic)))
	if err != nil {
		return err
	}
	meta, err := parseFooter(tail[int64(len(tail))-trailerBytes-n : len(tail)-trailerBytes])
	if err != nil {
		return err
	}
	counted := int64(0)
	for _, group := range meta.RowGroups {
		counted += group.NumRows
		for _, chunk := range group.Columns {
			if chunk.MetaData == nil || chunk.MetaData.TotalCompressedSize <= 0 && group.NumRows > 0 {
				return errors.New("a column chunk is missing")
			}
		}
	}
	if counted != rows || meta.NumRows != rows {
		return fmt.Errorf("its footer counts %d rows, %d were written", counted, rows)
	}
	return nil
}
