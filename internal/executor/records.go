package executor

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
)

// previousOutcomes reads the outcome records of the claimed turns, by turn. A record that cannot be read is as if it were
// not there: it is only a memory of failures. So is one of a former life of the table, which its owner does not heed either: a
// shard that failed then is not the one of the same name that is pending now.
func (e *Executor) previousOutcomes(ctx context.Context, turn ownership.Turn, incarnation int64) (map[int]*schedule.Outcome, error) {
	previous := map[int]*schedule.Outcome{}
	prefix := e.deps.Keys.OutcomesOfTable(turn.Table)
	_, err := etcd.ReadPages(ctx, e.deps.Client, prefix, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			_, n, err := e.deps.Keys.ParseOutcome(string(kv.Key))
			if err != nil || !turn.Turns.Has(n) {
				continue
			}
			if o, err := schedule.ParseOutcome(kv.Value); err == nil && !o.Former(incarnation) {
				previous[n] = &o
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the last outcomes of table %s: %w", turn.Table, err)
	}
	return previous, nil
}

// demandOf reads the demand records of a table. A record that cannot be read says nothing about its shard, which is then
// looked at in storage. It also returns the revision that they were read at.
func (e *Executor) demandOf(ctx context.Context, table string) (map[string]demand.Record, int64, error) {
	records := map[string]demand.Record{}
	prefix := e.deps.Keys.DemandOfTable(etcd.SlotOf(table, e.slots), table)
	at, err := etcd.ReadPages(ctx, e.deps.Client, prefix, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			_, _, shard, err := e.deps.Keys.ParseDemand(string(kv.Key))
			if err != nil {
				continue
			}
			record, err := demand.Parse(kv.Value)
			if err != nil {
				record = demand.Record{}
			}
			records[shard] = record
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("reading the demand of table %s: %w", table, err)
	}
	return records, at.Revision, nil
}
