package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/process"
)

type demandCommand struct {
	placeFlags
	listFlags
	watchFlags
	Name string `arg:"" optional:"" help:"Only this table."`
}

// shardDemand is one line of `tidemark demand`.
type shardDemand struct {
	Table        string       `json:"table"`
	Shard        string       `json:"shard"`
	Sealed       *demand.Mark `json:"sealed"`
	Merged       *demand.Mark `json:"merged"`
	Pending      *uint64      `json:"pending"` // null while a mark is unknown
	PendingBytes int64        `json:"pending_bytes"`
	PendingRows  int64        `json:"pending_rows"`
	AgeMS        *int64       `json:"age_ms"`    // how long the oldest pending generation has waited; null if nothing waits
	AgeExact     bool         `json:"age_exact"` // else it has waited at least that long
}

func (c *demandCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	p, cluster, err := c.openCluster(ctx)
	if err != nil {
		return err
	}
	defer cluster.Close()
	return c.show(ctx, streams, signals, p.clock, func(ctx context.Context) error {
		rows, err := cluster.demand(ctx, c.Name, p.clock.Now().UnixMilli())
		if err != nil {
			return err
		}
		return printList(streams.Out, c.listFlags, []string{"TABLE", "SHARD", "SEALED", "MERGED", "PENDING", "SIZE", "AGE"}, rows, func(d shardDemand) []string {
			return []string{d.Table, d.Shard, markText(d.Sealed), markText(d.Merged), unknownOr(d.Pending, countText), bytesText(d.PendingBytes), ageText(d)}
		})
	})
}

// demand reads the demand of one table, or of all, in order of table and shard.
func (c *cluster) demand(ctx context.Context, table string, nowMS int64) ([]shardDemand, error) {
	prefix := c.keys.DemandAll()
	if table != "" {
		prefix = c.keys.DemandOfTable(etcd.SlotOf(table, c.slots), table)
	}
	var rows []shardDemand
	_, err := etcd.ReadPages(ctx, c.client, prefix, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			_, name, shard, err := c.keys.ParseDemand(string(kv.Key))
			if err != nil {
				return err
			}
			record, err := demand.Parse(kv.Value)
			if err != nil {
				return fmt.Errorf("demand of shard %s of table %s: %w", shard, name, err)
			}
			rows = append(rows, describe(name, shard, record, nowMS))
		}
		return nil
	})
	slices.SortFunc(rows, func(a, b shardDemand) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Shard, b.Shard))
	})
	return rows, err
}

func describe(table, shard string, r demand.Record, nowMS int64) shardDemand {
	d := shardDemand{Table: table, Shard: shard, Sealed: r.Sealed, Merged: r.Merged, PendingBytes: r.PendingBytes(), PendingRows: r.PendingRows()}
	if n, known := r.Pending(); known {
		d.Pending = &n
	}
	if age := r.Age(nowMS); age.Known {
		ms := age.Wait.Milliseconds()
		d.AgeMS, d.AgeExact = &ms, age.Exact
	}
	return d
}

func markText(m *demand.Mark) string {
	if m == nil {
		return "unknown"
	}
	return countText(m.Gen)
}

func unknownOr[T any](v *T, text func(T) string) string {
	if v == nil {
		return "unknown"
	}
	return text(*v)
}

func ageText(d shardDemand) string {
	if d.AgeMS == nil {
		return "-"
	}
	text := waitText(time.Duration(*d.AgeMS) * time.Millisecond)
	if !d.AgeExact {
		return "over " + text
	}
	return text
}
