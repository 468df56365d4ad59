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

// Merge asks for a table to be merged now, however little is pending. Asking again while a request stands changes its
// priority only.
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
	key := c.d.Keys.Requests(etcd.SlotOf(name, cluster.Slots), name)
	for range roundsMax {
		standing, err := c.d.Client.Get(ctx, key)
		if err != nil {
			return Done{}, fmt.Errorf("asking for a merge of table %s: %w", name, err)
		}
		revision := int64(0)
		if len(standing.Kvs) > 0 {
			var was schedule.Request
			if json.Unmarshal(standing.Kvs[0].Value, &was) == nil && was.Priority == string(priority) && !was.ScanOnly {
				return o.done("merge", name, "", false, "A merge of table %s is asked for already.%s", name, note), nil
			}
			revision = standing.Kvs[0].ModRevision
		}
		sentence := fmt.Sprintf("A merge of table %s is asked for; its owner queues whatever is pending.%s", name, note)
		if o.DryRun {
			return o.done("merge", name, "", true, "%s", sentence), nil
		}
		put, err := c.putRequest(key, priority, o)
		if err != nil {
			return Done{}, err
		}
		answer, err := etcd.Commit(ctx, c.d.Client, etcd.Txn{If: []clientv3.Cmp{etcd.Unchanged(key, revision)}, Then: []clientv3.Op{put}})
		if err != nil {
			return Done{}, fmt.Errorf("asking for a merge of table %s: %w", name, err)
		}
		if answer.Succeeded {
			return o.done("merge", name, "", true, "%s", sentence), nil
		}
	}
	return Done{}, refuse(CodeContended, "the request to merge table %s kept changing; try again", name)
}

func (c *Control) putRequest(key string, priority Priority, o Options) (clientv3.Op, error) {
	value, err := json.Marshal(schedule.Request{V: 1, RequestedMS: c.nowMS(), Priority: string(priority), By: o.By})
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encoding a request: %w", err)
	}
	return clientv3.OpPut(key, string(value)), nil
}
