package parquetfile

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"tidemark/internal/columnchunk"
)

// A stored page is a zstd frame of little more than its bytes, up to the size of a window that every decoder has memory
// for; above that it is compressed.
func TestStoredPagesAreFrames(t *testing.T) {
	random := make([]byte, frameMax+1)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(random) // never fails
	for _, n := range []int{0, 1, 128<<10 - 1, 128 << 10, 128<<10 + 1, 1 << 20, frameMax, frameMax + 1} {
		body := random[:n]
		frame := compressPage(nil, body, columnchunk.Store)
		if overhead := len(frame) - n; n <= frameMax && overhead > 12+3*(n>>17) {
			t.Errorf("a frame of %d bytes has %d more", n, overhead)
		}
		got, err := decompress(nil, frame, n)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes: %d are back, %v", n, len(got), err)
		}
		if single := frame[4]&(1<<5) != 0; n > frameMax && single {
			t.Errorf("%d bytes are one segment", n)
		}
	}
}
