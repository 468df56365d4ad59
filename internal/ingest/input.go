package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// sniffBytes is how much of an input is looked at to tell its format.
const sniffBytes = 64 << 10

// Input is one file or stream to ingest; see [File] and [Stream].
type Input struct {
	path   string
	name   string
	stream io.Reader
}

// File is an input in the local file system. Its format follows from its extension, else from its content.
func File(path string) Input { return Input{path: path, name: path} }

// Stream is an input that can be read once, such as standard input. Its format follows from its content. Typing takes
// two passes and Parquet is read from its end, so Open first copies the stream to a temporary file, which is bounded by
// the disk only and removed by Close.
func Stream(name string, r io.Reader) Input { return Input{name: name, stream: r} }

type format int

const (
	formatUnknown format = iota
	formatParquet
	formatCSV
	formatJSON
	formatArrowFile
	formatArrowStream
)

// input is an Input that has been opened.
type input struct {
	name   string
	path   string
	spool  bool // path is a temporary copy of a stream
	size   int64
	format format
	done   atomic.Int64 // bytes of which the rows have been handed out
}

// openInput spools a stream and finds out the format.
func openInput(ctx context.Context, in Input, tempDir string) (*input, error) {
	o := &input{name: in.name, path: in.path}
	if in.stream != nil {
		if err := o.copyStream(ctx, in.stream, tempDir); err != nil {
			return nil, o.unreadable(err)
		}
	}
	info, err := os.Stat(o.path)
	if err == nil && info.IsDir() {
		err = errors.New("is a directory; name the files in it")
	}
	if err != nil {
		return nil, errors.Join(o.unreadable(plainPathError(err)), o.remove())
	}
	o.size = info.Size()
	if o.format, err = o.detect(); err != nil {
		return nil, errors.Join(err, o.remove())
	}
	return o, nil
}

func (o *input) copyStream(ctx context.Context, r io.Reader, tempDir string) error {
	f, err := os.CreateTemp(tempDir, "tidemark-ingest-*")
	if err != nil {
		return fmt.Errorf("cannot make a temporary copy: %w", err)
	}
	o.path, o.spool = f.Name(), true
	_, err = io.Copy(f, contextReader{ctx: ctx, r: r})
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("cannot make a temporary copy: %w", err), o.remove())
	}
	return nil
}

// remove deletes the temporary copy, if there is one.
func (o *input) remove() error {
	if !o.spool {
		return nil
	}
	o.spool = false
	return os.Remove(o.path)
}

func (o *input) open() (*os.File, error) {
	f, err := os.Open(o.path)
	if err != nil {
		return nil, o.unreadable(plainPathError(err))
	}
	return f, nil
}

func (o *input) unreadable(err error) error {
	if cause := (*Error)(nil); errors.As(err, &cause) {
		return err
	}
	return &Error{Code: CodeUnreadable, File: o.name, Err: err}
}

// detect goes by the extension of a file and otherwise by content. The two kinds of Arrow files share extensions, so
// content tells them apart.
func (o *input) detect() (format, error) {
	f, err := o.open()
	if err != nil {
		return formatUnknown, err
	}
	defer f.Close()
	head := make([]byte, sniffBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return formatUnknown, o.unreadable(err)
	}
	byContent := sniff(head[:n])
	extension := ""
	if !o.spool {
		extension = strings.ToLower(filepath.Ext(o.path))
	}
	switch extension {
	case ".parquet", ".pq":
		return formatParquet, nil
	case ".csv":
		return formatCSV, nil
	case ".json", ".jsonl", ".ndjson":
		return formatJSON, nil
	case ".arrow", ".arrows", ".ipc", ".feather":
		if byContent == formatArrowFile {
			return formatArrowFile, nil
		}
		return formatArrowStream, nil
	}
	if byContent == formatUnknown {
		reason := "holds neither Parquet, CSV, JSON nor Arrow IPC (compressed text must be unpacked first)"
		if n == 0 {
			reason = "is empty"
		}
		return formatUnknown, &Error{Code: CodeUnknownFormat, File: o.name, Reason: reason}
	}
	return byContent, nil
}

// sniff tells a format from the first bytes of its content. Any text that is not JSON and has a whole line is CSV.
func sniff(head []byte) format {
	switch {
	case bytes.HasPrefix(head, []byte("PAR1")):
		return formatParquet
	case bytes.HasPrefix(head, []byte("ARROW1\x00\x00")):
		return formatArrowFile
	case bytes.HasPrefix(head, []byte("\xff\xff\xff\xff")):
		return formatArrowStream
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(head, byteOrderMark), " \t\r\n")
	switch {
	case len(text) == 0 || bytes.IndexByte(text, 0) >= 0:
		return formatUnknown
	case text[0] == '{' || text[0] == '[':
		return formatJSON
	case bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, ',') < 0:
		return formatUnknown
	}
	// The cut may go through a character.
	for cut := 0; cut < utf8.UTFMax && cut < len(text); cut++ {
		if utf8.Valid(text[:len(text)-cut]) {
			return formatCSV
		}
	}
	return formatUnknown
}

// plainPathError drops the operation and the path, which the message has already.
func plainPathError(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// countingReader reports the bytes read as progress.
type countingReader struct {
	r    io.Reader
	done *atomic.Int64
}

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.done.Add(int64(n))
	return n, err
}
