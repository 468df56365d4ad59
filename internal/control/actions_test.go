package control

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/deltalog"
	"tidemark/internal/etcd"
	"tidemark/internal/master"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
)

func TestAPausedTableLeavesTheQueueAtOnceAndComesBackWhenItIsResumed(t *testing.T) {
	r := newEmptyRig(t)
	r.create("orders")
	r.master()
	r.until("the cluster", func() bool { return r.count(r.keys.Cluster()) == 1 })
	r.seal("orders", "a", 20)
	r.until("a unit", func() bool { return r.count(r.keys.ReadyAll()) == 1 })

	d, err := r.Pause(t.Context(), "orders", real)
	did(t, d, err, true, "orders is paused")
	r.until("an empty queue", func() bool { return r.count(r.keys.ReadyAll()) == 0 })
	x, err := r.Explain(t.Context(), "orders")
	if err != nil || x.Shards[0].Code != schedule.CodePaused || x.Owner != "m" {
		t.Errorf("%+v, %v", x, err)
	}
	d, err = r.Pause(t.Context(), "orders", real)
	did(t, d, err, false, "paused already")

	d, err = r.Resume(t.Context(), "orders", real)
	did(t, d, err, true, "resumed")
	r.until("a unit", func() bool { return r.count(r.keys.ReadyAll()) == 1 })
	d, err = r.Resume(t.Context(), "orders", real)
	did(t, d, err, false, "not paused")
}

