package parquetfile

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/objstore"
)

// Joins says whether Writer.Join takes a file: it has exactly the columns of the layout, a Writer has written it, and its
// row groups fill it from the magic number on, without a gap and in order.
func (l *Layout) Joins(r *Reader) bool {
	if l == nil || len(r.meta.RowGroups) == 0 || !writtenByUs(r.meta) || !l.taken(r) {
		return false
	}
	end := int64(len(magic))
	for i := range r.meta.RowGroups {
		spans, err := chunkSpans(r.meta.RowGroup(i))
		if err != nil {
			return false
		}
		for _, s := range spans {
			if s.start != end {
				return false
			}
			end += s.n
		}
	}
	return true
}

// Verify reads the whole file and compares its checksum. A difference is a *FileError.
func (r *Reader) Verify(ctx context.Context, xxh3 string) error { return r.source.verify(ctx, xxh3) }

// Fits says whether the row groups of another file can be numbered in this one.
func (w *Writer) Fits(r *Reader) bool { return w.groups+len(r.meta.RowGroups) <= rowGroupsMax }

// Join appends all row groups of a file that a layout of the writer's columns Joins, and that Fits, by reference: copyRange
// must append n bytes of it, from an offset on, to what the writer writes to. If that ends in [objstore.ErrNoCopy] the file
// being written is as it was. Summary has no XXH3 then, for nobody has seen all bytes.
func (w *Writer) Join(r *Reader, copyRange func(offset, n int64) error) error {
	if w.err != nil {
		return w.err
	}
	err := w.join(r, copyRange)
	if !errors.Is(err, objstore.ErrNoCopy) {
		w.err = err
	}
	return err
}

func (w *Writer) join(r *Reader, copyRange func(offset, n int64) error) error {
	flat, ok := w.file.(*flatRowGroups)
	if !ok || !sameColumns(flat.columns, r.meta) || !w.Fits(r) {
		return errors.New("a file of other columns, or of too many row groups, cannot be joined: ask Joins and Fits first")
	}
	w.endGroup()
	if err := w.contain(flat.end); err != nil {
		return err
	}
	start, n := int64(len(magic)), int64(0)
	for _, g := range r.groups {
		n += g.Bytes
	}
	if err := copyRange(start, n); err != nil {
		return err
	}
	shift := w.sink.bytes - start
	w.sink.skip(n)
	w.copied += n
	w.groups += len(r.groups)
	for i, g := range r.groups {
		err := w.contain(func() error {
			return flat.describe(r.meta, i, func(int, int64) (int64, error) { return shift, nil })
		})
		if err != nil {
			return err
		}
		w.keys.add(g.Rows, keyRange{g.First, g.Last})
		if err := w.stats.addGroup(w.schema, r.meta, i); err != nil {
			return &FileError{r.source.key, i, "", err}
		}
	}
	return nil
}

// Confirm compares what a file's footer says of nulls and bounds with statistics that were made when it was written, as far
// as both say something exact: of flat columns, and of the bounds of text nothing.
func (r *Reader) Confirm(want *Stats) error {
	for _, n := range r.nodes {
		if n.leaf < 0 {
			return nil
		}
	}
	have := newStats(r.schema, AllColumns)
	for i := range r.meta.RowGroups {
		if err := have.addGroup(r.schema, r.meta, i); err != nil {
			return err
		}
	}
	for i, c := range want.columns {
		h := have.columns[i]
		if !c.uncounted && !h.uncounted && c.nulls != h.nulls {
			return fmt.Errorf("column %q has %d nulls by its statistics, and %d by the footer", c.name, c.nulls, h.nulls)
		}
		if _, text := c.bounds.(*textBounds); text || c.bounds == nil || c.unbounded || h.unbounded {
			continue
		}
		if c.bounds.min() != h.bounds.min() || c.bounds.max() != h.bounds.max() {
			return fmt.Errorf("column %q lies between %s and %s by its statistics, and between %s and %s by the footer",
				c.name, c.bounds.min(), c.bounds.max(), h.bounds.min(), h.bounds.max())
		}
	}
	return nil
}
