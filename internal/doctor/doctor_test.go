package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/internal/rootlock"
	"tidemark/internal/schedule"
	"tidemark/test/etcd/etcdtest"
)

// rig is a healthy cluster of one master and one executor, as etcd and the root show it.
type rig struct {
	t *testing.T
	Deps
}

const slots = 2

func newRig(t *testing.T) *rig {
	r := &rig{t: t, Deps: Deps{
		Store: objstore.NewMemory(clock.System()), Client: etcdtest.Start(t), Keys: etcd.KeysOf("test"),
		Clock: clock.System(), Random: random.New(), Version: "1",
	}}
	r.put(r.Keys.Cluster(), etcd.Cluster{V: 1, Name: "test", ID: "id", Slots: slots})
	r.put(r.Keys.Master("m"), map[string]any{"v": 1, "version": "1"})
	for slot := range slots {
		r.put(r.Keys.Slot(slot), map[string]any{"v": 1, "owner": "m"})
	}
	r.put(r.Keys.Executor("e"), map[string]any{"v": 1, "version": "1"})
	r.lock("id")
	return r
}

func (r *rig) put(key string, value any) {
	r.t.Helper()
	body, err := json.Marshal(value)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.Client.Put(r.t.Context(), key, string(body)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) delete(key string) {
	r.t.Helper()
	if _, err := r.Client.Delete(r.t.Context(), key, clientv3.WithPrefix()); err != nil {
		r.t.Fatal(err)
	}
}

// lock writes root.json.
func (r *rig) lock(id string) {
	r.t.Helper()
	if err := r.Store.Delete(r.t.Context(), rootlock.RootKey); err != nil && !errors.Is(err, objstore.ErrNotFound) {
		r.t.Fatal(err)
	}
	record := rootlock.Record{Nonce: "n", Kind: rootlock.Cluster, Cluster: "test", ID: id}
	if res := r.Store.PutIfAbsent(r.t.Context(), rootlock.RootKey, record.Encode()); res.Err != nil {
		r.t.Fatal(res.Err)
	}
}

// finds examines and expects a finding of a state that says the words; every wrong one has a remedy.
func (r *rig) finds(check string, state State, words ...string) {
	r.t.Helper()
	findings := Examine(r.t.Context(), r.Deps)
	found := false
	for _, f := range findings {
		if f.State == Wrong && f.Remedy == "" {
			r.t.Errorf("no remedy: %+v", f)
		}
		if f.Check == check && f.State == state {
			hit := true
			for _, word := range words {
				hit = hit && strings.Contains(f.Says+f.Remedy, word)
			}
			found = found || hit
		}
	}
	if !found {
		r.t.Errorf("no finding %s %s that says %q in %+v", check, state, words, findings)
	}
	if (Problems(findings) > 0) != (state == Wrong) {
		r.t.Errorf("%d problems: %+v", Problems(findings), findings)
	}
}

func TestAHealthyClusterHasNothingWrongAndTheProbeLeavesNothing(t *testing.T) {
	r := newRig(t)
	r.finds("masters", OK, "all 2 slots")
	r.finds("versions", OK)
	for info, err := range objstore.ListAll(t.Context(), r.Store, "") {
		if err != nil || info.Key != rootlock.RootKey {
			t.Error(info.Key, err)
		}
	}
}

func TestWhatIsWrongWithTheFleetIsFound(t *testing.T) {
	r := newRig(t)
	r.put(r.Keys.Executor("old"), map[string]any{"v": 1, "version": "0"})
	r.finds("versions", Note, "0 (executor old)", "1 (master m, executor e)")
	r.delete(r.Keys.Executor("old"))
	r.put(r.Keys.Drain("gone"), map[string]any{"v": 1})
	r.finds("drains", Note, "gone", "undrain")
	r.delete(r.Keys.Drains())
	r.Version = "2"
	r.finds("versions", Note, "this program is 2")
	r.Version = "1"
	r.delete(r.Keys.Slot(1))
	r.finds("masters", Wrong, "1 of 2 slots")
	r.delete(r.Keys.Masters())
	r.finds("masters", Wrong, "Start a master")
	r.put(r.Keys.Executor("e"), map[string]any{"v": 1, "draining": true})
	r.finds("executors", Wrong, "undrain")
	r.delete(r.Keys.Executors())
	r.finds("executors", Wrong, "nothing is merged")
	r.delete(r.Keys.Cluster())
	r.finds("cluster", Wrong, "Start a master")
}

func TestStuckWorkAndWhatNeedsAPersonIsFound(t *testing.T) {
	r := newRig(t)
	unit := schedule.Unit{V: 1, ID: "u", Kind: schedule.KindMerge, Table: "orders", Groups: schedule.AllGroups, SinceMS: time.Now().UnixMilli()}
	key := r.Keys.ReadyAll() + "0/1/orders/ffff"
	r.put(key, unit)
	r.finds("ready queue", OK, "1 units")
	unit.SinceMS = time.Now().Add(-time.Hour).UnixMilli()
	r.put(key, unit)
	r.finds("ready queue", Wrong, "orders", "1h0m0s", "more executors")
	unit.V = 9
	r.put(key, map[string]any{"v": 9})
	r.finds("ready queue", Wrong, "cannot be read")
	r.delete(r.Keys.ReadyAll())
	r.put(r.Keys.Turn("orders", 3), ownership.TurnValue{V: 1, Execution: "x1", Executor: "e", StartedMS: time.Now().Add(-2 * time.Hour).UnixMilli()})
	r.finds("executions", Note, "x1", "orders", "tidemark cancel")
	r.delete(r.Keys.TurnsAll())
	r.put(r.Keys.Demand(1, "orders", "a"), map[string]any{"v": 1, "sealed": map[string]any{"gen": 3}})
	r.finds("demand", Note, "1 of 1 shards")
	r.put(r.Keys.Demand(1, "orders", "a"), map[string]any{"v": 9})
	r.finds("demand", Wrong, "another version")
	r.delete(r.Keys.DemandAll())

	failure := schedule.Failure{Code: "store_failed", Class: schedule.Retryable, Count: 1, Message: "it is slow"}
	put := func() {
		r.put(r.Keys.Outcome("orders", 3), schedule.Outcome{V: 1, Kind: schedule.KindMerge, Failure: &failure})
	}
	put()
	r.finds("failures", OK, "by themselves")
	failure.Class, failure.Code = schedule.Data, "generation_damaged"
	put()
	r.finds("failures", Wrong, "group 3 of table orders", "generation_damaged", "tidemark skip")
}

func TestWhatIsWrongWithTheRootIsFound(t *testing.T) {
	r := newRig(t)
	r.lock("another")
	r.finds("root holder", Wrong, "another", "id")
	if err := r.Store.Delete(t.Context(), rootlock.RootKey); err != nil {
		t.Fatal(err)
	}
	r.finds("root holder", Note)
	r.lock("id")

	whole := r.Store
	if res := whole.PutIfAbsent(t.Context(), "_tidemark/policy.json", []byte(`{"v":1,"policy":{"max_wait":"whenever"}}`)); res.Err != nil {
		t.Fatal(res.Err)
	}
	r.finds("default policy", Wrong, "whenever", "policy unset _default max_wait")
	if err := whole.Delete(t.Context(), "_tidemark/policy.json"); err != nil {
		t.Fatal(err)
	}
	for _, fault := range []struct{ script, check string }{
		{"list * #1+: fail before send", "root"},
		{"put-if-absent * #1+: fail before send", "store guarantees"},
	} {
		faulty, err := faultstore.Wrap(whole, clock.System(), fault.script)
		if err != nil {
			t.Fatal(err)
		}
		r.Store = faulty
		r.finds(fault.check, Wrong)
	}
	r.Store = whole
	r.Clock = ahead{clock.System()}
	r.finds("clock", Wrong, "-1h0m")
}

// ahead is a clock that is an hour fast.
type ahead struct{ clock.Clock }

func (c ahead) Now() time.Time { return c.Clock.Now().Add(time.Hour) }

func TestWhatIsWrongWithEtcdIsFound(t *testing.T) {
	r := newRig(t)
	client := r.Client
	r.Client, r.EtcdErr = nil, etcd.ErrUnreachable
	r.finds("etcd", Wrong, "does not answer", "Nothing is lost")
	r.Client = client

	raise := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		members, err := client.MemberList(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
			Action: action, MemberID: members.Members[0].ID, Alarm: etcdserverpb.AlarmType_NOSPACE,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	raise(etcdserverpb.AlarmRequest_ACTIVATE)
	r.finds("etcd alarms", Wrong, "NOSPACE", "etcdctl alarm disarm")
	raise(etcdserverpb.AlarmRequest_DEACTIVATE)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	findings := Examine(ctx, r.Deps)
	if Problems(findings) == 0 {
		t.Errorf("nothing could be asked, and nothing is wrong: %+v", findings)
	}
}
