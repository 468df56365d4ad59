package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/deltalog"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
	"tidemark/internal/table"
)

const (
	// roundsMax bounds how often an action begins again because somebody else changed the same thing meanwhile.
	roundsMax = 16
	// statePaused is the value of tidemark.state under which no unit of a table is queued.
	statePaused = "paused"
)

// Pause stops units of a table from being queued; those in the queue are taken out and turns in progress finish. Writers
// go on.
func (c *Control) Pause(ctx context.Context, name string, o Options) (Done, error) {
	t, changed, err := c.changeProperties(ctx, name, "pause", map[string]*string{deltalog.PropertyState: text(statePaused)}, o)
	switch {
	case err != nil:
		return Done{}, err
	case !changed:
		return o.done("pause", name, "", false, "Table %s is paused already.", name), nil
	}
	return o.done("pause", name, "", true, "Table %s is paused: nothing new of it is queued, turns in progress finish, and writers go on.%s",
		name, c.tell(ctx, t, o)), nil
}

// Resume lets a paused table be queued again.
func (c *Control) Resume(ctx context.Context, name string, o Options) (Done, error) {
	t, changed, err := c.changeProperties(ctx, name, "resume", map[string]*string{deltalog.PropertyState: nil}, o)
	switch {
	case err != nil:
		return Done{}, err
	case !changed:
		return o.done("resume", name, "", false, "Table %s is not paused.", name), nil
	}
	return o.done("resume", name, "", true, "Table %s is resumed: what is due of it is queued again.%s", name, c.tell(ctx, t, o)), nil
}

func text(s string) *string { return &s }

// changeProperties commits changes of a table's properties; nil removes one. changed is false if they stand so already.
// A dry run does everything but the commit.
func (c *Control) changeProperties(ctx context.Context, name, operation string, changes map[string]*string, o Options) (t *table.Table, changed bool, err error) {
	execution := random.ID(c.d.Random) // recognises our own commit if its answer is lost
	for range roundsMax {
		t, err = c.load(ctx, name)
		if err != nil {
			return nil, false, err
		}
		m := t.Snapshot.Metadata
		m.Configuration = maps.Clone(m.Configuration)
		for property, value := range changes {
			if value == nil {
				delete(m.Configuration, property)
			} else {
				m.Configuration[property] = *value
			}
		}
		if maps.Equal(m.Configuration, t.Snapshot.Metadata.Configuration) {
			return t, false, nil
		}
		if err := t.Snapshot.Writable(); err != nil {
			return nil, false, err
		}
		if o.DryRun {
			return t, true, nil
		}
		res, err := t.Log.Commit(ctx, deltalog.Intent{
			TableID: t.ID, Read: t.Snapshot, Metadata: &m,
			Info: deltalog.CommitInfo{Operation: "SET TBLPROPERTIES", ExecutionID: execution, Parameters: parameters(operation, changes, o)},
		})
		var again *deltalog.PlanAgainError
		if errors.As(err, &again) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if t, err = t.At(res.Snapshot); err != nil {
			return nil, false, err
		}
		return t, true, nil
	}
	return nil, false, refuse(CodeContended, "table %s: not changed: others keep committing to its description; try again", name)
}

// parameters are what the commit says of the action.
func parameters(operation string, changes map[string]*string, o Options) map[string]string {
	p := map[string]string{"action": operation}
	if o.By != "" {
		p["by"] = o.By
	}
	for name, value := range changes {
		if value == nil {
			p["unset "+name] = ""
		} else {
			p[name] = *value
		}
	}
	return p
}

// tell asks the table's owner to scan it, so that it follows at once instead of with its next scan. It returns what to
// add to the sentence.
func (c *Control) tell(ctx context.Context, t *table.Table, o Options) string {
	if o.DryRun {
		return ""
	}
	err := c.askForScan(ctx, t.Name, o)
	switch {
	case err == nil, errors.Is(err, etcd.ErrNoCluster):
		return "" // whoever starts a cluster later reads storage first
	case CodeOf(err) == CodeNoCluster:
		return " No etcd was given, so a running cluster learns it from the table's log with its next scan."
	}
	c.d.Log.Warn("could not tell the table's owner", "table", t.Name, "error", err)
	return fmt.Sprintf(" It is committed, but its owner could not be told (%v) and learns it with its next scan.", err)
}

// askForScan leaves a request for a scan. A request that stands already is put again as it is: its new revision asks for a
// scan that begins after it.
func (c *Control) askForScan(ctx context.Context, name string, o Options) error {
	cluster, err := c.cluster(ctx)
	if err != nil {
		return err
	}
	key := c.d.Keys.Requests(etcd.SlotOf(name, cluster.Slots), name)
	for range roundsMax {
		got, err := c.d.Client.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
		value, err := json.Marshal(schedule.Request{V: 1, RequestedMS: c.nowMS(), By: o.By, ScanOnly: true})
		if err != nil {
			return fmt.Errorf("encoding a request: %w", err)
		}
		revision := int64(0)
		if len(got.Kvs) > 0 {
			value, revision = got.Kvs[0].Value, got.Kvs[0].ModRevision
		}
		answer, err := etcd.Commit(ctx, c.d.Client, etcd.Txn{
			If: []clientv3.Cmp{etcd.Unchanged(key, revision)}, Then: []clientv3.Op{clientv3.OpPut(key, string(value))},
		})
		if err != nil {
			return fmt.Errorf("writing %s: %w", key, err)
		}
		if answer.Succeeded {
			return nil
		}
	}
	return refuse(CodeContended, "%s kept changing", key)
}

// listed names things in order, for a sentence.
func listed(names []string) string {
	names = slices.Sorted(slices.Values(names))
	return strings.Join(names, ", ")
}
