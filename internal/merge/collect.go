package merge

import (
	"context"
	"errors"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/columns"
)

const (
	// batchRowsMax is the most rows that are spliced into one record: enough that the cost per batch vanishes,
	// few enough that a batch of ordinary rows stays in the processor's cache.
	batchRowsMax = 32 << 10
	// piecesMax bounds the plan of one batch. Rows that alternate between runs make one piece each.
	piecesMax = batchRowsMax
)

// piece is a range of rows of one block, as columns.Splice takes it: its source is the block's place among those pending.
type piece = columns.Range

// sorted is a record of rows in key order, with the first and the last of its keys.
type sorted struct {
	rows     arrow.Record
	min, max []byte
}

// collector gathers the ranges that a merger emits and splices them into records, column by column.
type collector struct {
	shape
	held   int64 // most bytes of blocks that the pending pieces alone may keep alive
	pieces []piece
	blocks []*block // with pending pieces
	rows   int
	kept   int64                               // bytes of blocks with pending pieces
	give   func(context.Context, sorted) error // takes the record over
}

// emit implements emitter.
func (c *collector) emit(ctx context.Context, b *block, from, to int) error {
	for from < to {
		n := min(to-from, batchRowsMax-c.rows)
		c.add(b, from, from+n)
		from += n
		if c.rows == batchRowsMax || len(c.pieces) == piecesMax || c.kept > c.held {
			if err := c.flush(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *collector) add(b *block, from, to int) {
	c.rows += to - from
	if b.place == 0 {
		b.retain()
		c.kept += b.size
		c.blocks = append(c.blocks, b)
		b.place = len(c.blocks)
	}
	p := piece{Source: int32(b.place - 1), From: int32(from), N: int32(to - from)}
	if last := len(c.pieces) - 1; last >= 0 && c.pieces[last].Source == p.Source && c.pieces[last].From+c.pieces[last].N == p.From {
		c.pieces[last].N += p.N
		return
	}
	c.pieces = append(c.pieces, p)
}

// flush splices what is pending and gives it away.
func (c *collector) flush(ctx context.Context) error {
	if len(c.pieces) == 0 {
		return nil
	}
	defer c.drop()
	sources := make([]arrow.Record, len(c.blocks))
	for i, b := range c.blocks {
		sources[i] = b.rows
	}
	return c.splice(ctx, sources, c.pieces)
}

// splice makes one record of pieces, or several when a string column would not fit into one.
func (c *collector) splice(ctx context.Context, sources []arrow.Record, pieces []piece) error {
	first, last := pieces[0], pieces[len(pieces)-1]
	s := sorted{min: c.blocks[first.Source].keys.At(int(first.From)), max: c.blocks[last.Source].keys.At(int(last.From + last.N - 1))}
	if len(pieces) == 1 {
		s.rows = sources[first.Source].NewSlice(int64(first.From), int64(first.From+first.N))
		return c.give(ctx, s)
	}
	var err error
	s.rows, err = columns.Splice(c.mem, c.arrow, sources, pieces)
	if errors.Is(err, columns.ErrTooLarge) {
		half := len(pieces) / 2
		if err := c.splice(ctx, sources, pieces[:half]); err != nil {
			return err
		}
		return c.splice(ctx, sources, pieces[half:])
	}
	if err != nil {
		return err
	}
	return c.give(ctx, s)
}

// drop forgets what is pending.
func (c *collector) drop() {
	for i, b := range c.blocks {
		b.place = 0
		b.release()
		c.blocks[i] = nil
	}
	c.pieces, c.blocks, c.rows, c.kept = c.pieces[:0], c.blocks[:0], 0, 0
}
