package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"

	"tidemark/internal/control"
	"tidemark/internal/process"
)

// actFlags are those of everything that changes something.
type actFlags struct {
	placeFlags
	DryRun bool `help:"Check everything, say what would be done, and do nothing."`
	JSON   bool `name:"json" help:"Print JSON for programs instead of a sentence for people."`
}

// options are those of the action, by whoever runs the command.
func (f actFlags) options() control.Options { return control.Options{DryRun: f.DryRun, By: whoami()} }

func whoami() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "tidemark"
}

// need is what of the cluster a command cannot do without.
type need bool

const (
	needsEtcd    need = true
	storageFirst need = false // what it does outlives etcd, and goes on without
)

// control opens the root and reaches etcd. The caller calls close.
func (f placeFlags) control(ctx context.Context, streams process.Streams, etcd need) (c *control.Control, close func(), err error) {
	p, err := f.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	d := control.Deps{Keys: f.Keys(), Store: p.store, Clock: p.clock, Random: p.random}
	d.Client, err = f.dial(ctx)
	switch {
	case err == nil:
		return control.New(d), func() { _ = d.Client.Close() }, nil
	case etcd == needsEtcd:
		return nil, nil, err
	case !errors.Is(err, errNoEtcd):
		fmt.Fprintf(streams.Err, "going on with storage alone: %v\n", err)
	}
	d.Client = nil
	return control.New(d), func() {}, nil
}

// run does one action and prints what it did.
func (f actFlags) run(ctx context.Context, streams process.Streams, etcd need, act func(*control.Control, control.Options) (control.Done, error)) error {
	c, closeControl, err := f.control(ctx, streams, etcd)
	if err != nil {
		return err
	}
	defer closeControl()
	done, err := act(c, f.options())
	if err != nil {
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
	priority := control.PriorityNormal
	if c.Low {
		priority = control.PriorityLow
	}
	return c.run(ctx, streams, needsEtcd, func(k *control.Control, o control.Options) (control.Done, error) {
		return k.Merge(ctx, c.Name, priority, o)
	})
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
	return c.run(ctx, streams, storageFirst, func(k *control.Control, o control.Options) (control.Done, error) {
		return k.Pause(ctx, c.Name, o)
	})
}

type resumeCommand struct {
	actFlags
	Name string `arg:"" help:"The table."`
}

func (c *resumeCommand) Run(ctx context.Context, streams process.Streams) error {
	return c.run(ctx, streams, storageFirst, func(k *control.Control, o control.Options) (control.Done, error) {
		return k.Resume(ctx, c.Name, o)
	})
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
	return c.run(ctx, streams, needsEtcd, func(k *control.Control, o control.Options) (control.Done, error) {
		return k.Retry(ctx, c.Name, c.Shard, o)
	})
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
	return c.run(ctx, streams, needsEtcd, func(k *control.Control, o control.Options) (control.Done, error) {
		return k.Skip(ctx, control.SkipRequest{Table: c.Name, Shard: c.Shard, Generation: c.Generation, Reason: c.Reason}, o)
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
	return c.run(ctx, streams, needsEtcd, func(k *control.Control, o control.Options) (control.Done, error) {
		return k.Drain(ctx, c.Executor, o)
	})
}

type undrainCommand struct {
	actFlags
	Executor string `arg:"" help:"The executor."`
}

func (c *undrainCommand) Run(ctx context.Context, streams process.Streams) error {
	return c.run(ctx, streams, needsEtcd, func(k *control.Control, o control.Options) (control.Done, error) {
		return k.Undrain(ctx, c.Executor, o)
	})
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
	return c.run(ctx, streams, needsEtcd, func(k *control.Control, o control.Options) (control.Done, error) {
		return k.Cancel(ctx, control.CancelRequest{Execution: c.Execution}, o)
	})
}
