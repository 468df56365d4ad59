package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"
)

// parquetReader reads one row group after the other, each in batches, so that memory does not grow with the file.
type parquetReader struct {
	in     *input
	file   *os.File
	pages  *file.Reader
	arrow  *pqarrow.FileReader
	group  int // next row group to open
	batch  pqarrow.RecordReader
	rows   int64
	schema *arrow.Schema
}

func openParquet(in *input, mem memory.Allocator) (r *parquetReader, err error) {
	f, err := in.open()
	if err != nil {
		return nil, err
	}
	r = &parquetReader{in: in, file: f}
	err = guard(func() error {
		props := parquet.NewReaderProperties(mem)
		props.BufferedStreamEnabled = true // column chunks are read page by page, not at once
		if r.pages, err = file.NewParquetReader(f, file.WithReadProps(props)); err != nil {
			return err
		}
		if r.arrow, err = pqarrow.NewFileReader(r.pages, pqarrow.ArrowReadProperties{BatchSize: batchRows}, mem); err != nil {
			return err
		}
		r.schema, err = r.arrow.Schema()
		return err
	})
	if err != nil {
		return nil, errors.Join(in.unreadable(fmt.Errorf("is no Parquet file, or damaged: %w", err)), f.Close())
	}
	return r, nil
}

func (r *parquetReader) next(ctx context.Context) (rec arrow.Record, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	err = guard(func() error {
		for {
			if r.batch == nil {
				if r.group == r.pages.NumRowGroups() {
					return io.EOF
				}
				// The context only carries values here: reading must not stop half way through a batch.
				r.batch, err = r.arrow.GetRecordReader(context.WithoutCancel(ctx), nil, []int{r.group})
				if err != nil {
					return err
				}
				r.group++
			}
			if r.batch.Next() {
				rec = r.batch.Record()
				rec.Retain()
				return nil
			}
			err := r.batch.Err()
			r.batch.Release()
			r.batch = nil
			if err != nil && err != io.EOF {
				return err
			}
		}
	})
	switch {
	case err == io.EOF:
		return r.finish()
	case err != nil:
		return nil, r.in.unreadable(fmt.Errorf("row group %d is damaged: %w", max(r.group-1, 0), err))
	}
	r.rows += rec.NumRows()
	r.in.done.Store(int64(float64(r.in.size) * float64(r.rows) / float64(max(r.pages.NumRows(), r.rows))))
	return rec, nil
}

// finish compares what came with what the footer promised: a decoder that stops early must not pass for the end.
func (r *parquetReader) finish() (arrow.Record, error) {
	if promised := r.pages.NumRows(); r.rows != promised {
		return nil, r.in.unreadable(fmt.Errorf("is damaged: the footer promises %d rows, but %d came", promised, r.rows))
	}
	return nil, io.EOF
}

func (r *parquetReader) close() error {
	if r.batch != nil {
		r.batch.Release()
	}
	return errors.Join(r.pages.Close(), ignoreClosed(r.file.Close()))
}

// ignoreClosed: the Parquet reader closes the file it was given.
func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
