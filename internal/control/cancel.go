package control

import (
	"context"
	"encoding/json"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
)

// CancelRequest names an execution whose turns are to be taken away.
type CancelRequest struct {
	Execution string
	// Sequence, if not nil, is the sequence of completed work that whoever decided has seen: an execution that has
	// advanced since is left alone.
	Sequence *int64
}

// heldTurn is a turn key as it stands.
type heldTurn struct {
	table    string
	n        int
	value    ownership.TurnValue
	revision int64
}

// Cancel takes the turns of an execution away and leaves a retryable failure in their place, in one txn that compares the
// turns and the sequence of completed work. The executor notices within a heartbeat and stops. What it had committed
// stays; the rest is due again after the failure's backoff, unless the table is paused.
func (c *Control) Cancel(ctx context.Context, r CancelRequest, o Options) (Done, error) {
	if _, err := c.cluster(ctx); err != nil {
		return Done{}, err
	}
	for range roundsMax {
		turns, err := c.turnsOf(ctx, r.Execution)
		if err != nil {
			return Done{}, err
		}
		if len(turns) == 0 {
			return Done{}, refuse(CodeUnknownRun, "no execution %q holds a turn: it has ended, or never was; see `tidemark turns`", r.Execution)
		}
		name, executor := turns[0].table, turns[0].value.Executor
		txn, err := c.cancelTxn(ctx, r, turns, o)
		if err != nil {
			return Done{}, err
		}
		sentence := fmt.Sprintf("Execution %s on executor %s has lost its %d turns of table %s and stops within seconds; what it had committed stays, "+
			"and the rest is due again in a few seconds unless the table is paused.", r.Execution, executor, len(turns), name)
		if o.DryRun {
			return o.done("cancel", name, r.Execution, true, "%s", sentence), nil
		}
		answer, err := etcd.Commit(ctx, c.d.Client, txn)
		if err != nil {
			return Done{}, fmt.Errorf("cancelling execution %s: %w", r.Execution, err)
		}
		if answer.Succeeded {
			return o.done("cancel", name, r.Execution, true, "%s", sentence), nil
		}
	}
	return Done{}, refuse(CodeContended, "execution %s kept advancing while it was cancelled; try again", r.Execution)
}

// turnsOf are the turns that an execution holds.
func (c *Control) turnsOf(ctx context.Context, execution string) ([]heldTurn, error) {
	var turns []heldTurn
	_, err := etcd.ReadPages(ctx, c.d.Client, c.d.Keys.TurnsAll(), func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			t := heldTurn{revision: kv.ModRevision}
			var err error
			if t.table, t.n, err = c.d.Keys.ParseTurn(string(kv.Key)); err != nil || json.Unmarshal(kv.Value, &t.value) != nil {
				continue
			}
			if t.value.Execution == execution {
				turns = append(turns, t)
			}
		}
		return nil
	})
	return turns, err
}

// cancelTxn deletes the turns if they and the execution's progress are as they were read, and leaves one failure each.
func (c *Control) cancelTxn(ctx context.Context, r CancelRequest, turns []heldTurn, o Options) (etcd.Txn, error) {
	key := c.d.Keys.Progress(r.Execution)
	got, err := c.d.Client.Get(ctx, key)
	if err != nil {
		return etcd.Txn{}, fmt.Errorf("reading the progress of execution %s: %w", r.Execution, err)
	}
	var progress ownership.Progress
	var revision int64
	if len(got.Kvs) > 0 {
		if err := json.Unmarshal(got.Kvs[0].Value, &progress); err != nil {
			return etcd.Txn{}, fmt.Errorf("progress %s cannot be read: %w", key, err)
		}
		revision = got.Kvs[0].ModRevision
	}
	if r.Sequence != nil && progress.Seq != *r.Sequence {
		return etcd.Txn{}, refuse(CodeAdvanced, "execution %s has advanced from %d to %d meanwhile and is left alone", r.Execution, *r.Sequence, progress.Seq)
	}
	standing, err := c.outcomes(ctx, turns[0].table)
	if err != nil {
		return etcd.Txn{}, err
	}
	by := o.By
	if by == "" {
		by = "somebody"
	}
	txn := etcd.Txn{If: []clientv3.Cmp{etcd.Unchanged(key, revision)}}
	for _, t := range turns {
		was := standing[t.n]
		run := schedule.Run{
			Execution: r.Execution, Executor: t.value.Executor, Kind: schedule.KindMerge, EndedMS: c.nowMS(),
			Failure: &schedule.Failure{Code: "cancelled", Class: schedule.Retryable, Message: by + " cancelled it"},
		}
		if was.record != nil {
			run.Incarnation = was.record.Incarnation
		}
		if unit, err := schedule.ParseUnit(t.value.Unit); err == nil {
			run.Kind = unit.Kind
		}
		value, err := schedule.Next(was.record, run).Marshal()
		if err != nil {
			return etcd.Txn{}, err
		}
		turnKey, outcomeKey := c.d.Keys.Turn(t.table, t.n), c.d.Keys.Outcome(t.table, t.n)
		txn.If = append(txn.If, etcd.Unchanged(turnKey, t.revision), etcd.Unchanged(outcomeKey, was.revision))
		txn.Then = append(txn.Then, clientv3.OpDelete(turnKey), clientv3.OpPut(outcomeKey, string(value)))
	}
	return txn, nil
}
