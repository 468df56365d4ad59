package main

import (
	"context"
	"fmt"
	"net/url"

	"tidemark/internal/clock"
	"tidemark/internal/observe"
	"tidemark/internal/process"
)

type demandCommand struct {
	clusterFlags
	listFlags
	watchFlags
	Name string `arg:"" optional:"" help:"Only this table."`
}

func (c *demandCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	return c.show(ctx, streams, signals, clock.System(), func(ctx context.Context) error {
		rows, err := c.shards(ctx, streams)
		if err != nil {
			return err
		}
		nowMS := clock.System().Now().UnixMilli()
		return printList(streams.Out, c.listFlags, []string{"TABLE", "SHARD", "SEALED", "MERGED", "PENDING", "SIZE", "AGE"}, rows, func(d observe.TableShard) []string {
			pending := "unknown"
			if d.Sealed != nil && d.Merged != nil {
				pending = countText(d.PendingGenerations)
			}
			return []string{d.Table, d.Shard.Shard, markText(d.Sealed), markText(d.Merged), pending, bytesText(d.PendingBytes), ageText(d.OldestMS, d.OldestExact, nowMS)}
		})
	})
}

// shards are those of one table, or of all.
func (c *demandCommand) shards(ctx context.Context, streams process.Streams) ([]observe.TableShard, error) {
	if c.Name == "" {
		return askAll[observe.TableShard](ctx, c.clusterFlags, streams, "/shards", nil)
	}
	shards, err := askAll[observe.Shard](ctx, c.clusterFlags, streams, ofTable(c.Name, "/shards"), nil)
	rows := make([]observe.TableShard, len(shards))
	for i, s := range shards {
		rows[i] = observe.TableShard{Table: c.Name, Shard: s}
	}
	return rows, err
}

func markText(m *observe.Mark) string {
	if m == nil {
		return "unknown"
	}
	return countText(m.Generation)
}

// ageText writes how long something has waited since a moment, or at least; 0 is that nothing waits.
func ageText(oldestMS int64, exact bool, nowMS int64) string {
	switch {
	case oldestMS == 0:
		return "-"
	case !exact:
		return "over " + sinceText(oldestMS, nowMS)
	}
	return sinceText(oldestMS, nowMS)
}

type overviewCommand struct {
	clusterFlags
	listFlags
	watchFlags
}

// Help says more than one line about the command.
func (c *overviewCommand) Help() string {
	return `Are we behind, where, and why. The verdict is the worst that holds: blind (etcd cannot be followed), unowned (slots without a
master), unserved (no executor), attention (something fails that waiting will not cure), behind, keeping_up, caught_up.`
}

func (c *overviewCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	return c.show(ctx, streams, signals, clock.System(), func(ctx context.Context) error {
		o, err := ask[observe.Overview](ctx, c.clusterFlags, streams, access{}, "/overview")
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(streams.Out, o)
		}
		return printOverview(streams, o)
	})
}

func printOverview(streams process.Streams, o observe.Overview) error {
	out := streams.Out
	fmt.Fprintf(out, "%s: %s generations (%s) of %s tables pending", o.Verdict, countText(o.PendingGenerations), bytesText(o.PendingBytes), countText(o.Tables))
	if o.OldestMS > 0 {
		fmt.Fprintf(out, "; the oldest has waited %s, of %s", sinceText(o.OldestMS, o.NowMS), o.OldestTable)
	}
	fmt.Fprintf(out, "\n%d masters own %d of %d slots; %d executors run %d executions, %.0f rows/s; %d tables are behind, %d paused; %d failures, %d need a person\n",
		o.Masters, o.SlotsOwned, o.Cluster.Slots, o.Executors.Count, o.Executions, o.RowsPerSecond, o.BehindTables, o.PausedTables, o.Failures, o.Attention)
	if len(o.Behind) > 0 {
		fmt.Fprintln(out)
		if err := printTables(streams, listFlags{}, o.Behind, o.NowMS); err != nil {
			return err
		}
	}
	for _, f := range o.NeedAttention {
		fmt.Fprintf(out, "\n%s, %s: %s\n  %s\n", f.Table, f.Subject, f.Message, f.Remedy)
	}
	return nil
}