func TestPausingIsAnOrdinaryCommitThatNamesWho(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.dryRun(func(o Options) (Done, error) { return r.Pause(t.Context(), "orders", o) }, "orders is paused")
	if _, err := r.Pause(t.Context(), "orders", real); err != nil {
		t.Fatal(err)
	}
	now, err := r.load(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	commits, err := now.Log.Since(t.Context(), 0)
	if err != nil || len(commits) != 1 || commits[0].Info.Operation != "SET TBLPROPERTIES" || commits[0].Info.Parameters["by"] != "tester" || now.State != "paused" {
		t.Errorf("%+v, %v", commits, err)
	}
	_, err = r.Pause(t.Context(), "order", real)
	refused(t, err, "unknown_table", "did you mean orders")
}

func TestWithoutACluserStorageIsChangedAllTheSame(t *testing.T) {
	r := newEmptyRig(t)
	r.create("orders")
	d, err := r.Pause(t.Context(), "orders", real)
	did(t, d, err, true)
	_, err = r.Merge(t.Context(), "orders", PriorityNormal, real)
	refused(t, err, CodeNoCluster)
	storageOnly := New(Deps{Keys: r.keys, Store: r.store, Clock: r.d.Clock, Random: r.d.Random})
	d, err = storageOnly.Resume(t.Context(), "orders", real)
	did(t, d, err, true, "next scan")
	_, err = storageOnly.Explain(t.Context(), "orders")
	refused(t, err, CodeNoCluster)
}

func TestAPolicyIsCheckedSetLayeredAndUnset(t *testing.T) {
	r := newEmptyRig(t)
	r.create("orders")
	r.master()
	r.until("the table's record", func() bool { return r.count(r.keys.Prefix+"/tables/") == 1 })

	before := r.everything()
	_, err := r.SetPolicy(t.Context(), "orders", map[string]string{"max_wait": "soon", "min_generations": "3"}, real)
	refused(t, err, "policy_invalid", "max_wait", "soon")
	_, err = r.SetPolicy(t.Context(), DefaultPolicy, map[string]string{"no_such": "3"}, real)
	refused(t, err, "policy_invalid", "min_generations")
	if now, err := r.load(t.Context(), "orders"); err != nil || len(now.Policy) != 0 {
		t.Errorf("a refused policy left %v (%d keys before)", now.Policy, len(before))
	}
	_, err = r.SetPolicy(t.Context(), "orders", nil, real)
	refused(t, err, CodeNothingToChange)

	d, err := r.SetPolicy(t.Context(), DefaultPolicy, map[string]string{"max_wait": "5m", "min_generations": "4"}, real)
	did(t, d, err, true, "default policy", "max_wait = 5m")
	d, err = r.SetPolicy(t.Context(), "orders", map[string]string{"max_wait": "1m"}, real)
	did(t, d, err, true, "orders", "max_wait = 1m")
	d, err = r.SetPolicy(t.Context(), "orders", map[string]string{"max_wait": "1m"}, real)
	did(t, d, err, false, "already")
	r.until("the owner's copy of the table's policy", func() bool {
		got, err := r.client.Get(t.Context(), r.keys.Table(etcd.SlotOf("orders", testSlots), "orders"))
		var record master.TableRecord
		return err == nil && len(got.Kvs) == 1 && json.Unmarshal(got.Kvs[0].Value, &record) == nil && maps.Equal(record.Policy, map[string]string{"max_wait": "1m"})
	})
	values := byName(r.Policy(t.Context(), "orders"))
	if v := values["max_wait"]; v.Value != "1m0s" || v.Origin != OriginTable {
		t.Errorf("%+v", v)
	}
	if v := values["min_generations"]; v.Value != "4" || v.Origin != OriginDefault {
		t.Errorf("%+v", v)
	}
	if v := values["min_bytes"]; v.Value != "67108864" || v.Origin != OriginBuiltIn || v.Help == "" {
		t.Errorf("%+v", v)
	}

	d, err = r.UnsetPolicy(t.Context(), "orders", []string{"max_wait"}, real)
	did(t, d, err, true, "no longer sets max_wait")
	d, err = r.UnsetPolicy(t.Context(), "orders", []string{"max_wait"}, real)
	did(t, d, err, false)
	d, err = r.UnsetPolicy(t.Context(), DefaultPolicy, []string{"max_wait"}, real)
	did(t, d, err, true)
	if v := byName(r.Policy(t.Context(), "orders"))["max_wait"]; v.Value != "10m0s" || v.Origin != OriginBuiltIn {
		t.Errorf("%+v", v)
	}
	got, err := r.client.Get(t.Context(), r.keys.DefaultPolicy())
	if err != nil || len(got.Kvs) != 1 {
		t.Fatal(got, err)
	}
	if p, err := schedule.ParsePolicy(got.Kvs[0].Value); err != nil || p.MaxWait != 600*time.Second || p.MinGenerations != 4 {
		t.Errorf("etcd holds %+v, %v", p, err)
	}
}

func byName(values []PolicyValue, err error) map[string]PolicyValue {
	all := map[string]PolicyValue{}
	for _, v := range values {
		all[v.Name] = v
	}
	if err != nil {
		all["error"] = PolicyValue{Problem: err.Error()}
	}
	return all
}

func TestAPolicyChangeRunsDryAndAValueThatSomebodyElseSetWrongIsShown(t *testing.T) {
	r := newRig(t)
	tbl := r.create("orders")
	values := map[string]string{"max_wait": "1m"}
	r.dryRun(func(o Options) (Done, error) { return r.SetPolicy(t.Context(), "orders", values, o) })
	r.dryRun(func(o Options) (Done, error) { return r.SetPolicy(t.Context(), DefaultPolicy, values, o) })
	m := tbl.Snapshot.Metadata
	m.Configuration = maps.Clone(m.Configuration)
	m.Configuration[deltalog.PropertyPolicy+"max_wait"] = "whenever"
	if _, err := tbl.Log.Commit(t.Context(), deltalog.Intent{TableID: tbl.ID, Read: tbl.Snapshot, Metadata: &m, Info: deltalog.CommitInfo{Operation: "SET TBLPROPERTIES"}}); err != nil {
		t.Fatal(err)
	}
	if v := byName(r.Policy(t.Context(), "orders"))["max_wait"]; v.Value != "10m0s" || v.Origin != OriginBuiltIn || v.Problem == "" {
		t.Errorf("%+v", v)
	}
}

func TestAMergeThatIsAskedForAgainIsServedAgain(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.dryRun(func(o Options) (Done, error) { return r.Merge(t.Context(), "orders", PriorityNormal, o) })
	d, err := r.Merge(t.Context(), "orders", PriorityNormal, real)
	did(t, d, err, true, "asked for")
	first := r.request("orders").ModRevision
	d, err = r.Merge(t.Context(), "orders", PriorityNormal, real)
	did(t, d, err, true, "asked for")
	// Its owner takes away what it has served at the revision that it has seen, so what was served before stays here.
	if again := r.request("orders").ModRevision; again <= first {
		t.Errorf("the request that was there at revision %d is at %d after another", first, again)
	}
	d, err = r.Merge(t.Context(), "orders", PriorityLow, real)
	did(t, d, err, true)
	if _, err := r.Pause(t.Context(), "orders", real); err != nil {
		t.Fatal(err)
	}
	d, err = r.Merge(t.Context(), "orders", PriorityNormal, real)
	did(t, d, err, true, "resume")
	var request schedule.Request
	if json.Unmarshal(r.request("orders").Value, &request) != nil || request.By != "tester" || request.ScanOnly || request.Priority != "" {
		t.Errorf("%+v", request)
	}
	_, err = r.Merge(t.Context(), "nothing", PriorityNormal, real)
	refused(t, err, "unknown_table")
}

// data is a failure that waiting does not cure.
func data(generation uint64) schedule.Failure {
	return schedule.Failure{Code: "generation_damaged", Class: schedule.Data, Message: "it is damaged", Generation: generation, Count: 3, FailedMS: time.Now().UnixMilli()}
}

// sameGroup is another shard of a shard's group.
func sameGroup(shard string) string {
	for c := 'a'; ; c++ {
		if name := "other-" + string(c); etcd.GroupOf(name) == etcd.GroupOf(shard) {
			return name
		}
	}
}

func TestARetryClearsWhatItNamesAndAsksForAMerge(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	n, other := etcd.GroupOf("a"), sameGroup("a")
	failed := schedule.Outcome{Execution: "x", Kind: schedule.KindMerge, Result: schedule.ResultFailed, EndedMS: time.Now().UnixMilli(),
		Shards: map[string]schedule.Failure{"a": data(3), other: data(9)}}
	r.outcome("orders", n, failed)

	r.dryRun(func(o Options) (Done, error) { return r.Retry(t.Context(), "orders", "a", o) }, "shard a")
	d, err := r.Retry(t.Context(), "orders", "a", real)
	did(t, d, err, true, "shard a", "asked for")
	left, err := r.outcomes(t.Context(), "orders")
	if err != nil || len(left[n].record.Shards) != 1 || left[n].record.Shards[other].Count != 3 || !left[n].record.More {
		t.Errorf("%+v, %v", left[n].record, err)
	}
	if r.count(r.keys.RequestsOfSlot(etcd.SlotOf("orders", testSlots))) != 1 {
		t.Error("no merge is asked for")
	}
	_, err = r.Retry(t.Context(), "orders", "a", real)
	refused(t, err, CodeNothingFailed, "shard a")

	r.outcome("orders", etcd.LogTurn, schedule.Outcome{Kind: schedule.KindCleanup, Failure: &schedule.Failure{Code: "store_failed", Class: schedule.Retryable, Count: 20}})
	d, err = r.Retry(t.Context(), "orders", "", real)
	did(t, d, err, true, "shard "+other, "the log")
	_, err = r.Retry(t.Context(), "orders", "", real)
	refused(t, err, CodeNothingFailed)
}

func TestARetryDoesNotWriteUnderAnExecutionThatWouldOverwriteIt(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	n := etcd.GroupOf("a")
	r.outcome("orders", n, schedule.Outcome{Kind: schedule.KindMerge, Shards: map[string]schedule.Failure{"a": data(3)}})
	r.put(r.keys.Turn("orders", n), ownership.TurnValue{V: 1, Execution: "x1", Executor: "e1"})
	_, err := r.Retry(t.Context(), "orders", "a", real)
	refused(t, err, CodeTurnHeld, "x1", "e1", "tidemark cancel x1")

	// A turn that is given back while the retry waits lets it go on.
	waiting := New(Deps{Client: r.client, Keys: r.keys, Store: r.store, Clock: r.d.Clock.(impatient).Clock, Random: r.d.Random})
	done := make(chan error, 1)
	go func() {
		_, err := waiting.Retry(t.Context(), "orders", "a", real)
		done <- err
	}()
	if _, err := r.client.Delete(t.Context(), r.keys.Turn("orders", n)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAnExecutionIsCancelledByAComparisonOfTurnsAndSequence(t *testing.T) {
	r := newRig(t)
	unit := json.RawMessage(`{"v":1,"id":"u","kind":"merge","table":"orders","groups":[2,5]}`)
	for _, n := range []int{2, 5} {
		r.put(r.keys.Turn("orders", n), ownership.TurnValue{V: 1, Execution: "x1", Executor: "e1", Unit: unit})
	}
	r.put(r.keys.Turn("orders", 7), ownership.TurnValue{V: 1, Execution: "x2", Executor: "e1"})
	r.put(r.keys.Progress("x1"), ownership.Progress{V: 1, Seq: 41})

	seen := int64(40)
	_, err := r.Cancel(t.Context(), CancelRequest{Execution: "x1", Sequence: &seen}, real)
	refused(t, err, CodeAdvanced, "40", "41")
	_, err = r.Cancel(t.Context(), CancelRequest{Execution: "x9"}, real)
	refused(t, err, CodeUnknownRun)
	seen = 41
	r.dryRun(func(o Options) (Done, error) { return r.Cancel(t.Context(), CancelRequest{"x1", &seen}, o) }, "2 turns")
	d, err := r.Cancel(t.Context(), CancelRequest{"x1", &seen}, real)
	did(t, d, err, true, "x1", "e1", "2 turns", "orders")
	if n := r.count(r.keys.TurnsAll()); n != 1 {
		t.Errorf("%d turns are left", n)
	}
	left, err := r.outcomes(t.Context(), "orders")
	if err != nil || len(left) != 2 || left[5].record.Failure.Code != "cancelled" || left[5].record.Execution != "x1" || left[5].record.Failure.NeedsAttention() {
		t.Errorf("%+v, %v", left, err)
	}
}

func TestAnExecutorIsDrainedAndUndrained(t *testing.T) {
	r := newRig(t)
	_, err := r.Drain(t.Context(), "e1", real)
	refused(t, err, CodeUnknownExecutor, "nor any other")
	r.executor("e1")
	draining := func() bool {
		got, err := r.client.Get(t.Context(), r.keys.Executor("e1"))
		var says struct{ Draining bool }
		return err == nil && len(got.Kvs) == 1 && json.Unmarshal(got.Kvs[0].Value, &says) == nil && says.Draining
	}
	r.until("the executor", func() bool { return r.count(r.keys.Executors()) == 1 })
	_, err = r.Drain(t.Context(), "e2", real)
	refused(t, err, CodeUnknownExecutor, "there are e1")
	r.dryRun(func(o Options) (Done, error) { return r.Drain(t.Context(), "e1", o) })
	d, err := r.Drain(t.Context(), "e1", real)
	did(t, d, err, true, "e1")
	r.until("the drain", draining)
	d, err = r.Drain(t.Context(), "e1", real)
	did(t, d, err, false)
	r.dryRun(func(o Options) (Done, error) { return r.Undrain(t.Context(), "e1", o) })
	d, err = r.Undrain(t.Context(), "e1", real)
	did(t, d, err, true)
	r.until("the end of the drain", func() bool { return !draining() })
	d, err = r.Undrain(t.Context(), "e1", real)
	did(t, d, err, false)
}

func TestFailuresListWhatNeedsAPersonFirstAndForgetWhatIsMerged(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.seal("orders", "a", 3)
	r.outcome("orders", etcd.GroupOf("a"), schedule.Outcome{Kind: schedule.KindMerge, Shards: map[string]schedule.Failure{"a": data(3)}})
	r.outcome("alpha", 2, schedule.Outcome{Kind: schedule.KindMerge, Failure: &schedule.Failure{Code: "store_failed", Class: schedule.Retryable, Count: 1, FailedMS: 1000}})
	rows, err := r.failures("")
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	if f := rows[0]; f.Table != "orders" || f.Subject != "shard a" || !f.Attention || f.Attempts != 3 || f.RetryMS-f.FailedMS != time.Hour.Milliseconds() || f.Remedy == "" {
		t.Errorf("%+v", f)
	}
	if f := rows[1]; f.Table != "alpha" || f.Subject != "group 2" || f.Attention || f.RetryMS != 3000 {
		t.Errorf("%+v", f)
	}
	if rows, err := r.failures("alpha"); err != nil || len(rows) != 1 {
		t.Error(rows, err)
	}
	got, err := r.client.Get(t.Context(), r.keys.DemandAll(), clientv3.WithPrefix())
	if err != nil || len(got.Kvs) != 1 {
		t.Fatal(got, err)
	}
	var record map[string]any
	if err := json.Unmarshal(got.Kvs[0].Value, &record); err != nil {
		t.Fatal(err)
	}
	record["merged"] = record["sealed"]
	r.put(string(got.Kvs[0].Key), record)
	if rows, err := r.failures("orders"); err != nil || len(rows) != 0 {
		t.Error(rows, err)
	}
}

func TestEveryErrorHasACode(t *testing.T) {
	for _, err := range []error{etcd.ErrNoCluster, etcd.ErrNoSpace, etcd.ErrUnreachable} {
		if code := CodeOf(err); code == CodeInternal {
			t.Errorf("%v: %s", err, code)
		}
	}
	if code := CodeOf(errors.New("?")); code != CodeInternal {
		t.Error(code)
	}
}
