// Command bench measures merges by the real executor process and prints one line per figure: throughput, the ratio to
// others doing the same job on the same files in the same run, peak memory against the budget, and the goals beside them.
//
//	make bench
//	go run ./bench --only pack-narrow,small --scale 0.1
//
// Every measurement has a process of its own. These machines are shared and noisy: compare ratios, not seconds. Without
// the readers' Python environment (make readers) there is no baseline, and the ratio is left out and said to be.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
)

// benchCase is one measurement. It prints its lines itself, with report.
type benchCase struct {
	name string
	run  func(context.Context, *bench) error
}

// cases are all measurements, in the order in which they run.
var cases = slices.Concat(packCases, joinCases, upsertCases, smallCases, scalingCases, flightsCases, []benchCase{{"latency", latency}})

func main() {
	if len(os.Args) > 1 && os.Args[1] == copyCommand {
		if err := copyFiles(os.Args[2:]); err != nil {
			fail(err)
		}
		return
	}
	b := &bench{}
	names := make([]string, len(cases))
	for i, c := range cases {
		names[i] = c.name
	}
	only := flag.String("only", "", "cases to run, with commas between; all if empty: "+strings.Join(names, ", "))
	flag.StringVar(&b.flights, "flights", "../shared/data/flights-3m.parquet", "the flights table, for the flights cases")
	flag.IntVar(&b.memoryMiB, "memory", 256, "budget of the executor in MiB")
	flag.Float64Var(&b.scale, "scale", 1, "size of the synthetic data; goals are for 1")
	flag.StringVar(&b.dir, "dir", "", "directory for the data, on a local disk; the system's for temporary files if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.runAll(ctx, *only); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// runAll runs the cases that are wanted, each in a fleet of its own.
func (b *bench) runAll(ctx context.Context, only string) error {
	for _, name := range strings.Split(only, ",") {
		if name != "" && !slices.ContainsFunc(cases, func(c benchCase) bool { return c.name == name }) {
			return fmt.Errorf("there is no case %q; see --help", name)
		}
	}
	for _, c := range cases {
		if only != "" && !slices.Contains(strings.Split(only, ","), c.name) {
			continue
		}
		if err := b.inFleet(ctx, c.run); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}
