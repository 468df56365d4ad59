package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/term"

	"tidemark/internal/clock"
	"tidemark/internal/ingest"
	"tidemark/internal/process"
	"tidemark/internal/table"
	"tidemark/writer"
)

type ingestCommand struct {
	placeFlags
	process.TraceFlags
	Name  string   `arg:"" help:"The table."`
	Files []string `arg:"" help:"Files to write into it, in this order; - is standard input." placeholder:"FILE"`

	Shards            int  `help:"Shards that an append ingest writes at once, 1 to 64; 4 if not given. An upsert table has its buckets instead." placeholder:"N"`
	RowsPerGeneration int  `help:"Rows that are sealed together; 100,000 if not given." placeholder:"N"`
	SanitizeNames     bool `help:"Replace characters that a column name cannot have by underscores, as table create does."`
}

// Help says more than one line about the command.
func (c *ingestCommand) Help() string {
	return `Formats are told by the file name or, for standard input, by the content: Parquet, CSV with a header line, JSON (an array
or one object a line), Arrow IPC. A row is safe once it is sealed; what is sealed when an ingest fails stays, and is merged.

Upsert tables: every row goes to the shard of its key's bucket. A column _op says what a row does: u (or null) puts it, d
deletes its key. Of two ingests of one upsert table at once the later one wins and the earlier one fails; run it again.`
}

func (c *ingestCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	t, err := table.Load(ctx, p.store, c.Name, p.tableDeps())
	if err != nil {
		return err
	}
	source, err := ingest.Open(ctx, ingest.Options{Sanitize: c.SanitizeNames, Table: t.Schema.Arrow()}, c.inputs(streams.In)...)
	if err != nil {
		return err
	}
	endpoints := c.publishTo(ctx)
	login, err := c.Login.Options(endpoints)
	if err != nil {
		return err
	}
	traces, err := c.Traces(ctx, "tidemark-ingest", process.DefaultID("ingest"), p.random, hclog.New(&hclog.LoggerOptions{Name: "tidemark", Output: streams.Err}))
	if err != nil {
		return err
	}
	defer traces.Close(ctx)
	began := p.clock.Mono()
	bar := newProgressBar(streams.Err, p.clock)
	// The first signal ends the ingest at once: there is nothing to drain that a second run would not do again.
	ctx, stop := process.UntilDrained(ctx, signals.Drain)
	defer stop()
	report, err := ingest.Load(ctx, ingest.Deps{
		Config: writer.Config{
			Etcd: endpoints, EtcdTLS: login.TLS, EtcdUser: login.Username, EtcdPassword: login.Password,
			Prefix: c.Keys().Prefix, Label: process.DefaultID("ingest"), Tracers: traces.Tracers(),
		},
		Writer: writer.Deps{Store: p.store, Clock: p.clock, Random: p.random},
	}, source, ingest.Plan{Table: t, Shards: c.Shards, RowsPerGeneration: c.RowsPerGeneration, OnProgress: bar.show})
	bar.end()
	err = errors.Join(err, source.Close())
	if err != nil {
		return fmt.Errorf("after %s in %s, sealed and there to stay: %w", countedText(report.Rows, "row"), countedText(report.Generations, "generation"), err)
	}
	fmt.Fprintf(streams.Out, "sealed %s in %s on %s of %s in %s\n",
		countedText(report.Rows, "row"), countedText(report.Generations, "generation"), countedText(len(report.Shards), "shard"), c.Name, waitText(p.clock.Mono()-began))
	if report.Unpublished != nil {
		fmt.Fprintf(streams.Err, "tidemark: the cluster was not told and finds the rows by its next scan: %v\n", report.Unpublished)
	}
	return nil
}

func (c *ingestCommand) inputs(stdin io.Reader) []ingest.Input {
	inputs := make([]ingest.Input, 0, len(c.Files))
	for _, file := range c.Files {
		if file == "-" {
			inputs = append(inputs, ingest.Stream("standard input", stdin))
		} else {
			inputs = append(inputs, ingest.File(file))
		}
	}
	return inputs
}

// progressBar redraws one line while standard error is a terminal, and is silent otherwise.
type progressBar struct {
	out   io.Writer
	width int // 0 when there is no terminal
	clock clock.Clock
	drawn time.Duration
}

const (
	barEvery = 100 * time.Millisecond // a person sees no more
	barCells = 30
)

func newProgressBar(out io.Writer, c clock.Clock) *progressBar {
	b := &progressBar{out: out, clock: c, drawn: -barEvery}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		b.width, _, _ = term.GetSize(int(file.Fd()))
	}
	return b
}

func (b *progressBar) show(p ingest.Progress) {
	if b.width == 0 || b.clock.Mono()-b.drawn < barEvery {
		return
	}
	b.drawn = b.clock.Mono()
	done := 0.0
	if p.BytesTotal > 0 {
		done = min(float64(p.BytesDone)/float64(p.BytesTotal), 1)
	}
	cells := int(done * barCells)
	line := fmt.Sprintf("%3.0f%% [%s%s] %s rows, %s generations", 100*done, strings.Repeat("█", cells), strings.Repeat("·", barCells-cells),
		countText(p.Rows), countText(p.Generations))
	fmt.Fprintf(b.out, "\r\x1b[K%.*s", b.width, line)
}

func (b *progressBar) end() {
	if b.width > 0 {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}
