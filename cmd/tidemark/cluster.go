package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/process"
	"tidemark/internal/schedule"
)

type turnsCommand struct {
	placeFlags
	listFlags
	watchFlags
}

// shownTurn is one execution and the turns that it holds.
type shownTurn struct {
	Execution string `json:"execution"`
	Executor  string `json:"executor"`
	Table     string `json:"table"`
	Turns     string `json:"turns"`
	Kind      string `json:"kind"`
	Stage     string `json:"stage"`
	Rows      int64  `json:"rows"`
	Bytes     int64  `json:"bytes"`
	RunningMS int64  `json:"running_ms"`
}

func (c *turnsCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	p, cluster, err := c.openCluster(ctx)
	if err != nil {
		return err
	}
	defer cluster.Close()
	return c.show(ctx, streams, signals, p.clock, func(ctx context.Context) error {
		rows, err := cluster.turns(ctx, p.clock.Now().UnixMilli())
		if err != nil {
			return err
		}
		return printList(streams.Out, c.listFlags, []string{"EXECUTION", "TABLE", "TURNS", "KIND", "EXECUTOR", "STAGE", "ROWS", "SIZE", "RUNNING"}, rows, func(t shownTurn) []string {
			return []string{t.Execution, t.Table, t.Turns, t.Kind, t.Executor, orDash(t.Stage), countText(t.Rows), bytesText(t.Bytes),
				waitText(time.Duration(t.RunningMS) * time.Millisecond)}
		})
	})
}

// turns reads the held turns, one row per execution.
func (c *cluster) turns(ctx context.Context, nowMS int64) ([]shownTurn, error) {
	var rows []shownTurn
	seen := map[string]bool{}
	_, err := etcd.ReadPages(ctx, c.client, c.keys.TurnsAll(), func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			table, _, err := c.keys.ParseTurn(string(kv.Key))
			if err != nil {
				return err
			}
			var held ownership.TurnValue
			if err := json.Unmarshal(kv.Value, &held); err != nil {
				return fmt.Errorf("turn %s is not JSON: %w", kv.Key, err)
			}
			if seen[held.Execution] {
				continue
			}
			seen[held.Execution] = true
			row := shownTurn{
				Execution: held.Execution, Executor: held.Executor, Table: table, Turns: held.Turns, RunningMS: max(nowMS-held.StartedMS, 0),
			}
			if unit, err := schedule.ParseUnit(held.Unit); err == nil {
				row.Kind = string(unit.Kind)
			}
			rows = append(rows, row)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rows, c.addProgress(ctx, rows)
}

// addProgress fills in how far each execution is.
func (c *cluster) addProgress(ctx context.Context, rows []shownTurn) error {
	progress := map[string]ownership.Progress{}
	err := readRecords(ctx, c, "progress", c.keys.ProgressAll(), c.keys.ParseProgress, func(execution string, p ownership.Progress) {
		progress[execution] = p
	})
	for i := range rows {
		p := progress[rows[i].Execution]
		rows[i].Stage, rows[i].Rows, rows[i].Bytes = p.Stage, p.Rows, p.Bytes
	}
	return err
}

type executorsCommand struct {
	placeFlags
	listFlags
	watchFlags
}

// shownExecutor is one live executor.
type shownExecutor struct {
	Executor string `json:"executor"`
	Address  string `json:"address"`
	Version  string `json:"version"`
	Slots    int    `json:"slots"`
	Memory   int64  `json:"memory"`
	Active   int    `json:"active"`
	Draining bool   `json:"draining"`
}

func (c *executorsCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	p, cluster, err := c.openCluster(ctx)
	if err != nil {
		return err
	}
	defer cluster.Close()
	return c.show(ctx, streams, signals, p.clock, func(ctx context.Context) error {
		rows, err := cluster.executors(ctx, p.clock.Now().UnixMilli())
		if err != nil {
			return err
		}
		return printList(streams.Out, c.listFlags, []string{"EXECUTOR", "ADDRESS", "VERSION", "ACTIVE", "SLOTS", "MEMORY", "STATE"}, rows, func(e shownExecutor) []string {
			state := "serving"
			if e.Draining {
				state = "draining"
			}
			return []string{e.Executor, orDash(e.Address), orDash(strings.TrimSpace(e.Version)), countText(e.Active), countText(e.Slots), bytesText(e.Memory), state}
		})
	})
}

// executors reads the live executors, and from the turns how many executions each runs.
func (c *cluster) executors(ctx context.Context, nowMS int64) ([]shownExecutor, error) {
	turns, err := c.turns(ctx, nowMS)
	if err != nil {
		return nil, err
	}
	active := map[string]int{}
	for _, t := range turns {
		active[t.Executor]++
	}
	var rows []shownExecutor
	err = readRecords(ctx, c, "executor", c.keys.Executors(), c.keys.ParseExecutor, func(name string, row shownExecutor) {
		row.Executor, row.Active = name, active[name]
		rows = append(rows, row)
	})
	return rows, err
}

// readRecords reads the records under a prefix whose keys end in a name, and gives each away with that name.
func readRecords[T any](ctx context.Context, c *cluster, kind, prefix string, parse func(key string) (string, error), give func(name string, record T)) error {
	_, err := etcd.ReadPages(ctx, c.client, prefix, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			var record T
			name, err := parse(string(kv.Key))
			if err == nil {
				err = json.Unmarshal(kv.Value, &record)
			}
			if err != nil {
				return fmt.Errorf("%s %s cannot be read: %w", kind, kv.Key, err)
			}
			give(name, record)
		}
		return nil
	})
	return err
}
