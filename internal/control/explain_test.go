package control

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"tidemark/internal/etcd"
	"tidemark/internal/master"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
	"tidemark/internal/turnset"
)

// verdict is what of an explanation does not depend on the millisecond of the question.
func verdict(t *testing.T, e schedule.Explanation) string {
	t.Helper()
	e.WaitMS, e.Score, e.NextMS = 0, 0, 0
	for i := range e.Groups {
		e.Groups[i].Reason, e.Groups[i].UntilMS = "", 0
	}
	e.Log.Reason, e.Log.UntilMS = "", 0
	for i := range e.Shards {
		s := &e.Shards[i]
		s.AgeMS, s.Score, s.Reason, s.UntilMS = 0, 0, "", 0
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestExplainSaysWhatTheOwnerDecides goes through a table's life and compares, at each step, what is read from etcd and
// storage with what the owner has in memory.
func TestExplainSaysWhatTheOwnerDecides(t *testing.T) {
	r := newEmptyRig(t)
	r.create("orders")
	_, err := r.Explain(t.Context(), "orders")
	refused(t, err, CodeNoCluster)
	m, stop := r.master()
	r.until("the table's record", func() bool { return r.count(r.keys.Prefix+"/tables/") == 1 })
	n := etcd.GroupOf("a")

	step := func(what string, shard, group schedule.Code) Explanation {
		t.Helper()
		var x Explanation
		r.until(what, func() bool {
			own, err := m.Explain("orders")
			if err != nil || len(own.Shards) != 1 || own.Shards[0].Code != shard || groupCode(own, n) != group {
				return false
			}
			if x, err = r.Explain(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
			if got, want := verdict(t, x.Explanation), verdict(t, own); got != want {
				t.Logf("%s: explained\n%s\nthe owner says\n%s", what, got, want)
				return false // something happened between the two questions, or they differ for good
			}
			return true
		})
		return x
	}

	r.seal("orders", "a", 2)
	x := step("a tail", schedule.CodeTail, schedule.CodeTail)
	if x.Owner != "m" || len(x.Warnings) != 1 || x.Class != "" || x.Pending != 2 {
		t.Errorf("%+v", x)
	}
	if _, err := r.Merge(t.Context(), "orders", PriorityNormal, real); err != nil {
		t.Fatal(err)
	}
	step("what somebody asked for", schedule.CodeRequested, schedule.CodeRequested)
	r.seal("orders", "a", 20)
	x = step("what is due", schedule.CodeScore, schedule.CodeScore)
	if x.Class != "merge" {
		t.Errorf("%+v", x)
	}

	// An execution that is at it.
	units, err := r.client.Get(t.Context(), r.keys.TurnsAll())
	if err != nil || len(units.Kvs) != 0 {
		t.Fatal(units, err)
	}
	r.put(r.keys.Turn("orders", n), ownership.TurnValue{V: 1, Execution: "x1", Executor: "e1", StartedMS: time.Now().UnixMilli()})
	step("an execution", schedule.CodeRunning, schedule.CodeRunning)

	// It failed with a poisoned shard, and the turn is given back.
	r.outcome("orders", n, schedule.Next(nil, schedule.Run{
		Execution: "x1", Executor: "e1", Incarnation: 1, Kind: schedule.KindMerge, EndedMS: time.Now().UnixMilli(),
		Failures: []schedule.ShardFailure{{Shard: "a", Failure: schedule.Failure{Code: "generation_damaged", Class: schedule.Data, Message: "bad", Generation: 1}}},
	}))
	if _, err := r.client.Delete(t.Context(), r.keys.Turn("orders", n)); err != nil {
		t.Fatal(err)
	}
	x = step("a poisoned shard", schedule.CodeBackoff, schedule.CodeBackoff)
	if len(x.Attention) != 1 || x.Shards[0].Failure.Remedy() == "" {
		t.Errorf("%+v", x)
	}
	if _, err := r.Pause(t.Context(), "orders", real); err != nil {
		t.Fatal(err)
	}
	step("a paused table", schedule.CodePaused, schedule.CodePaused)
	stop()
	// Nobody else writes now.
	before, revision := r.everything(), r.revision()
	x, err = r.Explain(t.Context(), "orders")
	if err != nil || x.Owner != "" || len(x.Warnings) != 2 {
		t.Errorf("without a master: %+v, %v", x, err)
	}
	if now := r.revision(); now != revision || !maps.Equal(r.everything(), before) {
		t.Errorf("explaining changed something: etcd was at revision %d and is at %d", revision, now)
	}
}

// revision is etcd's.
func (r *rig) revision() int64 {
	r.t.Helper()
	got, err := r.client.Get(r.t.Context(), r.keys.Cluster())
	if err != nil {
		r.t.Fatal(err)
	}
	return got.Header.Revision
}

func groupCode(e schedule.Explanation, n int) schedule.Code {
	for _, g := range e.Groups {
		if g.Groups == turnset.Of(n) {
			return g.Code
		}
	}
	return ""
}

func TestATableThatNoMasterHasSeenIsNotExplained(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	_, err := r.Explain(t.Context(), "orders")
	refused(t, err, CodeNotSeen, "tidemark masters")
	_, err = r.Explain(t.Context(), "nothing")
	refused(t, err, "unknown_table")
	if _, err := master.Look(t.Context(), r.client, r.keys, testSlots, nil, "orders", 1); err == nil {
		t.Error("looked at a table without a record")
	}
}
