package parquetfile

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"tidemark/internal/columnchunk"
)

// leafReader decodes one column chunk, batch by batch: with arrow-go's reader, or with our own what our own writer has
// written.
type leafReader struct {
	node    *node
	column  *schema.Column
	records file.RecordReader
	flat    *columnchunk.Decoder // instead of records
	loaded  arrow.Array          // by flat, until it is taken
	cost    chunkCost
}

// newLeafReader starts to decode a chunk, whose page headers it checks first.
func newLeafReader(n *node, column *schema.Column, meta *metadata.ColumnChunkMetaData, chunk []byte, ours bool, mem memory.Allocator, pool *sync.Pool) (*leafReader, error) {
	pages, err := scanPages(chunk, meta, column.PhysicalType())
	if err != nil {
		return nil, err
	}
	l := &leafReader{node: n, column: column}
	err = contain(func() error {
		if l.cost, err = costOf(pages, chunk, meta, column); err != nil {
			return err
		}
		if ours && isFlat(n, column) && meta.Compression() == compress.Codecs.Zstd {
			if encoded, err := encodedPages(pages); err == nil {
				l.flat = columnchunk.NewDecoder(n.field.Type, column.MaxDefinitionLevel() > 0,
					columnchunk.Encoded{Bytes: chunk, Pages: encoded, Decompress: decompress})
				return nil
			}
		}
		pageReader, err := file.NewPageReader(&chunkStream{chunk}, meta.NumValues(), meta.Compression(), memory.DefaultAllocator, nil)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(meta.Encodings(), leaks) {
			mem = memory.DefaultAllocator
		}
		l.records = file.NewRecordReader(column, n.levels, n.field.Type, mem, pool)
		l.records.SetPageReader(pageReader)
		return nil
	})
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// isFlat says that a column is of a kind that columnchunk decodes: not nested, and stored as Arrow has it.
func isFlat(n *node, column *schema.Column) bool {
	if len(column.ColumnPath()) != 1 || column.MaxRepetitionLevel() > 0 || !columnchunk.Decodes(n.field.Type) {
		return false
	}
	if fixed, ok := n.field.Type.(arrow.FixedWidthDataType); ok {
		return fixedPhysical(column) == fixed.Bytes()
	}
	return column.PhysicalType() == parquet.Types.ByteArray
}

// leaks says whether arrow-go's decoder of an encoding forgets some of its memory, which an allocator that counts would
// count forever. Of the types that it decodes here, only files of other engines have such encodings.
func leaks(e parquet.Encoding) bool {
	return e == parquet.Encodings.DeltaBinaryPacked || e == parquet.Encodings.DeltaByteArray || e == parquet.Encodings.DeltaLengthByteArray
}

func (l *leafReader) close() {
	if l.loaded != nil {
		l.loaded.Release()
		l.loaded = nil
	}
	if l.records != nil {
		l.records.Release()
		l.records = nil
	}
}

// load decodes the next n rows, which must be there.
func (l *leafReader) load(n int64, mem memory.Allocator) (err error) {
	if l.flat != nil {
		l.loaded, err = l.flat.Next(mem, int(n))
		return err
	}
	l.records.Reset()
	if err := l.records.Reserve(n); err != nil {
		return err
	}
	for n > 0 {
		read, err := l.records.ReadRecords(n)
		if err == nil {
			err = l.records.(interface{ Err() error }).Err()
		}
		if err != nil {
			return err
		}
		if read == 0 {
			return errors.New("the column ends before its last row")
		}
		n -= read
	}
	return nil
}

// levels are the definition and repetition levels of the rows loaded; nil where the column has none.
func (l *leafReader) levels() (def, rep []int16) {
	n := l.records.LevelsPos()
	if l.column.MaxDefinitionLevel() > 0 {
		def = l.records.DefLevels()[:n]
	}
	if l.column.MaxRepetitionLevel() > 0 {
		rep = l.records.RepLevels()[:n]
	}
	return def, rep
}

// chunkCost is what the decoded values of a chunk take.
type chunkCost struct {
	perRow  float64 // bytes, on average, at most
	rowsMax int64   // rows that are sure to stay below textMax, at most
	pages   int64   // bytes of a dictionary and a page, uncompressed: held while decoding
}

// textMax is the most bytes of text or binary that a column of a batch is let near: half of what its offsets can say.
const textMax = 1 << 30

// costOf works out from the pages of a chunk what its rows take when decoded. A dictionary hides the size of its values:
// a page of a few bytes may stand for gigabytes. So the longest value of a dictionary is looked up.
func costOf(pages []page, chunk []byte, meta *metadata.ColumnChunkMetaData, column *schema.Column) (chunkCost, error) {
	var plain, largest, longest, dense float64
	cost := chunkCost{rowsMax: 1 << 40}
	for _, p := range pages {
		if p.kind == pageDictionary {
			cost.pages += int64(p.uncompressed)
			n, err := longestValue(p, chunk, meta.Compression(), column.PhysicalType())
			if err != nil {
				return cost, fmt.Errorf("dictionary: %w", err)
			}
			longest = float64(n)
			continue
		}
		plain += float64(p.uncompressed)
		largest = max(largest, float64(p.uncompressed))
		if p.values > 0 {
			dense = max(dense, float64(p.uncompressed)/float64(p.values))
		}
	}
	cost.pages += int64(largest)
	if meta.NumValues() == 0 {
		return cost, nil
	}
	rows := float64(meta.NumValues()) // of flat columns; of lists there are fewer, and valuesPerRow corrects it
	if column.PhysicalType() != parquet.Types.ByteArray {
		cost.perRow = float64(fixedWidth(column)) + 1
		return cost, nil
	}
	cost.perRow = longest + plain/rows + 5
	if total := longest*rows + plain; total > textMax {
		cost.rowsMax = int64(max(1, (textMax-2*largest)/(longest+dense)))
	}
	return cost, nil
}

// fixedWidth is the bytes that a value of a column takes in Arrow.
func fixedWidth(column *schema.Column) int {
	if column.PhysicalType() == parquet.Types.FixedLenByteArray {
		return max(column.TypeLength(), arrow.Decimal128SizeBytes)
	}
	return 8
}

// longestValue is the length of the longest value of a dictionary of byte arrays, 0 for other types.
func longestValue(p page, chunk []byte, codec compress.Compression, typ parquet.Type) (int, error) {
	if typ != parquet.Types.ByteArray {
		return 0, nil
	}
	c, err := compress.GetCodec(codec)
	if err != nil {
		return 0, err
	}
	values := chunk[p.body : p.body+p.compressed]
	if codec != compress.Codecs.Uncompressed {
		values = c.Decode(make([]byte, p.uncompressed), values)
	}
	longest := 0
	for i := int64(0); i < p.values; i++ {
		if len(values) < 4 {
			return 0, errors.New("it is cut off")
		}
		n := int(uint32(values[0]) | uint32(values[1])<<8 | uint32(values[2])<<16 | uint32(values[3])<<24)
		if n > len(values)-4 {
			return 0, errors.New("it is cut off")
		}
		longest = max(longest, n)
		values = values[4+n:]
	}
	return longest, nil
}
