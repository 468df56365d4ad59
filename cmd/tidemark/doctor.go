package main

import (
	"context"
	"fmt"

	"tidemark/internal/doctor"
	"tidemark/internal/process"
)

type doctorCommand struct {
	placeFlags
	listFlags
}

// Help says more than one line about the command.
func (c *doctorCommand) Help() string {
	return `Looks at the root (it can be listed, its store keeps the promises that Tidemark rests on, its clock), at etcd (every member, its
space, alarms and versions), at masters and executors, and at work: what is due and not taken, and what needs a person.
Whatever is wrong comes with a remedy. The status is 1 if anything is. Nothing is changed, apart from some sixty small objects
under the root that try the store and are deleted again.`
}

func (c *doctorCommand) Run(ctx context.Context, streams process.Streams) error {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	d := doctor.Deps{Store: p.store, Keys: c.Keys(), Clock: p.clock, Random: p.random, Version: process.Version}
	d.Client, d.EtcdErr = c.dial(ctx)
	if d.EtcdErr == nil {
		defer d.Client.Close()
	}
	findings := doctor.Examine(ctx, d)
	if c.JSON {
		err = printJSON(streams.Out, findings)
	} else {
		for _, f := range findings {
			fmt.Fprintf(streams.Out, "%-5s  %s: %s\n", f.State, f.Check, f.Says)
			if f.Remedy != "" {
				fmt.Fprintf(streams.Out, "       → %s\n", f.Remedy)
			}
		}
	}
	if n := doctor.Problems(findings); n > 0 && err == nil {
		return fmt.Errorf("%d of %d checks found something wrong", n, len(findings))
	}
	return err
}
