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

// piece is a range of rows of one block.
type piece struct {
	block    *block
	from, to int
}

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
	rows   int
	kept   int64 // bytes of blocks with pending pieces
	runs   []columns.Run
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
	if last := len(c.pieces) - 1; last >= 0 && c.pieces[last].block == b {
		if c.pieces[last].to == from {
			c.pieces[last].to = to
			return
		}
	}
	if b.pieces == 0 {
		c.kept += b.size
	}
	b.pieces++
	b.retain()
	c.pieces = append(c.pieces, piece{b, from, to})
}

// flush splices what is pending and gives it away.
func (c *collector) flush(ctx context.Context) error {
	if len(c.pieces) == 0 {
		return nil
	}
	defer c.drop()
	return c.splice(ctx, c.pieces)
}

// splice makes one record of pieces, or several when a string column would not fit into one.
func (c *collector) splice(ctx context.Context, pieces []piece) error {
	first, last := pieces[0], pieces[len(pieces)-1]
	s := sorted{min: first.block.keys.At(first.from), max: last.block.keys.At(last.to - 1)}
	if len(pieces) == 1 {
		s.rows = first.block.rows.NewSlice(int64(first.from), int64(first.to))
		return c.give(ctx, s)
	}
	c.runs = c.runs[:0]
	for _, p := range pieces {
		c.runs = append(c.runs, columns.Run{Source: p.block.rows, From: p.from, N: p.to - p.from})
	}
	var err error
	s.rows, err = columns.Concat(c.mem, c.arrow, c.runs)
	if errors.Is(err, columns.ErrTooLarge) {
		half := len(pieces) / 2
		if err := c.splice(ctx, pieces[:half]); err != nil {
			return err
		}
		return c.splice(ctx, pieces[half:])
	}
	if err != nil {
		return err
	}
	return c.give(ctx, s)
}

// drop forgets what is pending.
func (c *collector) drop() {
	for i, p := range c.pieces {
		p.block.pieces = 0
		p.block.release()
		c.pieces[i] = piece{}
	}
	c.pieces, c.rows, c.kept = c.pieces[:0], 0, 0
}
