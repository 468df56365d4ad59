// Command scale measures coordination at the size of a fleet, 13,400 tables with 27,000 shards, and prints one line per
// figure with its goal beside it.
//
//	make bench-scale
//	go run ./bench/scale --only claims
//
// etcd is a process of its own that does not sync to disk, and so is the master whose CPU is measured. Executors here
// claim, release and publish as the real ones do, and read and write no rows. These machines are shared and noisy: every
// section says the load when it began.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

// The size of a real fleet.
const (
	fleetTables = 13_400
	fleetShards = 27_000
)

var sections = []struct {
	name string
	run  func(context.Context, *bench) error
}{
	{"planner", planner},
	{"fold", fold},
	{"claims", claims},
	{"fleet", fleet},
}

func main() {
	only := flag.String("only", "", "one section: planner, fold, claims or fleet; all if not given")
	tables := flag.Int("tables", fleetTables, "tables of the fleet")
	seals := flag.Int("seals", 1000, "seals per second on the fleet")
	steady := flag.Duration("steady", 60*time.Second, "how long the steady state is measured")
	role := flag.String("role", "", "used by the benchmark itself: run the fleet's master over this etcd")
	profiles := flag.String("profiles", "", "directory for CPU profiles of the master")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{tables: *tables, seals: *seals, steady: *steady, profiles: *profiles}
	var err error
	if *role != "" {
		err = runMaster(ctx, *role, b.tables, *profiles)
	} else {
		err = b.run(ctx, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-scale:", err)
		os.Exit(1)
	}
}

type bench struct {
	tables, seals int
	steady        time.Duration
	profiles      string
}

func (b *bench) run(ctx context.Context, only string) error {
	found := false
	for _, s := range sections {
		if only != "" && only != s.name {
			continue
		}
		found = true
		fmt.Printf("--- %s (load %s)\n", s.name, load())
		if err := s.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if !found {
		return fmt.Errorf("there is no section %q", only)
	}
	return nil
}

// shards is the number of shards of the fleet, in proportion to its tables.
func (b *bench) shards() int { return b.tables * fleetShards / fleetTables }

// figure prints one line. goal is empty for what has none.
func figure(name, value, goal string) {
	if goal != "" {
		goal = "(goal " + goal + ")"
	}
	fmt.Printf("%-62s %-34s %s\n", name, value, goal)
}

// load is the machine's load average over a minute, as the kernel tells it.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
