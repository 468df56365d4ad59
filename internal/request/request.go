// Package request asks a cluster to merge a table now, and waits until it is done. It is what `tidemark wait` and the demo
// do at their end.
//
// A request is a key in etcd that makes anything pending of a table due at once; the table's owner takes it away when
// nothing is pending. What is merged is read from storage, so waiting needs neither a master's word nor demand records
// that are up to date.
package request

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/schedule"
	"tidemark/internal/table"
)

// Waiting asks storage, since it is what decides, at a pace that a person does not notice and a store does not either.
const (
	pollFirst = 50 * time.Millisecond
	pollMax   = 2 * time.Second
)

// Merge leaves a request to merge a table, unless there is one; a request for a scan alone, which asks for less, gives way
// to it. by says who asks, for people. Before the first master of
// the cluster has come up there is nobody to ask: etcd.ErrNoCluster.
func Merge(ctx context.Context, kv clientv3.KV, keys etcd.Keys, name string, now time.Time, by string) error {
	cluster, err := etcd.ReadCluster(ctx, kv, keys)
	if err != nil {
		return err
	}
	key := keys.Requests(etcd.SlotOf(name, cluster.Slots), name)
	value, err := json.Marshal(schedule.Request{V: 1, RequestedMS: now.UnixMilli(), By: by})
	if err != nil {
		return fmt.Errorf("encoding a request: %w", err)
	}
	unless := etcd.Absent(key)
	for {
		answer, err := kv.Txn(ctx).If(unless).Then(clientv3.OpPut(key, string(value))).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return fmt.Errorf("asking for a merge of table %s: %w", name, err)
		}
		if answer.Succeeded {
			return nil
		}
		there := answer.Responses[0].GetResponseRange().Kvs
		if len(there) == 0 {
			unless = etcd.Absent(key) // it was taken away meanwhile
			continue
		}
		var standing schedule.Request
		if err := json.Unmarshal(there[0].Value, &standing); err == nil && !standing.ScanOnly {
			return nil
		}
		unless = etcd.Unchanged(key, there[0].ModRevision)
	}
}

// PendingError says that a wait ended before everything was merged.
type PendingError struct {
	Table   string
	Pending uint64 // generations, as last seen
	Err     error  // why the wait ended
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("%d generations of table %s are still pending: %v", e.Pending, e.Table, e.Err)
}

// Unwrap returns why the wait ended.
func (e *PendingError) Unwrap() error { return e.Err }

// Wait asks for a merge of a table and returns once nothing of it is pending. When ctx ends first, the error is a
// *PendingError.
func Wait(ctx context.Context, kv clientv3.KV, keys etcd.Keys, s objstore.Store, name string, d table.Deps, by string) error {
	var pending uint64
	ended := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return &PendingError{Table: name, Pending: pending, Err: cause}
		}
		return err
	}
	for poll := pollFirst; ; poll = min(poll*2, pollMax) {
		_, shards, err := table.Shards(ctx, s, name, d)
		if err != nil {
			return ended(err)
		}
		pending = 0
		for _, shard := range shards {
			pending += shard.Pending()
		}
		if pending == 0 {
			return nil
		}
		// Asking again is harmless, and needed if etcd was wiped meanwhile.
		if err := Merge(ctx, kv, keys, name, d.Clock.Now(), by); err != nil && !errors.Is(err, etcd.ErrNoCluster) {
			return ended(err)
		}
		if err := d.Clock.Sleep(ctx, poll); err != nil {
			return ended(err)
		}
	}
}
