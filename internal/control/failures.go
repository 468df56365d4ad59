package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/schedule"
)

// Failure is what keeps a shard, a group or a table's maintenance from being done.
type Failure struct {
	Table      string `json:"table"`
	Subject    string `json:"subject"` // "shard a", "group 3", "the log"
	Shard      string `json:"shard,omitempty"`
	Code       string `json:"code"`
	Class      string `json:"class"`
	Message    string `json:"message"`
	Generation uint64 `json:"generation,omitempty"`
	Attempts   int    `json:"attempts"`
	FailedMS   int64  `json:"failed_ms"`
	RetryMS    int64  `json:"retry_ms"`  // when it is tried next by itself
	Attention  bool   `json:"attention"` // waiting will not cure it
	Remedy     string `json:"remedy"`
}

// Failures are all failures that hold, or those of one table, what needs attention first.
func (c *Control) Failures(ctx context.Context, name string) ([]Failure, error) {
	cluster, err := c.cluster(ctx)
	if err != nil {
		return nil, err
	}
	prefix := c.d.Keys.OutcomesAll()
	if name != "" {
		prefix = c.d.Keys.OutcomesOfTable(name)
	}
	var rows []Failure
	_, err = etcd.ReadPages(ctx, c.d.Client, prefix, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			tableName, n, err := c.d.Keys.ParseOutcome(string(kv.Key))
			if err != nil {
				continue
			}
			if out, err := schedule.ParseOutcome(kv.Value); err == nil {
				rows = append(rows, failuresOf(tableName, n, out)...)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the failures: %w", err)
	}
	if rows, err = c.standing(ctx, cluster, rows); err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b Failure) int {
		if a.Attention != b.Attention {
			if a.Attention {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Subject, b.Subject))
	})
	return rows, nil
}

func failuresOf(tableName string, n int, out schedule.Outcome) []Failure {
	var rows []Failure
	add := func(shard, subject string, f schedule.Failure) {
		rows = append(rows, Failure{
			Table: tableName, Subject: subject, Shard: shard, Code: f.Code, Class: string(f.Class), Message: f.Message, Generation: f.Generation,
			Attempts: f.Count, FailedMS: f.FailedMS, RetryMS: f.FailedMS + f.Delay().Milliseconds(), Attention: f.NeedsAttention(), Remedy: f.Remedy(),
		})
	}
	if out.Failure != nil {
		add("", turnText(n), *out.Failure)
	}
	for shard, f := range out.Shards {
		add(shard, "shard "+shard, f)
	}
	return rows
}

// standing leaves out the failures of shards whose merged mark has passed the failing generation.
func (c *Control) standing(ctx context.Context, cluster etcd.Cluster, rows []Failure) ([]Failure, error) {
	kept := rows[:0]
	for _, f := range rows {
		if f.Generation > 0 {
			key := c.d.Keys.Demand(etcd.SlotOf(f.Table, cluster.Slots), f.Table, f.Shard)
			got, err := c.d.Client.Get(ctx, key)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", key, err)
			}
			if len(got.Kvs) > 0 {
				r, err := demand.Parse(got.Kvs[0].Value)
				if err == nil && r.Merged != nil && r.Merged.Gen >= f.Generation {
					continue
				}
			}
		}
		kept = append(kept, f)
	}
	return kept, nil
}
