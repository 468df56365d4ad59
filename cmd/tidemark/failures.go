package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/observe"
	"tidemark/internal/process"
)

type failuresCommand struct {
	clusterFlags
	listFlags
	Name string `arg:"" optional:"" help:"Only this table."`
}

// Help says more than one line about the command.
func (c *failuresCommand) Help() string {
	return `What fails, what needs a person first. Of what does not, NEXT says when it is tried again by itself.`
}

func (c *failuresCommand) Run(ctx context.Context, streams process.Streams) error {
	rows, err := askAll[observe.Failure](ctx, c.clusterFlags, streams, "/failures", url.Values{"search": {c.Name}})
	if err != nil {
		return err
	}
	if c.Name != "" { // what is searched for may be a part of other names too
		rows = slices.DeleteFunc(rows, func(f observe.Failure) bool { return f.Table != c.Name })
	}
	nowMS := clock.System().Now().UnixMilli()
	err = printList(streams.Out, c.listFlags, []string{"TABLE", "SUBJECT", "CODE", "GENERATION", "ATTEMPTS", "NEXT", "ATTENTION"}, rows, func(f observe.Failure) []string {
		generation, attention := "-", "no"
		if f.Generation > 0 {
			generation = countText(f.Generation)
		}
		if f.Attention {
			attention = "yes"
		}
		return []string{f.Table, f.Subject, f.Code, generation, countText(f.Attempts), nextText(f.RetryMS - nowMS), attention}
	})
	if err != nil || c.JSON {
		return err
	}
	for _, f := range rows {
		if f.Attention {
			fmt.Fprintf(streams.Out, "\n%s, %s: %s\n  %s\n", f.Table, f.Subject, f.Message, f.Remedy)
		}
	}
	return nil
}

func nextText(ms int64) string {
	if ms <= 0 {
		return "now"
	}
	return "in " + waitText(time.Duration(ms)*time.Millisecond)
}
