package merge

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/schema"
)

// files are all the data files that an execution has begun under its own name. What is not committed is deleted.
type files struct {
	mu   sync.Mutex // guards keys
	keys map[string]struct{}
}

func (f *files) add(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys[key] = struct{}{}
}

// forget drops a file that is gone, or that is no longer the execution's own.
func (f *files) forget(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, key)
}

// take returns the files and forgets them.
func (f *files) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]string, 0, len(f.keys))
	for k := range f.keys {
		out = append(out, k)
	}
	clear(f.keys)
	return out
}

// numbers hands out the numbers of the files of one job. Jobs run side by side, so each takes its own residue class:
// the names do not depend on which job was faster.
type numbers struct {
	next, step int
}

func (n *numbers) take() int {
	got := n.next
	n.next += n.step
	return got
}

// packer writes records one after the other into files of the target size.
type packer struct {
	*attempt
	numbers *numbers
	bucket  string // of an upsert table; empty for an append table
	// groupBytes is the size at which a row group ends; 0 is the attempt's.
	groupBytes int64
	// Of a partition's files: the columns they hold, their folder, with a slash at its end, and the partition's values.
	// Otherwise files hold all columns and lie in the table's own folder.
	columns *arrow.Schema
	folder  string
	values  map[string]string
	open    *openFile
	adds    []deltalog.Add
}

// openFile is a file being written.
type openFile struct {
	name     string
	upload   objstore.Upload
	writer   *parquetfile.Writer
	min, max []byte
}

// write appends a record; it stays the caller's. An upsert table's records come with their lowest and highest key,
// each record above the one before.
func (p *packer) write(ctx context.Context, s sorted) error {
	if s.rows.NumRows() == 0 {
		return nil
	}
	return p.put(ctx, s, s.rows.NumRows(), func(w *parquetfile.Writer) error { return w.Write(s.rows) })
}

// copy appends a row group as another file holds it.
func (p *packer) copy(ctx context.Context, m message) error {
	return p.put(ctx, m.sorted, m.raw.Rows(), func(w *parquetfile.Writer) error { return w.CopyRowGroup(m.raw) })
}

func (p *packer) put(ctx context.Context, s sorted, rows int64, put func(*parquetfile.Writer) error) error {
	if p.open == nil {
		if err := p.begin(ctx); err != nil {
			return err
		}
		p.open.min = append(p.open.min, s.min...)
	}
	if err := put(p.open.writer); err != nil {
		return fmt.Errorf("writing %s: %w", p.open.name, err)
	}
	p.open.max = append(p.open.max[:0], s.max...)
	p.meter.add(Progress{RowsWritten: rows})
	if p.open.writer.BytesWritten() >= p.target {
		return p.cut(ctx)
	}
	return nil
}

func (p *packer) begin(ctx context.Context) error {
	name := fmt.Sprintf("%spart-%s-%d.parquet", p.folder, p.req.Execution, p.numbers.take())
	key := p.key(name)
	p.files.add(key)
	upload, err := p.store.Create(ctx, key)
	if err != nil {
		return err
	}
	options := parquetfile.WriterOptions{Mem: p.shape.mem, RowGroupBytes: cmp.Or(p.groupBytes, p.attempt.rowGroupBytes), IndexedColumns: p.indexedColumns}
	var w *parquetfile.Writer
	if p.bucket != "" {
		options.Key, err = p.shape.rowKey()
	}
	if err == nil {
		w, err = parquetfile.NewWriter(upload, p.fileColumns(), options)
	}
	if err != nil {
		return errors.Join(err, upload.Abort(context.WithoutCancel(ctx)))
	}
	p.open = &openFile{name: name, upload: upload, writer: w}
	return nil
}

// fileColumns are the columns that the files hold.
func (p *packer) fileColumns() *arrow.Schema { return cmp.Or(p.columns, p.shape.arrow) }

// cut ends the file being written, if there is one: it is completed, opened again and checked.
func (p *packer) cut(ctx context.Context) error {
	if p.open == nil {
		return nil
	}
	f := p.open
	summary, err := f.writer.Close()
	if err != nil {
		return fmt.Errorf("writing %s: %w", f.name, err)
	}
	info, err := f.upload.Complete(ctx)
	if err != nil {
		return err
	}
	p.open = nil
	if err := p.check(ctx, f.name, summary, info); err != nil {
		return err
	}
	add := deltalog.Add{
		Path: f.name, Size: summary.Bytes, ModificationTime: p.Clock.Now().UnixMilli(), DataChange: true,
		Stats: summary.Stats.JSON(), PartitionValues: p.values,
	}
	if p.bucket != "" {
		add.Tags = map[string]string{
			deltalog.TagBucket: p.bucket,
			deltalog.TagKeyMin: base64.StdEncoding.EncodeToString(f.min),
			deltalog.TagKeyMax: base64.StdEncoding.EncodeToString(f.max),
		}
	}
	p.adds = append(p.adds, add)
	p.meter.add(Progress{BytesUploaded: summary.Bytes})
	return nil
}

// check opens a file that was just written, as any reader would, and compares it with what went in.
func (p *packer) check(ctx context.Context, name string, want parquetfile.Summary, info objstore.Info) error {
	if info.Size != want.Bytes {
		return &outputError{name, fmt.Errorf("%d bytes were written, the store holds %d", want.Bytes, info.Size)}
	}
	r, err := parquetfile.OpenReader(ctx, p.store, p.key(name), parquetfile.ReaderOptions{Mem: p.shape.mem, Size: info.Size})
	if err != nil {
		if storeFailed(err) {
			return err
		}
		return &outputError{name, err}
	}
	defer r.Close()
	if r.Rows() != want.Rows {
		return &outputError{name, fmt.Errorf("%d rows were written, its footer says %d", want.Rows, r.Rows())}
	}
	if schema.Fingerprint(r.Schema()) != schema.Fingerprint(p.fileColumns()) {
		return &outputError{name, fmt.Errorf("its schema reads back as %s", r.Schema())}
	}
	if err := r.Confirm(want.Stats); err != nil {
		return &outputError{name, err}
	}
	return nil
}

// abort throws the file being written away. It does nothing after a cut.
func (p *packer) abort(ctx context.Context) {
	if p.open == nil {
		return
	}
	f := p.open
	p.open = nil
	f.writer.Abort()
	// What an abort leaves behind is invisible, and the store's to clean up.
	_ = f.upload.Abort(context.WithoutCancel(ctx))
}

// outputError says that a file which was just written does not read back as it was written.
type outputError struct {
	path string
	err  error
}

func (e *outputError) Error() string {
	return fmt.Sprintf("%s does not read back as written, and is not committed: %v; the store or the disk is damaging data", e.path, e.err)
}

func (e *outputError) Unwrap() error { return e.err }
