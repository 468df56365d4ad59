// Command tidemark is Tidemark's command line: the all-in-one servers, and everything a person does with
// tables, files and a running cluster.
package main

import (
	"os"

	"github.com/alecthomas/kong"

	"tidemark/internal/process"
)

const description = `Tidemark folds the rows that many writers seal on object storage into plain Delta Lake tables: exactly once, in order.

Start everything on this machine with "tidemark dev", then in another terminal create a table like a file, ingest the
file, and wait until it is merged:

  tidemark table create flights --like flights.parquet
  tidemark ingest flights flights.parquet
  tidemark wait flights`

// cli is every command of the binary.
type cli struct {
	Version kong.VersionFlag `help:"Print the version and exit."`

	Dev        devCommand        `cmd:"" help:"Run everything in one process: etcd, a master, executors, and a demo if wanted."`
	Standalone standaloneCommand `cmd:"" help:"Serve a root alone: everything in one process, all durable state in the root."`
	Root       rootCommand       `cmd:"" help:"Show who may serve the root, and unlock it."`
	Table      tableCommand      `cmd:"" help:"Create, list, show and drop tables."`
	Ingest     ingestCommand     `cmd:"" help:"Write files into a table: Parquet, CSV, JSON, Arrow IPC."`
	Wait       waitCommand       `cmd:"" help:"Ask for a merge and wait until nothing of a table is pending."`
	Cat        catCommand        `cmd:"" help:"Print the rows of a table."`
	Demand     demandCommand     `cmd:"" help:"List what waits to be merged, by shard."`
	Turns      turnsCommand      `cmd:"" help:"List the turns that executors hold."`
	Executors  executorsCommand  `cmd:"" help:"List the executors."`
	Demo       demoCommand       `cmd:"" help:"Write a demo's rows through a running cluster, and verify what it merges."`
	Probe      probeCommand      `cmd:"" help:"Ask servers whether they are well; for health checks."`

	operateCommands
}

func main() {
	os.Exit(process.Main(
		process.Command{Name: "tidemark", Description: description},
		&cli{}, os.Args[1:],
		process.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr},
	))
}
