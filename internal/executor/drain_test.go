package executor

import (
	"encoding/json"
	"testing"

	"tidemark/internal/etcd"
	"tidemark/internal/schedule"
)

// awaitDraining waits until an executor's session key says whether it drains.
func (r *rig) awaitDraining(id string, want bool) {
	r.t.Helper()
	r.await(r.keys.Executor(id), "the session key to say so", func(value []byte) bool {
		var says struct{ Draining bool }
		return json.Unmarshal(value, &says) == nil && says.Draining == want
	})
}

func TestAnExecutorThatIsAskedToDrainStaysUpAndClaimsNothingUntilTheRequestIsGone(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	// Of an executor whose id begins with ours; it is not about us.
	r.put(r.keys.Drain("one-and-a-half"), map[string]any{"v": 1})
	one := r.executor("one")
	drainOne := r.run(one)
	r.seal("orders", "a", 1)
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.AllGroups)
	r.awaitMerged("orders", "a", 1)

	r.put(r.keys.Drain("one"), map[string]any{"v": 1})
	r.awaitDraining("one", true)
	if one.Ready() == nil || !one.Status().(Status).Draining || one.Active() != 0 {
		t.Errorf("drained: ready %v, %+v", one.Ready(), one.Status())
	}
	r.seal("orders", "a", 1)
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.AllGroups)
	drainTwo := r.run(r.executor("two"))
	r.awaitMerged("orders", "a", 2)
	if by := r.outcome("orders", etcd.GroupOf("a")).Executor; by != "two" {
		t.Errorf("merged by %s", by)
	}
	drainTwo()

	if _, err := r.client.Delete(t.Context(), r.keys.Drain("one")); err != nil {
		t.Fatal(err)
	}
	r.awaitDraining("one", false)
	r.seal("orders", "a", 1)
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.AllGroups)
	r.awaitMerged("orders", "a", 3)
	drainOne()
}

func TestARequestToDrainHoldsForTheNextProcessOfTheSameIdBeforeItsFirstClaim(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.seal("orders", "a", 1)
	r.queue(1, "0", "orders", schedule.KindMerge, etcd.AllGroups)
	r.put(r.keys.Drain("one"), map[string]any{"v": 1})
	one := r.executor("one")
	if one.drains.mayClaim() {
		t.Error("it would claim before etcd has said whether there is a request")
	}
	drain := r.run(one)
	r.awaitDraining("one", true)
	if got, err := r.client.Get(t.Context(), r.keys.Ready(etcd.ReadyKey{Class: 1, Order: "0", Table: "orders", Turns: etcd.AllGroups})); err != nil || len(got.Kvs) != 1 {
		t.Errorf("the unit was claimed: %v, %v", got, err)
	}
	drain()
}
