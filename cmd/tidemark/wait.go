package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tidemark/internal/process"
	"tidemark/internal/request"
	"tidemark/internal/table"
)

type waitCommand struct {
	placeFlags
	Name    string        `arg:"" help:"The table."`
	Timeout time.Duration `help:"Give up, with status 1, after this long." default:"60s" placeholder:"DURATION"`
}

// Help says more than one line about the command.
func (c *waitCommand) Help() string {
	return `Asks the cluster to merge the table now, however little is pending, and returns once every generation that is
sealed by then is merged. What is merged is read from the table's own log, not from etcd.`
}

func (c *waitCommand) Run(ctx context.Context, streams process.Streams) error {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	if _, err := table.Load(ctx, p.store, c.Name, p.tableDeps()); err != nil {
		return err
	}
	client, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err = request.Wait(ctx, client, c.Keys(), p.store, c.Name, p.tableDeps(), "tidemark wait")
	if pending := (*request.PendingError)(nil); errors.As(err, &pending) && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s generations of %s are still pending after %v; `tidemark explain %s` says why",
			countText(pending.Pending), c.Name, c.Timeout, c.Name)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "nothing is pending on %s\n", c.Name)
	return nil
}
