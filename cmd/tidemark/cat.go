package main

import (
	"bufio"
	"context"
	"errors"
	"syscall"

	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/cat"
	"tidemark/internal/merge"
	"tidemark/internal/process"
)

// catBufferBytes gathers small writes into few system calls.
const catBufferBytes = 256 << 10

type catCommand struct {
	placeFlags
	Name    string   `arg:"" help:"The table."`
	Fresh   bool     `help:"Unite the table with what is sealed and not merged yet; of an upsert table, the newest version of each key."`
	Format  string   `help:"csv, jsonl or parquet." enum:"csv,jsonl,parquet" default:"csv" placeholder:"FORMAT"`
	Columns []string `help:"Only these columns, in this order." placeholder:"COLUMN,…"`
	Limit   int64    `help:"Only so many rows." placeholder:"N"`
}

func (c *catCommand) Run(ctx context.Context, streams process.Streams) error {
	if c.Limit < 0 {
		return process.Usagef("--limit %d: want a number of rows", c.Limit)
	}
	format, err := cat.ParseFormat(c.Format)
	if err != nil {
		return process.Usagef("%v", err)
	}
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	columns, rows, err := merge.Scan(ctx, merge.Deps{
		Store: p.store, Clock: p.clock, Random: p.random, Mem: memory.DefaultAllocator,
	}, c.Name, merge.ScanOptions{Fresh: c.Fresh, Columns: c.Columns})
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(streams.Out, catBufferBytes)
	_, err = cat.Write(ctx, out, columns, rows, cat.Options{Format: format, Limit: c.Limit})
	err = errors.Join(err, out.Flush())
	if errors.Is(err, syscall.EPIPE) {
		return nil // whoever reads has read enough, as `| head` does
	}
	return err
}
