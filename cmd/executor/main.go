// Command tidemark-executor runs one executor: it pulls due units from the ready queue and merges them.
package main

import (
	"context"
	"os"
	"time"

	"github.com/alecthomas/kong"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/executor"
	"tidemark/internal/process"
)

const description = `An executor of Tidemark: it pulls due units from the ready queue, merges sealed generations into their tables, and
maintains the tables. Start as many as the load needs.

SIGTERM drains: nothing new is claimed, what runs is finished, then the process exits with status 0. A second SIGTERM
cancels what runs, which loses no row.`

// cli is every flag of the binary.
type cli struct {
	Version kong.VersionFlag `help:"Print the version and exit."`
	process.ServerFlags
	process.CapacityFlags
	IdleTimeout time.Duration `help:"Give an execution up when it completes no work for this long." default:"10m" env:"TIDEMARK_IDLE_TIMEOUT" placeholder:"DURATION"`
}

func main() {
	os.Exit(process.Main(
		process.Command{Name: "tidemark-executor", Description: description, Listen: "127.0.0.1:7079"},
		&cli{}, os.Args[1:],
		process.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr},
	))
}

// Run runs the executor until it is told to stop.
func (c *cli) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	lease, err := c.LeaseFlags.Config()
	if err != nil {
		return err
	}
	budget, err := c.Budget()
	if err != nil {
		return err
	}
	server, err := c.Open(ctx, "executor", streams.Err)
	if err != nil {
		return err
	}
	defer server.Close()
	work, err := executor.New(executor.Config{
		ID: server.ID, Address: server.HTTP.Reach(), Version: process.Version, Slots: c.Slots, Memory: budget, IdleTimeout: c.IdleTimeout, Lease: lease,
	}, executor.Deps{
		Client: server.Client, Keys: server.Keys, Store: server.Store, Clock: server.Clock, Random: server.Random,
		Mem: memory.DefaultAllocator, Log: server.Log, Metrics: server.Metrics, Traces: server.Traces,
	})
	if err != nil {
		return process.Usagef("%v", err)
	}
	return c.Serve(ctx, work, server, false, signals.Drain, streams.Out, "executor "+server.ID)
}
