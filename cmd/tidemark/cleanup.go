package main

import (
	"context"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/maintain"
	"tidemark/internal/process"
)

type cleanupCommand struct {
	placeFlags
	listFlags
	Name   string `arg:"" help:"The table."`
	DryRun bool   `help:"List what a cleanup would delete now, and why. Executors do the cleaning; this command only looks." required:""`
}

// Help says more than one line about the command.
func (c *cleanupCommand) Help() string {
	return `Cleanup is done by executors, under the table's log turn, when it is due. This lists what one would do now: the manifests it
would shorten and the objects it would delete, each with the reason. Nothing is changed.`
}

// plannedCleanup is what `cleanup --dry-run` says.
type plannedCleanup struct {
	Table     string              `json:"table"`
	Version   int64               `json:"version"` // of the log, that the plan was made from
	Trims     []maintain.Trim     `json:"trims"`
	Deletions []maintain.Deletion `json:"deletions"`
	Skipped   []maintain.Skipped  `json:"skipped"`
	More      bool                `json:"more"` // there is more than one cleanup may delete
}

func (c *cleanupCommand) Run(ctx context.Context, streams process.Streams) error {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	plan, err := maintain.PlanCleanup(ctx, p.maintainDeps(), c.Name)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(streams.Out, plannedCleanup{
			Table: plan.Table, Version: plan.Version, Trims: orEmpty(plan.Trims), Deletions: orEmpty(plan.Deletions), Skipped: orEmpty(plan.Skipped), More: plan.More,
		})
	}
	var bytes int64
	for _, d := range plan.Deletions {
		bytes += d.Bytes
	}
	fmt.Fprintf(streams.Out, "%s at version %d: %s objects (at least %s) would be deleted, the manifests of %s shards shortened; nothing was changed\n",
		plan.Table, plan.Version, countText(len(plan.Deletions)), bytesText(bytes), countText(len(plan.Trims)))
	if plan.More {
		fmt.Fprintln(streams.Out, "the next cleanup would find more")
	}
	for _, t := range plan.Trims {
		fmt.Fprintf(streams.Out, "shorten the manifest of shard %s: %d merged generations through %d need not be listed\n", t.Shard, t.Generations, t.Through)
	}
	for _, s := range plan.Skipped {
		fmt.Fprintf(streams.Out, "leave shard %s alone: %s: %s\n", s.Shard, s.Code, s.Why)
	}
	if len(plan.Deletions) == 0 {
		return nil
	}
	fmt.Fprintln(streams.Out)
	return printList(streams.Out, c.listFlags, []string{"KIND", "SIZE", "OBJECT", "WHY"}, plan.Deletions, func(d maintain.Deletion) []string {
		return []string{string(d.Kind), bytesText(d.Bytes), d.Key, d.Why}
	})
}

func (p *place) maintainDeps() maintain.Deps {
	return maintain.Deps{Store: p.store, Clock: p.clock, Random: p.random, Log: hclog.NewNullLogger()}
}

// orEmpty makes an empty list [] in JSON.
func orEmpty[T any](rows []T) []T {
	if rows == nil {
		return []T{}
	}
	return rows
}
