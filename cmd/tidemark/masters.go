package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/process"
)

type mastersCommand struct {
	placeFlags
	listFlags
	watchFlags
}

// shownMaster is one live master.
type shownMaster struct {
	Master    string `json:"master"`
	Address   string `json:"address"`
	Version   string `json:"version"`
	StartedMS int64  `json:"started_ms"`
	Slots     []int  `json:"slots"`
}

func (c *mastersCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	p, cluster, err := c.openCluster(ctx)
	if err != nil {
		return err
	}
	defer cluster.Close()
	return c.show(ctx, streams, signals, p.clock, func(ctx context.Context) error {
		rows, free, err := cluster.masters(ctx)
		if err != nil {
			return err
		}
		nowMS := p.clock.Now().UnixMilli()
		err = printList(streams.Out, c.listFlags, []string{"MASTER", "ADDRESS", "VERSION", "UP", "SLOTS"}, rows, func(m shownMaster) []string {
			return []string{m.Master, orDash(m.Address), orDash(strings.TrimSpace(m.Version)),
				waitText(time.Duration(max(nowMS-m.StartedMS, 0)) * time.Millisecond), countText(len(m.Slots))}
		})
		if err == nil && free > 0 && !c.JSON {
			fmt.Fprintf(streams.Out, "%d of %d slots have no owner: nothing new of their tables is queued\n", free, cluster.slots)
		}
		return err
	})
}

// masters reads the live masters and the slots that each owns, and how many slots nobody owns.
func (c *cluster) masters(ctx context.Context) (rows []shownMaster, free int, err error) {
	owned := map[string][]int{}
	free = c.slots
	_, err = etcd.ReadPages(ctx, c.client, c.keys.Slots(), func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			var token ownership.SlotToken
			slot, err := c.keys.ParseSlot(string(kv.Key))
			if err == nil {
				err = json.Unmarshal(kv.Value, &token)
			}
			if err != nil {
				return fmt.Errorf("slot %s cannot be read: %w", kv.Key, err)
			}
			owned[token.Owner] = append(owned[token.Owner], slot)
			free--
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	err = readRecords(ctx, c, "master", c.keys.Masters(), c.keys.ParseMaster, func(name string, row shownMaster) {
		row.Master, row.Slots = name, append([]int{}, owned[name]...)
		slices.Sort(row.Slots)
		rows = append(rows, row)
	})
	return rows, free, err
}
