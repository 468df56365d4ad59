package parquetfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"tidemark/internal/objstore"
)

const (
	// wholeMax is the largest file that is fetched in one piece when its checksum is to be verified. Generations are not
	// larger.
	wholeMax = 64 << 20
	// smallMax is the largest file that is fetched in one piece anyway: one request instead of three.
	smallMax = 256 << 10
	// tailBytes is the guess at how much of a file's end holds its footer.
	tailBytes = 64 << 10
	// gapMax is the most unwanted bytes that are fetched to save a request: about what a request's latency is worth.
	gapMax = 512 << 10
	// verifyBytes is how much of a large file is hashed at a time.
	verifyBytes = 8 << 20
)

// source is the bytes of one object.
type source struct {
	store objstore.Store
	key   string
	size  int64
	whole []byte // the object, if it was fetched in one piece
}

// read returns n bytes from offset; fewer are an error.
func (s *source) read(ctx context.Context, offset, n int64) ([]byte, error) {
	if s.whole != nil {
		return s.whole[offset : offset+n], nil
	}
	b, err := s.store.GetRange(ctx, s.key, offset, n)
	if err != nil {
		return nil, fmt.Errorf("reading %d bytes of %s at %d: %w", n, s.key, offset, err)
	}
	if int64(len(b)) != n {
		return nil, &FileError{s.key, -1, "", fmt.Errorf("it has %d bytes or fewer where %d were expected: it is truncated", offset+int64(len(b)), s.size)}
	}
	return b, nil
}

// fetchWhole reads the object in one piece.
func (s *source) fetchWhole(ctx context.Context) error {
	b, err := s.read(ctx, 0, s.size)
	if err == nil {
		s.whole = b
	}
	return err
}

// verify checks the object against its XXH3. A large object is read through for it.
func (s *source) verify(ctx context.Context, want string) error {
	hash := xxh3.New()
	for at := int64(0); at < s.size; at += verifyBytes {
		b, err := s.read(ctx, at, min(verifyBytes, s.size-at))
		if err != nil {
			return err
		}
		_, _ = hash.Write(b) // never fails
	}
	if have := fmt.Sprintf("%016x", hash.Sum64()); have != want {
		return &FileError{s.key, -1, "", fmt.Errorf("its checksum is %s where %s was recorded: the file is damaged or was replaced", have, want)}
	}
	return nil
}

// span is a range of the object that somebody wants.
type span struct {
	start, n int64
	want     int // whose it is: position among the wanted
}

// readSpans reads ranges of the object, joining those that lie close together into one request each.
func (s *source) readSpans(ctx context.Context, spans []span) ([][]byte, error) {
	sorted := slices.Clone(spans)
	slices.SortFunc(sorted, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	out := make([][]byte, len(spans))
	for len(sorted) > 0 {
		start, end, n := sorted[0].start, sorted[0].start+sorted[0].n, 1
		for n < len(sorted) && sorted[n].start <= end+gapMax {
			end = max(end, sorted[n].start+sorted[n].n)
			n++
		}
		b, err := s.read(ctx, start, end-start)
		if err != nil {
			return nil, err
		}
		for _, sp := range sorted[:n] {
			out[sp.want] = b[sp.start-start : sp.start-start+sp.n]
		}
		sorted = sorted[n:]
	}
	return out, nil
}

// chunkStream is the bytes of a column chunk as arrow-go's page reader wants them.
type chunkStream struct {
	b []byte
}

var errDiscard = errors.New("a page ends after its column")

func (c *chunkStream) Peek(n int) ([]byte, error) {
	return c.b[:min(n, len(c.b))], nil
}

func (c *chunkStream) Discard(n int) (int, error) {
	if n > len(c.b) {
		return 0, errDiscard
	}
	c.b = c.b[n:]
	return n, nil
}

func (c *chunkStream) Read(p []byte) (int, error) {
	n := copy(p, c.b)
	c.b = c.b[n:]
	if n == 0 && len(p) > 0 {
		return 0, errDiscard
	}
	return n, nil
}
