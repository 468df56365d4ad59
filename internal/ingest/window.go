package ingest

import (
	"bytes"
	"fmt"
	"io"
)

const (
	// rowBytesMax bounds the memory one row can take. A file with a longer one is almost always a file whose closing
	// quote or brace is missing, and is refused as such.
	rowBytesMax = 64 << 20
	// windowBytes is what is read at a time: large enough that system calls do not matter.
	windowBytes = 256 << 10
)

// window is a sliding view of a reader: buf[:] holds what has been read and not yet been dropped. Parsers keep positions
// relative to the start of buf, which only drop moves.
type window struct {
	r       io.Reader
	buf     []byte // unread bytes; a prefix of them is the row being parsed
	storage []byte
	lines   int64 // line breaks dropped so far
	eof     bool
}

func newWindow(r io.Reader) *window {
	return &window{r: r, storage: make([]byte, 0, windowBytes)}
}

// more reads further bytes behind buf. It returns false at the end of the input.
func (w *window) more() (bool, error) {
	if w.eof {
		return false, nil
	}
	if len(w.buf) >= rowBytesMax {
		return false, fmt.Errorf("a row is longer than %d MiB; is a closing quote or brace missing?", rowBytesMax>>20)
	}
	if cap(w.buf)-len(w.buf) < windowBytes/4 {
		size := max(windowBytes, 2*len(w.buf))
		if cap(w.storage) < size {
			w.storage = make([]byte, 0, size)
		}
		w.buf = append(w.storage[:0], w.buf...)
	}
	for {
		n, err := w.r.Read(w.buf[len(w.buf):cap(w.buf)])
		w.buf = w.buf[:len(w.buf)+n]
		switch {
		case err == io.EOF:
			w.eof = true
			return n > 0, nil
		case err != nil:
			return false, err
		case n > 0:
			return true, nil
		}
	}
}

// drop forgets the first n bytes.
func (w *window) drop(n int) {
	w.lines += int64(bytes.Count(w.buf[:n], newline))
	w.buf = w.buf[n:]
}

// line is the 1-based line of buf[at].
func (w *window) line(at int) int64 {
	return w.lines + 1 + int64(bytes.Count(w.buf[:min(at, len(w.buf))], newline))
}

// skipMark drops a byte order mark at the start of the input.
func (w *window) skipMark() error {
	for len(w.buf) < len(byteOrderMark) {
		ok, err := w.more()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
	}
	if bytes.HasPrefix(w.buf, byteOrderMark) {
		w.drop(len(byteOrderMark))
	}
	return nil
}

var (
	newline       = []byte{'\n'}
	byteOrderMark = []byte("\xef\xbb\xbf")
)
