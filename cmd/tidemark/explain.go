package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"tidemark/internal/control"
	"tidemark/internal/process"
	"tidemark/internal/schedule"
)

type explainCommand struct {
	clusterFlags
	listFlags
	Name string `arg:"" help:"The table."`
}

// Help says more than one line about the command.
func (c *explainCommand) Help() string {
	return `For each shard: what is pending, how long it has waited, its score, and the one reason why it is or is not being merged now.
The answer is made from etcd and storage by the functions that decide, and asking changes nothing.`
}

func (c *explainCommand) Run(ctx context.Context, streams process.Streams) error {
	x, err := ask[control.Explanation](ctx, c.clusterFlags, streams, access{}, ofTable(c.Name, "/explain"))
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(streams.Out, x)
	}
	return printExplanation(streams.Out, x)
}

func printExplanation(w io.Writer, x control.Explanation) error {
	class := "nothing due"
	if x.Class != "" {
		class = "class " + x.Class
	}
	fmt.Fprintf(w, "%s: %s generations (%s) count now, score %.2f, %s; slot %d is %s, %d executors serve\n",
		x.Table, countText(x.Pending), bytesText(x.Bytes), x.Score, class, x.Slot, ownerText(x.Owner), x.Executors)
	for _, warning := range x.Warnings {
		fmt.Fprintln(w, "!", warning)
	}
	fmt.Fprintln(w)
	err := printList(w, listFlags{}, []string{"SHARD", "PENDING", "SIZE", "AGE", "SCORE", "CODE", "WHY"}, x.Shards, func(s schedule.ShardExplanation) []string {
		pending, age := "unknown", "-"
		if s.Known {
			pending = countText(s.Pending)
		}
		if s.Pending > 0 {
			age = waitText(time.Duration(s.AgeMS) * time.Millisecond)
			if !s.AgeExact {
				age = "over " + age
			}
		}
		return []string{s.Shard, pending, bytesText(s.Bytes), age, fmt.Sprintf("%.2f", s.Score), string(s.Code), s.Reason}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nlog: %s: %s\n", x.Log.Code, x.Log.Reason)
	for _, g := range x.Groups {
		if f := g.Failure; f != nil {
			printFailure(w, "groups "+g.Groups.String(), *f)
		}
	}
	for _, s := range x.Shards {
		if s.Failure != nil {
			printFailure(w, "shard "+s.Shard, *s.Failure)
		}
	}
	return nil
}

func printFailure(w io.Writer, subject string, f schedule.Failure) {
	fmt.Fprintf(w, "\n%s fails with %s, %d times in a row: %s\n  %s\n", subject, f.Code, f.Count, f.Message, f.Remedy())
}

func ownerText(owner string) string {
	if owner == "" {
		return "nobody's"
	}
	return owner + "'s"
}
