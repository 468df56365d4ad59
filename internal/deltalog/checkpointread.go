package deltalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"

	"tidemark/internal/objstore"
)

const (
	// checkpointWhole is up to which size a checkpoint file is read in one request.
	checkpointWhole = 8 << 20
	// checkpointStream is the read-ahead of each column otherwise; about thirty columns are open at once.
	checkpointStream = 1 << 20
	// checkpointMemoryMax bounds what the Parquet reader may hold at one time, a few pages of every column.
	checkpointMemoryMax = 256 << 20
)

// readCheckpoint reads one complete checkpoint, row by row. What is wrong with its bytes is a *CheckpointError.
func (l *Log) readCheckpoint(ctx context.Context, cp checkpointFiles) (*Snapshot, error) {
	c := &content{}
	for _, part := range cp.parts {
		r, err := newObjectReader(ctx, l.store, part)
		if err != nil {
			return nil, err
		}
		err = c.readParquet(r)
		switch {
		case r.err != nil:
			return nil, r.err
		case errors.Is(err, errDeletionVector):
			return nil, &UnsupportedError{l.table, "deletion vectors", fmt.Sprintf("its checkpoint at version %d has some; rewrite the table without them (REORG … APPLY PURGE) and drop the feature", cp.version)}
		case errors.Is(err, errSidecars):
			return nil, &UnsupportedError{l.table, "the reader feature v2Checkpoint", "its checkpoints have sidecar files; set delta.checkpointPolicy to classic and drop the feature"}
		case err != nil:
			return nil, &CheckpointError{Key: part.Key, Err: err}
		}
	}
	if c.protocol == nil || c.metadata == nil || c.metadata.ID == "" {
		return nil, &CheckpointError{Key: cp.parts[0].Key, Err: errors.New("it holds no protocol, or no metaData with an id")}
	}
	return c.snapshot(l.table, cp.version), nil
}

var errSidecars = errors.New("the checkpoint refers to sidecar files")

// readParquet adds the actions of one checkpoint file. The Parquet library panics on some damaged files and on running
// into the memory limit, all of it on this goroutine; that is an error like any other here.
func (c *content) readParquet(r parquet.ReaderAtSeeker) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged Parquet file: %v", p)
		}
	}()
	props := parquet.NewReaderProperties(&limitedAllocator{left: checkpointMemoryMax})
	props.BufferedStreamEnabled = true
	props.BufferSize = checkpointStream
	rd, err := file.NewParquetReader(r, file.WithReadProps(props))
	if err != nil {
		return err
	}
	for g := range rd.NumRowGroups() {
		if err := c.readRowGroup(rd.RowGroup(g)); err != nil {
			return fmt.Errorf("row group %d: %w", g, err)
		}
	}
	return nil
}

func (c *content) readRowGroup(g *file.RowGroupReader) error {
	row := checkpointRow{}
	for i := range g.NumColumns() {
		name := checkpointColumn(strings.Split(g.MetaData().Schema.Column(i).Path(), "."))
		if name == "" {
			continue
		}
		rd, err := g.Column(i)
		if err != nil {
			return err
		}
		if row[name], err = newLeaf(name, rd); err != nil {
			return err
		}
	}
	for n := range g.NumRows() {
		for _, leaf := range row {
			if err := leaf.next(); err != nil {
				return fmt.Errorf("row %d: %w", n, err)
			}
		}
		if err := c.take(row); err != nil {
			return fmt.Errorf("row %d: %w", n, err)
		}
	}
	return nil
}

