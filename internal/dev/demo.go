package dev

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/demo"
	"tidemark/internal/etcd"
	"tidemark/internal/merge"
	"tidemark/internal/request"
	"tidemark/internal/table"
	"tidemark/writer"
)

// demoSeed makes every demo write the same rows.
const demoSeed = 1

// Demo is the load of a demo.
type Demo struct {
	Files  []string // replayed instead of generating rows
	Rows   int64    // generated with Exit
	Rate   float64  // rows a second without Exit
	Exit   bool     // end once everything is merged and verified
	Redraw bool     // the output is a terminal: the summary is redrawn in place
}

// RunDemo runs the demo's writers with a live summary. With Exit it returns once everything is merged, and verified by
// count and checksum; else it goes on until ctx ends.
func (s *Server) RunDemo(ctx context.Context, d Demo) error {
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	options := demo.Options{Seed: demoSeed, Rate: d.Rate, Files: d.Files}
	if d.Exit {
		options.Rows, options.Rate = d.Rows, 0
	}
	var sealed atomic.Int64
	options.OnProgress = func(p demo.Progress) { sealed.Store(p.Rows) }
	stopSummary := s.summarize(ctx, d.Redraw, &sealed)
	defer stopSummary()
	began := s.clock.Mono()
	expected, err := demo.Run(ctx, demo.Deps{
		Config: writer.Config{Label: "demo", Tracers: s.traces.Tracers()},
		Writer: writer.Deps{Store: s.store, Clock: s.clock, Random: s.random, Publisher: s.publisher},
	}, options)
	if err != nil {
		return err
	}
	if !d.Exit {
		<-ctx.Done() // replayed files end, the server stays up
		return context.Cause(ctx)
	}
	for _, t := range expected.Tables {
		if err := request.Wait(ctx, s.client, s.options.Keys, s.store, t.Table, s.tableDeps(), "the demo"); err != nil {
			return err
		}
	}
	stopSummary()
	return s.verify(ctx, expected, s.clock.Mono()-began)
}

func (s *Server) tableDeps() table.Deps {
	return table.Deps{Clock: s.clock, Random: s.random, Log: s.options.Log}
}

// awaitReady waits until master and executors take work, and the cluster's record is there for the writers.
func (s *Server) awaitReady(ctx context.Context) error {
	const poll = 10 * time.Millisecond
	for {
		cluster, err := etcd.ReadCluster(ctx, s.client, s.options.Keys)
		if err == nil && s.Ready() == nil {
			s.publisher = demand.NewPublisher(s.client, s.options.Keys, cluster.Slots, s.clock, s.random)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // told to stop meanwhile, which is no failure of the question
		}
		if err != nil && !errors.Is(err, etcd.ErrNoCluster) {
			return err
		}
		if err := clock.Sleep(ctx, s.clock, poll); err != nil {
			return err
		}
	}
}

// verify reads every table of the demo and compares it with what was written.
func (s *Server) verify(ctx context.Context, expected demo.Expectation, took time.Duration) error {
	if err := expected.Verify(s.options.Out, func(name string) (iter.Seq2[arrow.Record, error], error) {
		_, rows, err := merge.Scan(ctx, merge.Deps{
			Store: s.store, Clock: s.clock, Random: s.random, Mem: memory.DefaultAllocator, Log: s.options.Log,
		}, name, merge.ScanOptions{})
		return rows, err
	}); err != nil {
		return err
	}
	var written int64
	for _, t := range expected.Tables {
		written += t.Written
	}
	fmt.Fprintf(s.options.Out, "all %d rows merged %.1f s after the first was written\n", written, took.Seconds())
	return nil
}
