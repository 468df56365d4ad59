package merge

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/shardmanifest"
)

// Generations whose row groups are full are joined into base files by reference: the store copies their row groups, and only
// a footer is written.
//
//  1. The file must have been written by a Tidemark writer, have exactly the table's columns, and consist of row groups
//     that are worth keeping.
//  2. Its bytes must be those that were sealed. Where the store vouches for the bytes of a version (S3), the manifest has
//     the version and every copy asks for it. Elsewhere the file is read and its checksum compared, at the speed of the
//     disk, while others are being copied.
//  3. Then its row groups are copied behind what the open file holds, and described in its footer.
//
// A store that cannot copy gets the row groups as this process reads them.

const (
	// joinedBytesMin is the smallest file that is joined. Above twice the least part of S3, so that whatever lies before
	// it in the open file leaves a part to be copied.
	joinedBytesMin = 10 << 20
	// A row group is full, on average over a file, with so many bytes, as one of an upsert table is, or rows.
	fullGroupBytes = 4 << 20
	fullGroupRows  = 1 << 19
)

// wholeFile is a generation that is to be joined.
type wholeFile struct {
	reader *parquetfile.Reader
	key    string
	etag   string // of the version that was verified, or is vouched for
	xxh3   string // to be compared if the bytes are read after all; empty once it was
}

// giveWhole gives a generation's file as it is, if it may be joined.
func (j *appendJob) giveWhole(ctx context.Context, g shardmanifest.Generation, give func(portion) error) (given bool, err error) {
	least, group := int64(joinedBytesMin), int64(fullGroupBytes)
	if j.joinedBytes > 0 {
		least, group = j.joinedBytes, j.joinedBytes
	}
	if j.layout == nil || g.Bytes < least || g.XXH3 == "" {
		return false, nil
	}
	w := &wholeFile{key: j.key(g.Path), etag: g.ETag, xxh3: g.XXH3}
	if w.etag == "" {
		info, err := j.store.Head(ctx, w.key)
		if err != nil {
			return false, err
		}
		w.etag = info.ETag
	}
	if w.reader, err = parquetfile.OpenReader(ctx, j.store, w.key, parquetfile.ReaderOptions{Mem: j.shape.mem, Size: g.Bytes}); err != nil {
		return false, err
	}
	groups := int64(len(w.reader.RowGroups()))
	full := groups > 0 && (g.Bytes/groups >= group || g.Rows/groups >= fullGroupRows)
	if !full || w.reader.Rows() != g.Rows || !j.layout.Joins(w.reader) {
		return false, w.reader.Close()
	}
	if g.ETag == "" {
		if err := w.reader.Verify(ctx, g.XXH3); err != nil {
			return false, errors.Join(err, w.reader.Close())
		}
		w.xxh3 = ""
	}
	j.meter.add(Progress{RowsRead: g.Rows})
	if err := give(portion{whole: w}); err != nil {
		return false, errors.Join(err, w.reader.Close())
	}
	return true, nil
}

// join appends a whole file.
func (p *packer) join(ctx context.Context, f *wholeFile) error {
	if p.open != nil && !p.open.writer.Fits(f.reader) {
		if err := p.cut(ctx); err != nil {
			return err
		}
	}
	err := p.put(ctx, sorted{}, f.reader.Rows(), func(w *parquetfile.Writer) error {
		return w.Join(f.reader, func(offset, n int64) error {
			err := objstore.CopyRange(p.open.upload, f.key, f.etag, offset, n)
			if errors.Is(err, objstore.ErrMismatch) || errors.Is(err, objstore.ErrShort) {
				// Not the store's failure any more, but the generation's.
				err = &parquetfile.FileError{Path: f.key, RowGroup: -1, Err: fmt.Errorf("it is not the version that was sealed: %v", err)}
			}
			return err
		})
	})
	if !errors.Is(err, objstore.ErrNoCopy) {
		return err
	}
	if f.xxh3 != "" {
		if err := f.reader.Verify(ctx, f.xxh3); err != nil {
			return err
		}
	}
	for i, group := range f.reader.RowGroups() {
		raw, err := f.reader.FetchRowGroup(ctx, i)
		if err != nil {
			return err
		}
		if err := p.put(ctx, sorted{}, group.Rows, func(w *parquetfile.Writer) error { return w.CopyRowGroup(raw) }); err != nil {
			return err
		}
	}
	return nil
}