// take adds the one action of a row. Later rows and parts do not override earlier ones: a checkpoint has no order, and
// a valid one holds everything once.
func (c *content) take(row checkpointRow) error {
	if row.has("sidecar.path") {
		return errSidecars
	}
	if row.has("protocol.minReaderVersion") {
		c.protocol = &Protocol{
			MinReaderVersion: int32(row.int("protocol.minReaderVersion")), MinWriterVersion: int32(row.int("protocol.minWriterVersion")),
			ReaderFeatures: row.list("protocol.readerFeatures"), WriterFeatures: row.list("protocol.writerFeatures"),
		}
	}
	if row.has("metaData.id") {
		m := Metadata{
			ID: row.text("metaData.id"), Name: row.text("metaData.name"), Description: row.text("metaData.description"),
			Format:       Format{Provider: row.text("metaData.format.provider"), Options: row.pairs("metaData.format.options")},
			SchemaString: row.text("metaData.schemaString"), PartitionColumns: row.list("metaData.partitionColumns"),
			CreatedTime: row.int("metaData.createdTime"), Configuration: row.pairs("metaData.configuration"),
		}.normal()
		c.metadata = &m
	}
	if row.has("txn.appId") {
		m := mark{version: row.int("txn.version"), updated: row.int("txn.lastUpdated")}
		c.txns = append(c.txns, treeEntry[mark]{row.text("txn.appId"), m})
	}
	if row.has("add.path") {
		return c.takeAdd(row)
	}
	if row.has("remove.path") && !row.has("remove.deletionVector") {
		uri := row.text("remove.path")
		path, err := decodePath(uri)
		if err != nil {
			return err
		}
		t := tombstone{at: row.int("remove.deletionTimestamp"), size: row.int("remove.size"), uri: oddURI(uri, path)}
		c.tombstones = append(c.tombstones, treeEntry[tombstone]{path, t})
	}
	return nil
}

func (c *content) takeAdd(row checkpointRow) error {
	if row.has("add.deletionVector") {
		return errDeletionVector
	}
	add, err := decodeAdd(&addJSON{
		Path: row.text("add.path"), Size: row.int("add.size"), ModificationTime: row.int("add.modificationTime"),
		DataChange: row.bool("add.dataChange"), Stats: row.text("add.stats"),
		PartitionValues: row.pairs("add.partitionValues"), Tags: row.pairs("add.tags"),
	})
	if err != nil {
		return err
	}
	c.files = append(c.files, treeEntry[*dataFile]{add.Path, newFile(add)})
	return nil
}

// limitedAllocator panics when more than its limit is in use.
type limitedAllocator struct{ left int }

func (a *limitedAllocator) take(n int) {
	if a.left -= n; a.left < 0 {
		panic(fmt.Sprintf("reading it takes more than %d MiB at once", checkpointMemoryMax>>20))
	}
}

func (a *limitedAllocator) Allocate(size int) []byte {
	a.take(size)
	return memory.DefaultAllocator.Allocate(size)
}

func (a *limitedAllocator) Reallocate(size int, b []byte) []byte {
	a.take(size - len(b))
	return memory.DefaultAllocator.Reallocate(size, b)
}

func (a *limitedAllocator) Free(b []byte) { a.left += len(b) }

// objectReader reads an object of the store as the Parquet library wants it, remembering the store's own errors so
// that they are not taken for damage.
type objectReader struct {
	ctx    context.Context
	store  objstore.Store
	info   objstore.Info
	whole  *bytes.Reader // of a small object
	offset int64
	err    error
}

func newObjectReader(ctx context.Context, s objstore.Store, info objstore.Info) (*objectReader, error) {
	r := &objectReader{ctx: ctx, store: s, info: info}
	if info.Size <= checkpointWhole {
		body, _, err := s.Get(ctx, info.Key)
		if err != nil {
			return nil, err
		}
		r.whole, r.info.Size = bytes.NewReader(body), int64(len(body))
	}
	return r, nil
}

func (r *objectReader) ReadAt(p []byte, off int64) (int, error) {
	if r.whole != nil {
		return r.whole.ReadAt(p, off)
	}
	if off >= r.info.Size {
		return 0, io.EOF
	}
	body, err := r.store.GetRange(r.ctx, r.info.Key, off, int64(len(p)))
	if err != nil {
		r.err = err
		return 0, err
	}
	n := copy(p, body)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (r *objectReader) Read(p []byte) (int, error) {
	n, err := r.ReadAt(p, r.offset)
	r.offset += int64(n)
	return n, err
}

func (r *objectReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		offset += r.info.Size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek to %d", offset)
	}
	r.offset = offset
	return offset, nil
}
