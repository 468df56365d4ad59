package control

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
	"tidemark/internal/schedule"
)

// Retry clears the failures of a table, or of one of its shards, so that they are tried at once instead of after their
// backoff, and asks for a merge. What fails again counts from one.
func (c *Control) Retry(ctx context.Context, name, shard string, o Options) (Done, error) {
	if _, err := c.load(ctx, name); err != nil {
		return Done{}, err
	}
	cluster, err := c.cluster(ctx)
	if err != nil {
		return Done{}, err
	}
	standing, err := c.outcomes(ctx, name)
	if err != nil {
		return Done{}, fmt.Errorf("reading the failures of table %s: %w", name, err)
	}
	ask, err := c.putRequest(c.d.Keys.Requests(etcd.SlotOf(name, cluster.Slots), name), PriorityNormal, o)
	if err != nil {
		return Done{}, err
	}
	var cleared []string
	for n := range etcd.LogTurn + 1 {
		was := standing[n].record
		if was == nil || shard != "" && n != etcd.GroupOf(shard) {
			continue
		}
		what := failing(*was, n, shard)
		if len(what) == 0 {
			continue
		}
		if !o.DryRun {
			changed, err := c.changeOutcome(ctx, name, n, func(now schedule.Outcome) (schedule.Outcome, bool) {
				what = failing(now, n, shard)
				return now.Retried(shard, c.nowMS())
			}, clientv3.Op(ask))
			if err != nil {
				return Done{}, err
			}
			if !changed {
				continue
			}
		}
		cleared = append(cleared, what...)
	}
	if len(cleared) == 0 {
		if shard != "" {
			return Done{}, refuse(CodeNothingFailed, "shard %s of table %s has no failure to retry; see `tidemark explain %s`", shard, name, name)
		}
		return Done{}, refuse(CodeNothingFailed, "table %s has no failure to retry; see `tidemark explain %s`", name, name)
	}
	return o.done("retry", name, shard, true, "The failures of %s of table %s are cleared, and a merge is asked for.", listed(cleared), name), nil
}

// failing names what Retried clears of a record.
func failing(o schedule.Outcome, n int, shard string) []string {
	var what []string
	if o.Failure != nil {
		what = append(what, turnText(n))
	}
	for name := range o.Shards {
		if shard == "" || name == shard {
			what = append(what, "shard "+name)
		}
	}
	slices.Sort(what)
	return what
}