type tablesCommand struct {
	clusterFlags
	listFlags
	watchFlags
	Search string `help:"Only tables with this in their name." placeholder:"TEXT"`
	Sort   string `help:"Order: age, name, pending, bytes, rate, shards, state or last." enum:"age,name,pending,bytes,rate,shards,state,last" default:"age" placeholder:"ORDER"`
	Limit  int    `help:"Only the first so many, 1 to 500; all if not given." placeholder:"N"`
}

// Help says more than one line about the command.
func (c *tablesCommand) Help() string {
	return `The tables that a master has seen, those that have waited longest first. "tidemark table list" lists what is on storage.`
}

func (c *tablesCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	query := url.Values{"search": {c.Search}, "sort": {c.Sort}}
	if c.Sort != "name" && c.Sort != "state" {
		query.Set("desc", "true")
	}
	if c.Limit < 0 || c.Limit > observe.LimitMax {
		return process.Usagef("--limit %d: want 1 to %d", c.Limit, observe.LimitMax)
	}
	return c.show(ctx, streams, signals, clock.System(), func(ctx context.Context) error {
		var rows []observe.Table
		var err error
		if c.Limit > 0 {
			query.Set("limit", fmt.Sprint(c.Limit))
			var page observe.Page[observe.Table]
			page, err = ask[observe.Page[observe.Table]](ctx, c.clusterFlags, streams, access{}, "/tables?"+query.Encode())
			rows = page.Items
		} else {
			rows, err = askAll[observe.Table](ctx, c.clusterFlags, streams, "/tables", query)
		}
		if err != nil {
			return err
		}
		return printTables(streams, c.listFlags, rows, clock.System().Now().UnixMilli())
	})
}

func printTables(streams process.Streams, f listFlags, rows []observe.Table, nowMS int64) error {
	header := []string{"TABLE", "STATE", "PENDING", "SIZE", "AGE", "ROWS/S", "SHARDS", "RUNNING", "FAILURES", "LAST"}
	return printList(streams.Out, f, header, rows, func(t observe.Table) []string {
		last := "-"
		if t.Last != nil {
			last = fmt.Sprintf("%s %s, %s ago", t.Last.Kind, t.Last.Result, sinceText(t.Last.EndedMS, nowMS))
		}
		return []string{t.Table, t.State, countText(t.PendingGenerations), bytesText(t.PendingBytes), ageText(t.OldestMS, true, nowMS),
			fmt.Sprintf("%.0f", t.RowsPerSecond), countText(t.Shards), countText(t.Executions), countText(t.Failures), last}
	})
}

type commitsCommand struct {
	clusterFlags
	listFlags
	Name  string `arg:"" help:"The table."`
	Limit int    `help:"How many, the newest first, 1 to 100." default:"15" placeholder:"N"`
}

func (c *commitsCommand) Run(ctx context.Context, streams process.Streams) error {
	commits, err := ask[list[observe.Commit]](ctx, c.clusterFlags, streams, access{}, ofTable(c.Name, fmt.Sprintf("/commits?limit=%d", c.Limit)))
	if err != nil {
		return err
	}
	nowMS := clock.System().Now().UnixMilli()
	header := []string{"VERSION", "AGO", "OPERATION", "GENERATIONS", "ROWS", "FILES", "GONE", "SIZE", "EXECUTION"}
	return printList(streams.Out, c.listFlags, header, commits.Items, func(v observe.Commit) []string {
		return []string{fmt.Sprint(v.Version), sinceText(v.TimestampMS, nowMS), orDash(v.Operation), countText(v.Generations), countText(v.Rows),
			countText(v.FilesAdded), countText(v.FilesRemoved), bytesText(v.BytesAdded), orDash(v.Execution)}
	})
}
