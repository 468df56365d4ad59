package parquetfile

import (
	"encoding/binary"
	"io"

	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/klauspost/compress/zstd"
)

// arrow-go makes a new zstd encoder for every page, which costs more than the compression: one shared encoder is 2.6
// times faster. Both are made and used once here, at start, because they make channels on first use, which must not
// happen inside a testing/synctest bubble and then be used outside of it.
var (
	encoder     = warm(zstd.NewWriter(nil, zstd.WithZeroFrames(true), zstd.WithAllLitEntropyCompression(true)))
	fastEncoder = warm(zstd.NewWriter(nil, zstd.WithZeroFrames(true), zstd.WithAllLitEntropyCompression(true), zstd.WithEncoderLevel(zstd.SpeedFastest)))
	// The decoder never writes beyond what the page header announced, which Reader has checked.
	decoder = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true)))
)

func init() { compress.RegisterCodec(compress.Codecs.Zstd, zstdCodec{}) }

func must[T any](v T, err error) T {
	if err != nil {
		panic("parquetfile: zstd: " + err.Error()) // only for options that do not exist
	}
	return v
}

func warm(e *zstd.Encoder, err error) *zstd.Encoder {
	must(e, err).EncodeAll([]byte{0}, nil)
	return e
}

// frameMax is the most that appendFrame takes: every decoder should have memory for a window of that size (RFC 8878, section
// 3.1.1.1.2), and a single segment is a window.
const frameMax = 8 << 20

// appendFrame appends a zstd frame of raw blocks (RFC 8878, sections 3.1.1 and 3.1.1.2): bytes as they are, for pages that
// compression does not make smaller. Parquet has one codec for all pages of a chunk.
func appendFrame(dst, src []byte) []byte {
	const (
		magic      = 0xFD2FB528
		descriptor = 2<<6 | 1<<5 // a content size of four bytes; one segment, so there is no window to describe
		blockMax   = 128 << 10
		raw        = 0 << 1
	)
	dst = binary.LittleEndian.AppendUint32(dst, magic)
	dst = append(dst, descriptor)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(src)))
	for last := uint32(0); last == 0; {
		block := src[:min(len(src), blockMax)]
		src = src[len(block):]
		if len(src) == 0 {
			last = 1
		}
		head := uint32(len(block))<<3 | raw | last
		dst = append(dst, byte(head), byte(head>>8), byte(head>>16))
		dst = append(dst, block...)
	}
	return dst
}

// zstdCodec compresses pages with the shared encoder. It is safe for concurrent use.
type zstdCodec struct{}

func (zstdCodec) Encode(dst, src []byte) []byte { return encoder.EncodeAll(src, dst[:0]) }

func (zstdCodec) EncodeLevel(dst, src []byte, _ int) []byte { return encoder.EncodeAll(src, dst[:0]) }

func (zstdCodec) CompressBound(size int64) int64 { return int64(encoder.MaxEncodedSize(int(size))) }

// Decode panics on damage, for its interface has no error; Reader contains that.
func (zstdCodec) Decode(dst, src []byte) []byte {
	out, err := decoder.DecodeAll(src, dst[:0:len(dst)])
	if err != nil {
		panic(err)
	}
	return out
}

func (zstdCodec) NewReader(r io.Reader) io.ReadCloser {
	d, err := zstd.NewReader(r)
	return must(d, err).IOReadCloser()
}

func (zstdCodec) NewWriter(w io.Writer) io.WriteCloser { return must(zstd.NewWriter(w)) }

func (zstdCodec) NewWriterLevel(w io.Writer, level int) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)))
}
