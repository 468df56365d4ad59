package main

import (
	"context"
	"fmt"
	"iter"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"

	"tidemark/internal/demand"
	"tidemark/internal/demo"
	"tidemark/internal/merge"
	"tidemark/internal/process"
	"tidemark/internal/request"
	"tidemark/writer"
)

type demoCommand struct {
	placeFlags
	Rows int64  `help:"Rows to write." default:"200000" placeholder:"N"`
	Seed uint64 `help:"Which rows: equal seeds write equal rows." default:"1" placeholder:"N"`
}

// Help says more than one line about the command.
func (c *demoCommand) Help() string {
	return `Writes order events to demo/events (append) and order states to demo/orders (upsert, with deletes) with four writers,
waits until the cluster has merged all of it, reads both tables back, and compares count and checksum with what was
written. Run it once for each root: rows of an earlier run would be counted too. "tidemark dev --demo" does the same with
a cluster of its own.`
}

func (c *demoCommand) Run(ctx context.Context, streams process.Streams) error {
	p, cluster, err := c.openCluster(ctx)
	if err != nil {
		return err
	}
	defer cluster.Close()
	expected, err := demo.Run(ctx, demo.Deps{
		Config: writer.Config{Label: "demo"},
		Writer: writer.Deps{Store: p.store, Clock: p.clock, Random: p.random,
			Publisher: demand.NewPublisher(cluster.client, cluster.keys, cluster.slots, p.clock, p.random)},
	}, demo.Options{Seed: c.Seed, Rows: c.Rows})
	if err != nil {
		return err
	}
	for _, t := range expected.Tables {
		fmt.Fprintf(streams.Out, "wrote %s rows to %s\n", countText(t.Written), t.Table)
		if err := request.Wait(ctx, cluster.client, cluster.keys, p.store, t.Table, p.tableDeps(), "tidemark demo"); err != nil {
			return err
		}
	}
	return expected.Verify(streams.Out, func(name string) (iter.Seq2[arrow.Record, error], error) {
		_, rows, err := merge.Scan(ctx, merge.Deps{
			Store: p.store, Clock: p.clock, Random: p.random, Mem: memory.DefaultAllocator, Log: hclog.NewNullLogger(),
		}, name, merge.ScanOptions{})
		return rows, err
	})
}
