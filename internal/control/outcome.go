package control

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
)

// turnWait is how long a change of an outcome record waits for the turn to be free: the release that ends it writes that
// record from what it read at its beginning. Most merges end sooner.
const turnWait = 5 * time.Second

// standing is one outcome record as it stands; the zero value is none.
type standing struct {
	record   *schedule.Outcome
	revision int64
}

// outcomes reads the outcome records of a table, by turn. One that cannot be read is an error: it must not be overwritten.
func (c *Control) outcomes(ctx context.Context, name string) (map[int]standing, error) {
	all := map[int]standing{}
	_, err := etcd.ReadPages(ctx, c.d.Client, c.d.Keys.OutcomesOfTable(name), func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			_, n, err := c.d.Keys.ParseOutcome(string(kv.Key))
			if err != nil {
				continue
			}
			record, err := schedule.ParseOutcome(kv.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", kv.Key, err)
			}
			all[n] = standing{&record, kv.ModRevision}
		}
		return nil
	})
	return all, err
}

// changeOutcome changes one outcome record between two executions. change returns false if there is nothing to change; it
// is called again when the record has changed meanwhile.
func (c *Control) changeOutcome(ctx context.Context, name string, n int, change func(schedule.Outcome) (schedule.Outcome, bool), more ...clientv3.Op) (changed bool, err error) {
	key, turnKey := c.d.Keys.Outcome(name, n), c.d.Keys.Turn(name, n)
	deadline := c.d.Clock.Mono() + turnWait
	for range roundsMax {
		answer, err := etcd.Commit(ctx, c.d.Client, etcd.Txn{Then: []clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(turnKey)}})
		if err != nil {
			return false, fmt.Errorf("reading the outcome of %s of table %s: %w", turnText(n), name, err)
		}
		was, at := schedule.Outcome{Kind: schedule.KindMerge}, int64(0)
		for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
			if was, err = schedule.ParseOutcome(kv.Value); err != nil {
				return false, fmt.Errorf("%s: %w", key, err)
			}
			at = kv.ModRevision
		}
		next, wanted := change(was)
		if !wanted {
			return false, nil
		}
		if held := answer.Responses[1].GetResponseRange().Kvs; len(held) > 0 {
			if err := c.untilFree(ctx, name, n, held[0], answer.Header.Revision, deadline); err != nil {
				return false, err
			}
			continue
		}
		value, err := next.Marshal()
		if err != nil {
			return false, fmt.Errorf("%s: %w", key, err)
		}
		answer, err = etcd.Commit(ctx, c.d.Client, etcd.Txn{
			If:   []clientv3.Cmp{etcd.Unchanged(key, at), etcd.Absent(turnKey)},
			Then: append([]clientv3.Op{clientv3.OpPut(key, string(value))}, more...),
		})
		if err != nil {
			return false, fmt.Errorf("writing the outcome of %s of table %s: %w", turnText(n), name, err)
		}
		if answer.Succeeded {
			return true, nil
		}
	}
	return false, refuse(CodeContended, "the outcome of %s of table %s kept changing; try again", turnText(n), name)
}

// untilFree waits until a held turn is given back, or the deadline on the monotonic clock.
func (c *Control) untilFree(ctx context.Context, name string, n int, held *mvccpb.KeyValue, revision int64, deadline time.Duration) error {
	fired, stop := c.d.Clock.After(max(deadline-c.d.Clock.Mono(), 0))
	defer stop()
	watching, end := context.WithCancel(ctx)
	events := c.d.Client.Watch(watching, string(held.Key), clientv3.WithRev(revision+1))
	defer func() {
		end()
		for range events { // the client closes it
		}
	}()
	for {
		select {
		case e, open := <-events:
			if !open || e.Err() != nil {
				return nil // the next look decides
			}
			for _, ev := range e.Events {
				if ev.Type == clientv3.EventTypeDelete {
					return nil
				}
			}
		case <-fired:
			var turn ownership.TurnValue
			_ = json.Unmarshal(held.Value, &turn) // names the holder, as far as it can be read
			return refuse(CodeTurnHeld, "execution %s on executor %s is working on %s of table %s; try again when it has ended, or cancel it first: `tidemark cancel %s`",
				turn.Execution, turn.Executor, turnText(n), name, turn.Execution)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func turnText(n int) string {
	if n == etcd.LogTurn {
		return "the log"
	}
	return fmt.Sprintf("group %d", n)
}
