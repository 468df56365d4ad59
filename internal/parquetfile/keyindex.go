package parquetfile

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/zeebo/xxh3"
)

// The key index says, of a file whose rows are sorted, which keys its row groups begin and end with, so that a merge can
// tell which of them it must decode. It is an entry of the footer's metadata, which other readers ignore: base64 of, per
// row group, its number of rows and the two keys, each behind its length, and an XXH3 of all that. A wrong index would
// make a merge skip rows, hence the checksum, and a file whose row groups are not those of the index has none.

const (
	keyIndexName = "tidemark.keys"
	// keyIndexMax is the most bytes of keys that a footer is burdened with; beyond, the file has no index.
	keyIndexMax = 1 << 20
)

type keyRange struct{ first, last []byte }

// keyIndex gathers the index of a file being written.
type keyIndex struct {
	keyOf func(rec arrow.Record, row int) ([]byte, error) // nil: there is no index
	bytes []byte
	open  keyRange // of the open row group
	none  bool     // a row group without keys was copied, or the index grew too large
}

// take notes n rows of the open row group, which they begin or continue.
func (k *keyIndex) take(rec arrow.Record, from, n int, begin bool) (err error) {
	if k.keyOf == nil || k.none {
		return nil
	}
	if begin {
		if k.open.first, err = k.keyOf(rec, from); err != nil {
			return err
		}
	}
	k.open.last, err = k.keyOf(rec, from+n-1)
	return err
}

// add ends a row group.
func (k *keyIndex) add(rows int64, r keyRange) {
	if k.keyOf == nil || k.none {
		return
	}
	if r.first == nil || r.last == nil || len(k.bytes)+len(r.first)+len(r.last) > keyIndexMax {
		k.none, k.bytes = true, nil
		return
	}
	k.bytes = binary.AppendUvarint(k.bytes, uint64(rows))
	for _, key := range [][]byte{r.first, r.last} {
		k.bytes = append(binary.AppendUvarint(k.bytes, uint64(len(key))), key...)
	}
}

// put adds the index to a footer.
func (k *keyIndex) put(footer func(name, value string) error) error {
	if k.keyOf == nil || k.none || len(k.bytes) == 0 {
		return nil
	}
	body := binary.BigEndian.AppendUint64(k.bytes, xxh3.Hash(k.bytes))
	return footer(keyIndexName, base64.StdEncoding.EncodeToString(body))
}

// keysOf reads the index of a file, by row group; nil if it has none that is whole.
func keysOf(meta *metadata.FileMetaData) []keyRange {
	value := meta.KeyValueMetadata().FindValue(keyIndexName)
	if value == nil {
		return nil
	}
	body, err := base64.StdEncoding.DecodeString(*value)
	if err != nil || len(body) < 8 {
		return nil
	}
	body, sum := body[:len(body)-8], body[len(body)-8:]
	if xxh3.Hash(body) != binary.BigEndian.Uint64(sum) {
		return nil
	}
	keys, err := parseKeys(body, meta)
	if err != nil {
		return nil
	}
	return keys
}

func parseKeys(body []byte, meta *metadata.FileMetaData) ([]keyRange, error) {
	number := func() uint64 {
		n, used := binary.Uvarint(body)
		body = body[max(used, 0):]
		if used <= 0 {
			return math.MaxUint64
		}
		return n
	}
	key := func() []byte {
		n := number()
		if n > uint64(len(body)) {
			return nil
		}
		k := body[:n:n]
		body = body[n:]
		return k
	}
	var keys []keyRange
	for _, g := range meta.RowGroups {
		rows, r := number(), keyRange{first: key(), last: key()}
		if rows != uint64(g.NumRows) || r.first == nil || r.last == nil {
			return nil, errors.New("it is of other row groups")
		}
		keys = append(keys, r)
	}
	if len(body) > 0 {
		return nil, errors.New("it is of more row groups")
	}
	return keys, nil
}
