package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"tidemark/internal/parquetfile"
)

// Rewriting one base file whose key range new keys fall into:
//
//  1. The file's key index says which keys each row group holds. Row groups are visited in key order.
//  2. New keys below a row group are merged among themselves.
//  3. If no new key falls into the row group, it goes to the output as it is, encoded.
//  4. Otherwise it is decoded, becomes arrival 0 of the merge until it is exhausted, and is encoded anew.
//
// Row groups are decoded ahead of the merge, on the guess that the one after a touched one is touched too; a wrong guess
// costs two batches. A file without an index, or of other columns than the table has now, is one part that is decoded.

// smallGroup: an untouched row group below this part of a full one is decoded if rows are waiting right before it, so that
// row groups that were split by new rows do not stay small for ever.
const smallGroup = 4

// part is consecutive row groups of a base file that are decoded, or copied, together.
type part struct {
	from, to    int // row groups, to exclusive
	rows        int64
	first, last []byte
	bytes       int64 // encoded; 0 if it must be decoded
}

// rewriting is a base file being rewritten.
type rewriting struct {
	*ordering
	file   baseFile
	reader *parquetfile.Reader
	blocks *blocks
	parts  []part

	feed *ahead[*block] // decodes from some row group on; nil while row groups are copied
}

func (o *ordering) rewrite(ctx context.Context, f baseFile) (err error) {
	w := &rewriting{ordering: o, file: f}
	if w.blocks, err = newBlocks(o.shape); err != nil {
		return err
	}
	if w.reader, err = o.openBase(ctx, f.add, nil); err != nil {
		return o.failedBase(f.add.Path, err)
	}
	defer w.reader.Close()
	defer w.stop()
	w.cut()
	for _, p := range w.parts {
		if err := o.merger.mergeBelow(ctx, p.first); err != nil {
			return err
		}
		if w.untouched(p) {
			err = w.copy(ctx, p)
		} else {
			err = w.merge(ctx, p)
		}
		if err != nil {
			return err
		}
	}
	o.removes = append(o.removes, f.add)
	return nil
}

// cut divides the file into parts.
func (w *rewriting) cut() {
	groups := w.reader.RowGroups()
	w.parts = nil
	for i, g := range groups {
		inOrder := g.First != nil && bytes.Compare(g.First, g.Last) <= 0 && (i == 0 || bytes.Compare(groups[i-1].Last, g.First) < 0)
		if !inOrder {
			w.parts = nil
			break
		}
		w.parts = append(w.parts, part{from: i, to: i + 1, rows: g.Rows, first: g.First, last: g.Last, bytes: g.Bytes})
	}
	n := len(w.parts)
	if n == 0 || !bytes.Equal(w.parts[0].first, w.file.min) || !bytes.Equal(w.parts[n-1].last, w.file.max) || !parquetfile.Copies(w.reader, w.shape.arrow) {
		w.parts = []part{{to: len(groups), rows: w.reader.Rows(), first: w.file.min, last: w.file.max}}
	}
}

// untouched says whether a part is left as it is, once what lies below it was merged.
func (w *rewriting) untouched(p part) bool {
	if p.bytes == 0 {
		return false
	}
	if first := w.merger.first(); first != nil && bytes.Compare(first, p.last) <= 0 {
		return false
	}
	return p.bytes >= w.group/smallGroup || w.collector.rows == 0 && !w.encoding
}

// copy sends a part on as it is.
func (w *rewriting) copy(ctx context.Context, p part) error {
	w.stop()
	if err := w.collector.flush(ctx); err != nil {
		return err
	}
	raw, err := w.reader.FetchRowGroup(ctx, p.from)
	if err != nil {
		return w.failedBase(w.file.add.Path, err)
	}
	w.meter.add(Progress{RowsRead: raw.Rows()})
	w.pending, w.encoding = true, false
	return w.send(ctx, message{sorted: sorted{min: p.first, max: p.last}, raw: raw})
}

// merge merges a part with the new keys up to its last one.
func (w *rewriting) merge(ctx context.Context, p part) error {
	if w.feed == nil {
		w.reader.Seek(p.from)
		w.blocks.started = false // the rows before were decoded in vain, or not at all
		w.feed = startAhead(ctx, []source[*block]{w.decode}, 1, (*block).release)
		w.feed.nextSource()
	}
	left := p.rows
	r := &run{arrival: 0, next: func(ctx context.Context) (*block, error) {
		b, err := w.next(ctx, p, left)
		if err == nil {
			left -= b.rows.NumRows()
		}
		return b, err
	}}
	if err := w.merger.add(ctx, r); err != nil {
		return err
	}
	if err := w.merger.mergeBelow(ctx, append(bytes.Clone(p.last), 0)); err != nil {
		return err
	}
	if r.block != nil {
		return w.misplaced(p)
	}
	return nil
}

func (w *rewriting) misplaced(p part) error {
	return w.failedBase(w.file.add.Path, fmt.Errorf("row groups %d to %d hold other keys than the file says", p.from, p.to-1))
}

// next is the next block of a part of which some rows are left. It does not look beyond the part: what comes then may not
// be needed, and so must not fail.
func (w *rewriting) next(ctx context.Context, p part, left int64) (*block, error) {
	if left == 0 {
		return nil, io.EOF
	}
	b, err := w.feed.next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return nil, w.failedBase(w.file.add.Path, fmt.Errorf("row groups %d to %d end %d rows early", p.from, p.to-1, left))
	case err != nil:
		return nil, w.failedBase(w.file.add.Path, err)
	case left == p.rows && b.keys.Len() > 0 && !bytes.Equal(b.keys.At(0), p.first):
		b.release()
		return nil, w.misplaced(p)
	}
	return b, nil
}

// decode is the source of blocks, from where the reader stands on.
func (w *rewriting) decode(ctx context.Context, give func(*block) error) error {
	in := &input{blocks: w.blocks, meter: w.meter, reader: w.reader}
	return in.each(ctx, give)
}

// stop ends the decoding.
func (w *rewriting) stop() {
	if w.feed != nil {
		w.feed.stop()
		w.feed = nil
	}
}
