package dev

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
)

// The summary on a terminal is redrawn at a pace that looks live; without one, a line now and then keeps a log short.
const (
	redrawEvery = 500 * time.Millisecond
	lineEvery   = 5 * time.Second
)

// summary adds up the demand of one table.
type summary struct {
	sealed, merged int64 // rows
	generations    uint64
	pending        uint64
	oldest         time.Duration
}

// summarize shows, until stopped, how far every table is. The function that it returns stops it and waits; it may be
// called again.
func (s *Server) summarize(ctx context.Context, redraw bool, written *atomic.Int64) (stop func()) {
	every := lineEvery
	if redraw {
		every = redrawEvery
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		began, drawn := s.clock.Mono(), 0
		for clock.Sleep(ctx, s.clock, every) == nil {
			tables, err := s.demand(ctx)
			if err != nil {
				continue // the next one will do; what is wrong with etcd is logged elsewhere
			}
			text := render(tables, s.running(), s.clock.Mono()-began, written.Load())
			if redraw && drawn > 0 {
				text = fmt.Sprintf("\x1b[%dA\x1b[J%s", drawn, text)
			}
			drawn = strings.Count(text, "\n")
			fmt.Fprint(s.options.Out, text)
		}
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// running is the number of executions of all executors.
func (s *Server) running() int {
	n := 0
	for _, e := range s.executors {
		n += e.Active()
	}
	return n
}

// demand sums the demand records by table.
func (s *Server) demand(ctx context.Context) (map[string]summary, error) {
	tables := map[string]summary{}
	nowMS := s.clock.Now().UnixMilli()
	_, err := etcd.ReadPages(ctx, s.client, s.options.Keys.DemandAll(), func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			_, name, _, err := s.options.Keys.ParseDemand(string(kv.Key))
			if err != nil {
				continue
			}
			record, err := demand.Parse(kv.Value)
			if err != nil {
				continue
			}
			tables[name] = tables[name].plus(record, nowMS)
		}
		return nil
	})
	return tables, err
}

func (t summary) plus(r demand.Record, nowMS int64) summary {
	if r.Sealed != nil {
		t.sealed += r.Sealed.Rows
		t.generations += r.Sealed.Gen
	}
	if r.Merged != nil {
		t.merged += r.Merged.Rows
	}
	pending, _ := r.Pending()
	t.pending += pending
	t.oldest = max(t.oldest, r.Age(nowMS).Wait)
	return t
}

// render writes the summary: a header and one line per table.
func render(tables map[string]summary, running int, since time.Duration, written int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%6.1f s  %d rows written, %d executions running\n", since.Seconds(), written, running)
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t := tables[name]
		fmt.Fprintf(&b, "  %-16s %10d rows sealed %10d merged   %5d generations, %4d pending, oldest %.1f s\n",
			name, t.sealed, t.merged, t.generations, t.pending, t.oldest.Seconds())
	}
	return b.String()
}
