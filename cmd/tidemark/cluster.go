package main

import (
	"context"
	"strings"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/observe"
	"tidemark/internal/process"
)

type turnsCommand struct {
	clusterFlags
	listFlags
	watchFlags
}

func (c *turnsCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	return c.show(ctx, streams, signals, clock.System(), func(ctx context.Context) error {
		turns, err := ask[list[observe.Turn]](ctx, c.clusterFlags, streams, access{}, "/turns")
		if err != nil {
			return err
		}
		nowMS := clock.System().Now().UnixMilli()
		header := []string{"EXECUTION", "TABLE", "TURNS", "KIND", "EXECUTOR", "STAGE", "ROWS", "SIZE", "RUNNING"}
		return printList(streams.Out, c.listFlags, header, turns.Items, func(t observe.Turn) []string {
			return []string{t.Execution, t.Table, t.Turns, t.Kind, t.Executor, orDash(t.Stage), countText(t.Rows), bytesText(t.Bytes), sinceText(t.StartedMS, nowMS)}
		})
	})
}

// sinceText writes how long ago a moment was.
func sinceText(ms, nowMS int64) string {
	return waitText(time.Duration(max(nowMS-ms, 0)) * time.Millisecond)
}

type executorsCommand struct {
	clusterFlags
	listFlags
	watchFlags
}

func (c *executorsCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	return c.show(ctx, streams, signals, clock.System(), func(ctx context.Context) error {
		executors, err := ask[list[observe.Executor]](ctx, c.clusterFlags, streams, access{}, "/executors")
		if err != nil {
			return err
		}
		header := []string{"EXECUTOR", "ADDRESS", "VERSION", "ACTIVE", "SLOTS", "MEMORY", "STATE"}
		return printList(streams.Out, c.listFlags, header, executors.Items, func(e observe.Executor) []string {
			state := "serving"
			if e.Draining {
				state = "draining"
			}
			return []string{e.Executor, orDash(e.Address), orDash(strings.TrimSpace(e.Version)), countText(e.Active), countText(e.Slots), bytesText(e.MemoryBytes), state}
		})
	})
}
