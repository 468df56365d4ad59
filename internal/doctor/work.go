package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/demand"
	"tidemark/internal/observe"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
)

const (
	// overdue is how much longer than the default max_wait a unit may wait before executors count as too few.
	overdue = 2
	// longRun is how long an execution may run without being worth a note.
	longRun = time.Hour
)

func (d *doctor) nowMS() int64 { return d.Clock.Now().UnixMilli() }

// since is the time from ms to now, in seconds; clocks may differ.
func (d *doctor) since(ms int64) time.Duration {
	return time.Duration(max(d.nowMS()-ms, 0) / 1000 * int64(time.Second))
}

// queue looks for due units that nobody takes.
func (d *doctor) queue(ctx context.Context) {
	units, strange := 0, 0
	var oldest schedule.Unit
	err := d.keys(ctx, d.Keys.ReadyAll(), func(kv *mvccpb.KeyValue) {
		u, err := schedule.ParseUnit(kv.Value)
		if err != nil {
			strange++
			return
		}
		units++
		if oldest.Table == "" || u.SinceMS < oldest.SinceMS {
			oldest = u
		}
	})
	if err != nil {
		d.unread("ready queue", err)
		return
	}
	wait := time.Duration(0)
	if units > 0 {
		wait = d.since(oldest.SinceMS)
	}
	switch {
	case strange > 0:
		d.wrong("ready queue", "Masters of a newer version queue what this program and old executors cannot read: upgrade them.", "%d units cannot be read", strange)
	case wait > overdue*schedule.DefaultPolicy().MaxWait:
		d.wrong("ready queue", "Start more executors, or give them more memory; `tidemark executors` and `tidemark turns` show what they do.",
			"%d units are due, and the oldest, of table %s, has waited %v", units, oldest.Table, wait)
	case units > 0:
		d.ok("ready queue", "%d units are due; the oldest has waited %v", units, wait)
	default:
		d.ok("ready queue", "empty")
	}
}

// executions looks for ones that take long. Whether one is stuck its owner decides, by completed work alone.
func (d *doctor) executions(ctx context.Context) {
	running, long := map[string]bool{}, ""
	err := d.keys(ctx, d.Keys.TurnsAll(), func(kv *mvccpb.KeyValue) {
		var turn ownership.TurnValue
		tableName, _, err := d.Keys.ParseTurn(string(kv.Key))
		if err != nil || json.Unmarshal(kv.Value, &turn) != nil || running[turn.Execution] {
			return
		}
		running[turn.Execution] = true
		if took := d.since(turn.StartedMS); took > longRun {
			long = fmt.Sprintf("%s on executor %s, of table %s, for %v", turn.Execution, turn.Executor, tableName, took)
		}
	})
	switch {
	case err != nil:
		d.unread("executions", err)
	case long != "":
		d.note("executions", "If its rows stand still in `tidemark turns --watch 5s`, its owner revokes it after eleven minutes; `tidemark cancel` does at once.",
			"%d are running, one of them long: %s", len(running), long)
	default:
		d.ok("executions", "%d are running", len(running))
	}
}

// demand looks for shards of which nobody has said how far they are.
func (d *doctor) demand(ctx context.Context) {
	shards, unknown, strange := 0, 0, 0
	var pending uint64
	err := d.keys(ctx, d.Keys.DemandAll(), func(kv *mvccpb.KeyValue) {
		r, err := demand.Parse(kv.Value)
		if err != nil {
			strange++
			return
		}
		shards++
		if n, known := r.Pending(); known {
			pending += n
		} else {
			unknown++
		}
	})
	switch {
	case err != nil:
		d.unread("demand", err)
	case strange > 0:
		d.wrong("demand", "They are of another version of Tidemark: upgrade masters and executors.", "%d records cannot be read", strange)
	case unknown > 0:
		d.note("demand", "The owners scan their tables soon; if this stays, `tidemark explain` one of them and look at its master's log.",
			"of %d of %d shards nobody has said how far they are merged", unknown, shards)
	default:
		d.ok("demand", "%d shards, %d generations pending", shards, pending)
	}
}

// attention lists what waiting will not cure.
func (d *doctor) attention(ctx context.Context) {
	see, err := observe.Look(ctx, observe.Config{Client: d.Client, Keys: d.Keys, Store: d.Store, Clock: d.Clock, Random: d.Random})
	if err != nil {
		d.unread("failures", err)
		return
	}
	all := see.Overview()
	for _, f := range all.NeedAttention {
		d.wrong("failures", f.Remedy, "%s of table %s fails with %s, %d times in a row: %s", f.Subject, f.Table, f.Code, f.Attempts, f.Message)
	}
	switch {
	case all.Attention > len(all.NeedAttention):
		d.wrong("failures", "See `tidemark failures`.", "%d more need a person", all.Attention-len(all.NeedAttention))
	case all.Attention == 0 && all.Failures > 0:
		d.ok("failures", "%d, all of which are tried again by themselves", all.Failures)
	case all.Attention == 0:
		d.ok("failures", "none")
	}
}
