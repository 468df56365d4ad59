package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"

	"tidemark/internal/control"
	"tidemark/internal/process"
)

// actFlags are those of everything that changes something.
type actFlags struct {
	clusterFlags
	DryRun bool `help:"Check everything, say what would be done, and do nothing."`
	JSON   bool `name:"json" help:"Print JSON for programs instead of a sentence for people."`
}

// run does one action by the API and prints what it did.
func (f actFlags) run(ctx context.Context, streams process.Streams, what access, path string, body map[string]any) error {
	what.acts = true
	c, closeAPI, err := f.api(ctx, streams, what)
	if err != nil {
		return err
	}
	defer closeAPI()
	told := map[string]any{"dry_run": f.DryRun}
	maps.Copy(told, body)
	var done control.Done
	if err := c.Post(ctx, path, told, &done); err != nil {
		return err
	}
	if f.JSON {
		return printJSON(streams.Out, done)
	}
	fmt.Fprintln(streams.Out, done.Sentence)
	return nil
}

type mergeCommand struct {
	actFlags
	Name string `arg:"" help:"The table."`
	Low  bool   `help:"After everything else, instead of beside the merges that are due."`
}

func (c *mergeCommand) Run(ctx context.Context, streams process.Streams) error {
	priority := "normal"
	if c.Low {
		priority = string(control.PriorityLow)
	}
	return c.run(ctx, streams, access{}, ofTable(c.Name, "/merge"), map[string]any{"priority": priority})
}

type pauseCommand struct {
	actFlags
	Name string `arg:"" help:"The table."`
}

// Help says more than one line about the command.
func (c *pauseCommand) Help() string {
	return `Nothing new of the table is queued until it is resumed; turns in progress finish, and writers go on. The pause is a property
of the table, so it outlives etcd.`
}

func (c *pauseCommand) Run(ctx context.Context, streams process.Streams) error {
	return c.run(ctx, streams, access{storageFirst: true}, ofTable(c.Name, "/pause"), nil)
}

type resumeCommand struct {
	actFlags
	Name string `arg:"" help:"The table."`
}

func (c *resumeCommand) Run(ctx context.Context, streams process.Streams) error {
	return c.run(ctx, streams, access{storageFirst: true}, ofTable(c.Name, "/resume"), nil)
}

type retryCommand struct {
	actFlags
	Name  string `arg:"" help:"The table."`
	Shard string `help:"Only this shard." placeholder:"SHARD"`
}

// Help says more than one line about the command.
func (c *retryCommand) Help() string {
	return `Clears the recorded failures, so that what failed is tried at once instead of after its backoff, and asks for a merge. Do it
once the cause is gone; what fails again is recorded again.`
}

func (c *retryCommand) Run(ctx context.Context, streams process.Streams) error {
	return c.run(ctx, streams, access{}, ofTable(c.Name, "/retry"), map[string]any{"shard": c.Shard})
}

type skipCommand struct {
	actFlags
	Name       string `arg:"" help:"The table."`
	Shard      string `help:"The shard." required:"" placeholder:"SHARD"`
	Generation uint64 `help:"The generation, as the failure names it." required:"" placeholder:"N"`
	Reason     string `help:"Why, for whoever reads the table's log in a year." required:"" placeholder:"TEXT"`
}

// Help says more than one line about the command.
func (c *skipCommand) Help() string {
	return `Gives the rows of one generation up for good, so that its shard goes on with the next: a commit advances the shard's merged
mark past it, and says who did it and why. It is refused unless that generation is the one that fails, with a failure that
waiting does not cure (` + "`tidemark failures`" + ` shows it). Try to restore its file and ` + "`tidemark retry`" + ` first.`
}

func (c *skipCommand) Run(ctx context.Context, streams process.Streams) error {
	return c.run(ctx, streams, access{}, ofTable(c.Name, "/skip"), map[string]any{
		"shard": c.Shard, "generation": c.Generation, "reason": c.Reason,
	})
}

type drainCommand struct {
	actFlags
	Executor string `arg:"" help:"The executor, as \"tidemark executors\" names it."`
}

// Help says more than one line about the command.
func (c *drainCommand) Help() string {
	return `The executor claims nothing more and finishes what it runs; then it stays up and idle until ` + "`tidemark undrain`" + `, over restarts
too. A SIGTERM to its process drains it as well, and ends it.`
}

func (c *drainCommand) Run(ctx context.Context, streams process.Streams) error {
	return c.run(ctx, streams, access{}, "/executors/"+url.PathEscape(c.Executor)+"/drain", nil)
}

type undrainCommand struct {
	actFlags
	Executor string `arg:"" help:"The executor."`
}

func (c *undrainCommand) Run(ctx context.Context, streams process.Streams) error {
	return c.run(ctx, streams, access{}, "/executors/"+url.PathEscape(c.Executor)+"/undrain", nil)
}

type cancelCommand struct {
	actFlags
	Execution string `arg:"" help:"The execution, as \"tidemark turns\" names it."`
}

// Help says more than one line about the command.
func (c *cancelCommand) Help() string {
	return `Takes an execution's turns away; its executor notices within seconds and stops. What it had committed stays, and the rest is
due again in a few seconds: pause the table first if it is not to be.`
}

func (c *cancelCommand) Run(ctx context.Context, streams process.Streams) error {
	return c.run(ctx, streams, access{}, "/turns/"+url.PathEscape(c.Execution)+"/cancel", nil)
}
