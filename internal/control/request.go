package control

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
	"tidemark/internal/schedule"
)

// Priority is how soon a manual merge is served.
type Priority string

// The priorities.
const (
	PriorityNormal Priority = ""    // beside the merges that are due by themselves
	PriorityLow    Priority = "low" // after everything else
)

// Merge asks for a table to be merged now, however little is pending. Asking again counts: the owner may be about to take
// away a request that it served before whatever has happened since, such as a skip that frees a shard.
func (c *Control) Merge(ctx context.Context, name string, priority Priority, o Options) (Done, error) {
	t, err := c.load(ctx, name)
	if err != nil {
		return Done{}, err
	}
	cluster, err := c.cluster(ctx)
	if err != nil {
		return Done{}, err
	}
	note := ""
	if t.State != "" && t.State != "active" {
		note = fmt.Sprintf(" The table is %s, so nothing happens until `tidemark resume %s`.", t.State, name)
	}
	if !o.DryRun {
		put, err := c.putRequest(c.d.Keys.Requests(etcd.SlotOf(name, cluster.Slots), name), priority, o)
		if err != nil {
			return Done{}, err
		}
		if _, err := etcd.Commit(ctx, c.d.Client, etcd.Txn{Then: []clientv3.Op{put}}); err != nil {
			return Done{}, fmt.Errorf("asking for a merge of table %s: %w", name, err)
		}
	}
	return o.done("merge", name, "", true, "A merge of table %s is asked for; its owner queues whatever is pending.%s", name, note), nil
}

func (c *Control) putRequest(key string, priority Priority, o Options) (clientv3.Op, error) {
	value, err := json.Marshal(schedule.Request{V: 1, RequestedMS: c.nowMS(), Priority: string(priority), By: o.By})
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encoding a request: %w", err)
	}
	return clientv3.OpPut(key, string(value)), nil
}
