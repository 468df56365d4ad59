package parquetfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"
)

// errFinished is what a sink says after its writer was closed or aborted.
var errFinished = errors.New("the file is finished: it takes no more rows")

// sink counts and hashes what goes to the underlying writer. arrow-go drops some write errors, of the footer among
// others, so the first one sticks here, and Close asks for it.
type sink struct {
	w       io.Writer
	bytes   int64
	hash    *xxh3.Hasher
	err     error  // the first write error; nothing is written after it
	discard bool   // swallow everything: the file has been given up, arrow-go only frees its memory
	tail    []byte // what was written since keepTail
	keep    bool
	skipped bool // some bytes have not passed here
}

func newSink(w io.Writer) *sink { return &sink{w: w, hash: xxh3.New()} }

func (s *sink) Write(p []byte) (int, error) {
	switch {
	case s.discard, s.err != nil: // arrow-go leaks buffers when a write fails: it is told once, and err tells the rest
		return len(p), nil
	}
	n, err := s.w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		s.err = fmt.Errorf("writing the file: %w", err)
		return n, s.err
	}
	s.bytes += int64(n)
	_, _ = s.hash.Write(p) // never fails
	if s.keep {
		s.tail = append(s.tail, p...)
	}
	return n, nil
}

// skip counts bytes that have reached the file without passing here. It has no checksum then.
func (s *sink) skip(n int64) {
	s.bytes += n
	s.skipped = true
}

// keepTail makes the sink keep what follows, so that the footer can be checked.
func (s *sink) keepTail() { s.keep = true }

// sum is the checksum of the file, empty if not all of it has passed here.
func (s *sink) sum() string {
	if s.skipped {
		return ""
	}
	return fmt.Sprintf("%016x", s.hash.Sum64())
}
