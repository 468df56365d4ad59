package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// arrowReader reads the Arrow IPC formats. Both are read record by record as they were written.
type arrowReader struct {
	in     *input
	file   *os.File
	random *ipc.FileReader // of a file
	stream *ipc.Reader     // of a stream
	at     int             // next record of random
}

func openArrow(in *input, mem memory.Allocator) (r *arrowReader, err error) {
	f, err := in.open()
	if err != nil {
		return nil, err
	}
	r = &arrowReader{in: in, file: f}
	err = guard(func() error {
		if in.format == formatArrowFile {
			if err := checkArrowFile(f, in.size); err != nil {
				return err
			}
			r.random, err = ipc.NewFileReader(f, ipc.WithAllocator(mem))
			return err
		}
		if err := checkArrowStream(f, in.size); err != nil {
			return err
		}
		r.stream, err = ipc.NewReader(countingReader{r: f, done: &in.done}, ipc.WithAllocator(mem))
		return err
	})
	if err != nil {
		return nil, errors.Join(in.unreadable(fmt.Errorf("is no Arrow IPC file, or damaged: %w", err)), f.Close())
	}
	return r, nil
}

func (r *arrowReader) schema() *arrow.Schema {
	if r.random != nil {
		return r.random.Schema()
	}
	return r.stream.Schema()
}

func (r *arrowReader) next(ctx context.Context) (rec arrow.Record, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	err = guard(func() error {
		if r.random == nil {
			if rec, err = r.stream.Read(); err != nil {
				return err
			}
			rec.Retain()
			return checkRecord(rec)
		}
		if r.at == r.random.NumRecords() {
			return io.EOF
		}
		if rec, err = r.random.RecordAt(r.at); err != nil {
			return err
		}
		r.at++
		r.in.done.Store(int64(float64(r.in.size) * float64(r.at) / float64(r.random.NumRecords())))
		return checkRecord(rec)
	})
	switch {
	case err == io.EOF:
		return nil, io.EOF
	case err != nil:
		return nil, r.in.unreadable(fmt.Errorf("is damaged: %w", err))
	}
	return rec, nil
}

func (r *arrowReader) close() error {
	var err error
	if r.stream != nil {
		r.stream.Release()
	} else {
		err = r.random.Close()
	}
	return errors.Join(err, r.file.Close())
}

// guard turns a panic of a decoder into an error: the readers of arrow-go index into damaged files without checking.
func guard(decode func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return decode()
}
