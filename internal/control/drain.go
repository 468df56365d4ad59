package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
)

// DrainRequest is P/drains/<executor>: while it stands, the executor of that name claims nothing.
type DrainRequest struct {
	V           int    `json:"v"`
	RequestedMS int64  `json:"requested_ms"`
	By          string `json:"by,omitempty"`
}

// Drain asks an executor to claim nothing more. What it runs it finishes, and then it stays up and idle, until Undrain,
// over restarts too.
func (c *Control) Drain(ctx context.Context, executor string, o Options) (Done, error) {
	if _, err := c.cluster(ctx); err != nil {
		return Done{}, err
	}
	key := c.d.Keys.Drain(executor)
	answer, err := c.d.Client.Txn(ctx).Then(
		clientv3.OpGet(key), clientv3.OpGet(c.d.Keys.Executor(executor), clientv3.WithCountOnly()),
	).Commit()
	if err != nil {
		return Done{}, fmt.Errorf("draining executor %s: %w", executor, err)
	}
	if len(answer.Responses[0].GetResponseRange().Kvs) > 0 {
		return o.done("drain", "", executor, false, "Executor %s is asked to drain already.", executor), nil
	}
	if answer.Responses[1].GetResponseRange().Count == 0 {
		return Done{}, c.unknownExecutor(ctx, executor)
	}
	if !o.DryRun {
		value, err := json.Marshal(DrainRequest{V: 1, RequestedMS: c.nowMS(), By: o.By})
		if err != nil {
			return Done{}, fmt.Errorf("draining executor %s: %w", executor, err)
		}
		if _, err := etcd.Commit(ctx, c.d.Client, etcd.Txn{
			If: []clientv3.Cmp{etcd.Absent(key)}, Then: []clientv3.Op{clientv3.OpPut(key, string(value))},
		}); err != nil {
			return Done{}, fmt.Errorf("draining executor %s: %w", executor, err)
		}
	}
	return o.done("drain", "", executor, true,
		"Executor %s claims nothing more and finishes what it runs; it can be stopped when `tidemark executors` shows it with nothing active.", executor), nil
}

// Undrain lets an executor claim again.
func (c *Control) Undrain(ctx context.Context, executor string, o Options) (Done, error) {
	if _, err := c.cluster(ctx); err != nil {
		return Done{}, err
	}
	key := c.d.Keys.Drain(executor)
	got, err := c.d.Client.Get(ctx, key)
	if err != nil {
		return Done{}, fmt.Errorf("undraining executor %s: %w", executor, err)
	}
	if len(got.Kvs) == 0 {
		return o.done("undrain", "", executor, false, "Executor %s was not asked to drain.", executor), nil
	}
	if !o.DryRun {
		if _, err := c.d.Client.Delete(ctx, key); err != nil {
			return Done{}, fmt.Errorf("undraining executor %s: %w", executor, err)
		}
	}
	return o.done("undrain", "", executor, true, "Executor %s claims again.", executor), nil
}

// unknownExecutor names those that are there.
func (c *Control) unknownExecutor(ctx context.Context, executor string) error {
	var names []string
	_, err := etcd.ReadPages(ctx, c.d.Client, c.d.Keys.Executors(), func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			if name, err := c.d.Keys.ParseExecutor(string(kv.Key)); err == nil {
				names = append(names, name)
			}
		}
		return nil
	}, clientv3.WithKeysOnly())
	if err != nil || len(names) == 0 {
		return refuse(CodeUnknownExecutor, "no executor %q is running, nor any other", executor)
	}
	return refuse(CodeUnknownExecutor, "no executor %q is running; there are %s", executor, strings.Join(names, ", "))
}
