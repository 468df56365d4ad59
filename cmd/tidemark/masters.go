package main

import (
	"context"
	"fmt"
	"strings"

	"tidemark/internal/clock"
	"tidemark/internal/observe"
	"tidemark/internal/process"
)

type mastersCommand struct {
	clusterFlags
	listFlags
	watchFlags
}

func (c *mastersCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	return c.show(ctx, streams, signals, clock.System(), func(ctx context.Context) error {
		api, done, err := c.api(ctx, streams, access{})
		if err != nil {
			return err
		}
		defer done()
		var masters list[observe.Master]
		var all observe.Overview
		if err := api.Get(ctx, "/masters", &masters); err != nil {
			return err
		}
		if err := api.Get(ctx, "/overview", &all); err != nil {
			return err
		}
		nowMS := clock.System().Now().UnixMilli()
		err = printList(streams.Out, c.listFlags, []string{"MASTER", "ADDRESS", "VERSION", "UP", "SLOTS"}, masters.Items, func(m observe.Master) []string {
			return []string{m.Master, orDash(m.Address), orDash(strings.TrimSpace(m.Version)), sinceText(m.StartedMS, nowMS), countText(len(m.Slots))}
		})
		if free := all.Cluster.Slots - all.SlotsOwned; err == nil && free > 0 && !c.JSON {
			fmt.Fprintf(streams.Out, "%d of %d slots have no owner: nothing new of their tables is queued\n", free, all.Cluster.Slots)
		}
		return err
	})
}
