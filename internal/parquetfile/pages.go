package parquetfile

import (
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/metadata"
)

const (
	// expansionMax is how many bytes one compressed byte can become at most: zstd can say "the same byte, 128 KiB times"
	// in four. No other codec comes near.
	expansionMax = 1 << 15
	// pageMax is the largest page we read, uncompressed; the format's sizes are 31 bits wide.
	pageMax = 1 << 30
	// pageValuesMax is the most values of a page we read. Writers cut pages far below.
	pageValuesMax = 1 << 27
)

// The kinds of page.
const (
	pageData       = 0
	pageDictionary = 2
	pageDataV2     = 3
)

// page is what a page header says, checked.
type page struct {
	kind         int64
	start        int // of the header, in the chunk
	body         int // of the body, in the chunk
	compressed   int
	uncompressed int
	values       int64
	encoding     int64 // of the values; 0, plain, if the header does not say
}

// scanPages walks the page headers of a column chunk and checks that what they claim fits the chunk. It reads no page.
func scanPages(chunk []byte, meta *metadata.ColumnChunkMetaData, typ parquet.Type) ([]page, error) {
	var pages []page
	values := int64(0)
	for at := 0; values < meta.NumValues(); {
		p, err := scanHeader(chunk, at)
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", len(pages), err)
		}
		if err := p.check(chunk, meta, typ, len(pages)); err != nil {
			return nil, fmt.Errorf("page %d: %w", len(pages), err)
		}
		if p.kind != pageDictionary {
			values += p.values
		}
		pages = append(pages, p)
		at = p.body + p.compressed
	}
	if values > meta.NumValues() {
		return nil, fmt.Errorf("pages of %d values in a column of %d", values, meta.NumValues())
	}
	return pages, nil
}

func scanHeader(chunk []byte, at int) (page, error) {
	if at >= len(chunk) {
		return page{}, errors.New("the column ends before its last value")
	}
	c := &thriftCursor{b: chunk, at: at}
	p := page{start: at, kind: -1}
	uncompressed, compressed := int64(-1), int64(-1)
	err := c.fields(func(id int64, typ byte) (bool, error) {
		var err error
		switch {
		case id == 1 && typ == thriftI32:
			p.kind, err = c.integer()
		case id == 2 && typ == thriftI32:
			uncompressed, err = c.integer()
		case id == 3 && typ == thriftI32:
			compressed, err = c.integer()
		case (id == 5 || id == 7 || id == 8) && typ == thriftStruct: // of data, dictionary, data v2
			dataOrDictionary := id != 8
			err = c.fields(func(id int64, typ byte) (bool, error) {
				var err error
				switch {
				case id == 1 && typ == thriftI32:
					p.values, err = c.integer()
				case id == 2 && typ == thriftI32 && dataOrDictionary:
					p.encoding, err = c.integer()
				default:
					return false, nil
				}
				return true, err
			})
		default:
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return page{}, err
	}
	if uncompressed < 0 || compressed < 0 || uncompressed > pageMax || compressed > int64(len(chunk)) {
		return page{}, fmt.Errorf("a page of %d bytes, %d uncompressed", compressed, uncompressed)
	}
	p.body, p.compressed, p.uncompressed = c.at, int(compressed), int(uncompressed)
	return p, nil
}

func (p page) check(chunk []byte, meta *metadata.ColumnChunkMetaData, typ parquet.Type, index int) error {
	switch {
	case p.kind != pageData && p.kind != pageDataV2 && p.kind != pageDictionary:
		return fmt.Errorf("unknown kind of page %d", p.kind)
	case p.kind == pageDictionary && index > 0:
		return errors.New("a dictionary after the first page")
	case p.compressed > len(chunk)-p.body:
		return errors.New("the page is cut off")
	case p.values < 0 || p.values > pageValuesMax:
		return fmt.Errorf("a page of %d values", p.values)
	case meta.Compression() == compress.Codecs.Uncompressed && p.uncompressed != p.compressed:
		return fmt.Errorf("%d bytes are said to be %d, without compression", p.compressed, p.uncompressed)
	case int64(p.uncompressed) > int64(p.compressed)*expansionMax+expansionMax:
		return fmt.Errorf("%d bytes are said to expand to %d", p.compressed, p.uncompressed)
	case p.kind == pageDictionary && p.values > int64(p.uncompressed/leastWidth(typ)):
		return fmt.Errorf("a dictionary of %d values in %d bytes", p.values, p.uncompressed)
	}
	return nil
}

// leastWidth is the fewest bytes that a value of a physical type takes in a dictionary.
func leastWidth(typ parquet.Type) int {
	switch typ {
	case parquet.Types.Int32, parquet.Types.Float, parquet.Types.ByteArray: // bytes have their length before them
		return 4
	case parquet.Types.Int64, parquet.Types.Double:
		return 8
	case parquet.Types.Int96:
		return 12
	}
	return 1
}
