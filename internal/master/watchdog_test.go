package master

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/deltalog"
	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
	"tidemark/internal/schedule/readyqueue"
)

// claim takes a table's ready unit for an execution, with plain puts.
func (r *rig) claim(u schedule.Unit, execution string) {
	r.t.Helper()
	value, err := json.Marshal(ownership.TurnValue{V: 1, Execution: execution, Executor: "x1", Turns: u.Groups.String(), StartedMS: 1})
	if err != nil {
		r.t.Fatal(err)
	}
	ops := []clientv3.Op{clientv3.OpDelete(readyqueue.Key(r.keys, u))}
	for n := range etcd.TurnSet(u.Groups).All() {
		ops = append(ops, clientv3.OpPut(r.keys.Turn(u.Table, n), string(value)))
	}
	if _, err := r.client.Txn(r.t.Context()).Then(ops...).Commit(); err != nil {
		r.t.Fatal(err)
	}
}

// failure waits until the group of a shard has an outcome with a failure of this code.
func (r *rig) failure(table, shard, code string) {
	r.t.Helper()
	r.until("outcome "+code, func(keys map[string]string) bool {
		return strings.Contains(keys[r.keys.Outcome(table, etcd.GroupOf(shard))], `"`+code+`"`)
	})
}

func TestATurnThatVanishesIsARetryableFailureOfItsGroup(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t", nil)
	r.seal(tbl, "a", 20)
	r.run(r.config("m1"))
	r.claim(r.ready("t", 20), "e1")
	if _, err := r.client.Delete(t.Context(), r.keys.TurnsOfTable("t"), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	// It is not queued before that is held against it, and then only after its backoff.
	keys := r.until("the outcomes or a unit", func(keys map[string]string) bool {
		return len(r.units(keys, "t")) > 0 || strings.Contains(keys[r.keys.Outcome("t", etcd.GroupOf("a"))], `"turn_vanished"`)
	})
	if units := r.units(keys, "t"); len(units) > 0 {
		t.Errorf("queued: %+v", units)
	}
	r.failure("t", "a", "turn_vanished")
	r.ready("t", 20)
}

// Invariant 10.
func TestAnExecutionThatStandsStillIsRevokedUnlessItAdvances(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t", nil)
	r.seal(tbl, "a", 20)
	m, _ := r.run(r.config("m1"))
	r.claim(r.ready("t", 20), "e1")
	progress := func(seq string) {
		if _, err := r.client.Put(t.Context(), r.keys.Progress("e1"), `{"v":1,"seq":`+seq+`}`); err != nil {
			t.Fatal(err)
		}
	}
	progress("7")
	// The mirrors are watches; wait until they show the execution where it stands.
	shown := func(seq int64) *held {
		for {
			if h := m.executions()["e1"]; h != nil && h.present && h.progress.Seq == seq && len(h.turns) == 1 {
				return h
			}
			if err := m.config.Clock.Sleep(t.Context(), time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := shown(7)
	progress("8")
	if err := m.revoke(t.Context(), before); err != errAdvanced {
		t.Fatalf("a late advance did not win: %v", err)
	}
	shown(8)
	long := m.config.Clock.Mono() - 2*(m.config.IdleTimeout+confirmation)
	seen := map[string]*watched{"e1": {seq: 7, present: true, since: long}}
	m.revokeIdle(t.Context(), seen)
	if seen["e1"].seq != 8 {
		t.Fatal("an advance does not start the time anew")
	}
	seen["e1"].since = long
	m.revokeIdle(t.Context(), seen)
	r.failure("t", "a", "revoked_idle")
	r.until("no turns", func(keys map[string]string) bool {
		for key := range keys {
			if strings.HasPrefix(key, r.keys.TurnsAll()) {
				return false
			}
		}
		return true
	})
}

// A row of the table of losses: while etcd takes only deletes it takes no progress either, and standing still says nothing.
func TestNothingIsJudgedStuckWhileEtcdIsFull(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t", nil)
	r.seal(tbl, "a", 20)
	m, _ := r.run(r.config("m1"))
	r.claim(r.ready("t", 20), "e1")
	for m.executions()["e1"] == nil { // the mirror is a watch
		if err := m.config.Clock.Sleep(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	status, err := r.client.Status(t.Context(), r.client.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		_, err := etcdserverpb.NewMaintenanceClient(r.client.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
			Action: action, MemberID: status.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE,
		})
		if err != nil {
			t.Fatal(err)
		}
		m.spaceMetrics = etcd.NewSpaceMetrics(r.client, m.config.Clock) // else the last answer holds for ten seconds
	}
	long := m.config.Clock.Mono() - 2*(m.config.IdleTimeout+confirmation)
	seen := map[string]*watched{"e1": {since: long}}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	if s := m.Status().(Status); !s.NoSpace || s.Session.State != "held" {
		t.Errorf("status: %+v", s)
	}
	m.revokeIdle(t.Context(), seen)
	alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	m.revokeIdle(t.Context(), seen) // before the execution could say how far it came meanwhile
	if held, err := r.client.Get(t.Context(), r.keys.TurnsOfTable("t"), clientv3.WithPrefix()); err != nil || len(held.Kvs) != 1 {
		t.Fatalf("its turns were revoked: %v, %v", held, err)
	}
	if seen["e1"].since == long {
		t.Error("the time during which etcd was full counts")
	}
	seen["e1"].since = long // with room, and still no progress
	m.revokeIdle(t.Context(), seen)
	r.failure("t", "a", "revoked_idle")
}

func TestADeposedMastersTransactionChangesNothing(t *testing.T) {
	r := newRig(t)
	r.create("t", nil)
	m, _ := r.run(r.config("m1"))
	slot := etcd.SlotOf("t", testSlots)
	r.until("the table's record", func(keys map[string]string) bool { return keys[r.keys.Table(slot, "t")] != "" })
	token := m.ownedSlots()[slot]
	token.Token = "that of an earlier claim"
	m.mu.Lock()
	e := m.book.tables["t"]
	m.mu.Unlock()
	unit := schedule.Unit{Kind: schedule.KindMerge, Table: "t", Groups: 1, Order: "1"}
	m.carryOut(t.Context(), e, token, schedule.Change{Put: []schedule.Unit{unit}}, 0)
	m.mu.Lock()
	deposed := m.counts.deposed
	m.mu.Unlock()
	if deposed != 1 {
		t.Errorf("deposed %d times", deposed)
	}
	if units := r.units(r.until("anything", func(map[string]string) bool { return true }), "t"); len(units) != 0 {
		t.Errorf("queued: %+v", units)
	}
}

func TestAMarkThatWentBackStopsItsShardAndIsRecorded(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t", nil)
	r.publish(tbl, r.seal(tbl, "a", 30))
	r.merged(tbl, "a", 12) // a mark that the log does not have
	m, _ := r.run(r.config("m1"))
	r.until("the recorded failure", func(keys map[string]string) bool {
		return strings.Contains(keys[r.keys.Outcome("t", etcd.GroupOf("a"))], "mark_regressed")
	})
	for stopped := false; !stopped; { // until the master has read its own record
		e, err := m.Explain("t")
		if err != nil {
			t.Fatal(err)
		}
		code := e.Shards[0].Code
		stopped = code == schedule.CodeRegressed || code == schedule.CodeBackoff
		if err := m.config.Clock.Sleep(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAServedRequestIsTakenAway(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t", nil)
	r.publish(tbl, r.seal(tbl, "a", 2))
	slot := etcd.SlotOf("t", testSlots)
	if _, err := r.client.Put(t.Context(), r.keys.Requests(slot, "t"), `{"v":1,"requested_ms":1,"by":"a test"}`); err != nil {
		t.Fatal(err)
	}
	r.run(r.config("m1"))
	if u := r.ready("t", 2); u.Reason != schedule.CodeRequested || u.By != "a test" {
		t.Errorf("%+v", u)
	}
	r.merge(tbl, "a", 2)
	r.merged(tbl, "a", 2)
	r.until("neither request nor unit", func(keys map[string]string) bool {
		return keys[r.keys.Requests(slot, "t")] == "" && len(r.units(keys, "t")) == 0
	})
}

// A change of a table's properties is noticed by the next scan, which a request brings forward.
func TestARequestForAScanOnlyBringsAPauseToEffect(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t", nil)
	r.publish(tbl, r.seal(tbl, "a", 20))
	r.run(r.config("m1"))
	r.ready("t", 20)
	snapshot, err := tbl.Log.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	metadata := snapshot.Metadata
	metadata.Configuration = maps.Clone(metadata.Configuration)
	metadata.Configuration[deltalog.PropertyState] = "paused"
	if _, err := tbl.Log.Commit(t.Context(), deltalog.Intent{TableID: tbl.ID, Read: snapshot, Metadata: &metadata,
		Info: deltalog.CommitInfo{Operation: "SET TBLPROPERTIES"}}); err != nil {
		t.Fatal(err)
	}
	request := r.keys.Requests(etcd.SlotOf("t", testSlots), "t")
	if _, err := r.client.Put(t.Context(), request, `{"v":1,"scan_only":true}`); err != nil {
		t.Fatal(err)
	}
	r.until("neither request nor unit", func(keys map[string]string) bool {
		return keys[request] == "" && len(r.units(keys, "t")) == 0
	})
}

func TestCommitsWithoutACheckpointMakeOneDue(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t", nil)
	r.seal(tbl, "a", 1)
	r.run(r.config("m1"))
	slot := etcd.SlotOf("t", testSlots)
	r.until("the table's record", func(keys map[string]string) bool { return keys[r.keys.Table(slot, "t")] != "" })
	o := schedule.Next(nil, schedule.Run{Execution: "e1", Incarnation: 1, Kind: schedule.KindMerge, Did: true, LogVersion: 12})
	value, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Put(t.Context(), r.keys.Outcome("t", 3), string(value)); err != nil {
		t.Fatal(err)
	}
	r.until("a checkpoint", func(keys map[string]string) bool {
		units := r.units(keys, "t")
		return len(units) == 1 && units[0].Kind == schedule.KindCheckpoint && units[0].Groups == schedule.Log
	})
}

func TestTheDefaultPolicyOfStorageIsCopiedAndHolds(t *testing.T) {
	r := newRig(t)
	doc, err := schedule.MarshalPolicy(map[string]string{"min_generations": "3"})
	if err != nil {
		t.Fatal(err)
	}
	if result := r.store.PutIfAbsent(t.Context(), PolicyKey, doc); result.Err != nil {
		t.Fatal(result.Err)
	}
	tbl := r.create("t", nil)
	r.publish(tbl, r.seal(tbl, "a", 4))
	r.run(r.config("m1"))
	r.ready("t", 4)
}
