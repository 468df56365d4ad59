package control

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/observe"
	"tidemark/internal/schedule"
)

// Two rows of the table of losses in docs/coordination.md, as the person on call sees them; the other rows are tested in
// test/etcd and test/e2e.

func TestWithoutAMasterTheQueueIsDrainedNothingNewIsQueuedAndDemandIsPublished(t *testing.T) {
	r := newEmptyRig(t)
	r.create("queued")
	r.create("later")
	_, stop := r.master()
	r.until("both tables' records", func() bool { return r.count(r.keys.Prefix+"/tables/") == 2 })
	r.seal("queued", "a", 20)
	r.until("a unit", func() bool { return r.count(r.keys.ReadyAll()) == 1 })
	r.seal("later", "a", 1)
	r.until("a scan to say that nothing of the other is merged", func() bool {
		x, err := r.Explain(t.Context(), "later")
		return err == nil && len(x.Shards) == 1 && x.Shards[0].Known
	})
	stop()

	r.seal("later", "a", 20)
	r.executor("e1")
	r.until("the queue to be drained", func() bool {
		now, err := r.load(t.Context(), "queued")
		return err == nil && now.Mark("a") == 20 && r.count(r.keys.TurnsAll()) == 0
	})
	x, err := r.Explain(t.Context(), "later")
	if err != nil {
		t.Fatal(err)
	}
	if x.Pending != 21 || x.Owner != "" || len(x.Warnings) != 1 || !strings.Contains(x.Warnings[0], "No master owns slot") || r.count(r.keys.ReadyAll()) != 0 {
		t.Errorf("%+v", x)
	}
	r.master()
	r.until("the rest", func() bool {
		now, err := r.load(t.Context(), "later")
		return err == nil && now.Mark("a") == 21
	})
}

// away is a store that cannot be reached while it is down.
type away struct {
	objstore.Store
	down atomic.Bool
}

func (s *away) err(op, key string) error {
	if s.down.Load() {
		return &objstore.Error{Op: op, Key: key, Code: objstore.CodeUnavailable, Err: errors.New("no route to host")}
	}
	return nil
}

func (s *away) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	if err := s.err(objstore.OpGet, key); err != nil {
		return nil, objstore.Info{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s *away) List(ctx context.Context, req objstore.ListRequest) (objstore.Page, error) {
	if err := s.err(objstore.OpList, req.Prefix); err != nil {
		return objstore.Page{}, err
	}
	return s.Store.List(ctx, req)
}

func (s *away) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	if err := s.err(objstore.OpPutIfAbsent, key); err != nil {
		return objstore.Result{Outcome: objstore.Refused, Err: err}
	}
	return s.Store.PutIfAbsent(ctx, key, body)
}

func TestAStoreThatIsAwayForAWhileFailsExecutionsRetryablyAndNothingElse(t *testing.T) {
	r := newEmptyRig(t)
	store := &away{Store: r.store}
	r.create("orders")
	r.store = store // of masters and executors; the person on call has a way of their own
	r.master()
	r.until("the table's record", func() bool { return r.count(r.keys.Prefix+"/tables/") == 1 })
	r.seal("orders", "a", 20)
	r.until("a unit", func() bool { return r.count(r.keys.ReadyAll()) == 1 })
	store.down.Store(true)
	r.executor("e1")
	var failures []observe.Failure
	r.until("a failure", func() bool {
		var err error
		failures, err = r.failures("orders")
		return err == nil && len(failures) > 0 && failures[0].Attempts > 1
	})
	if f := failures[0]; f.Code != "store_failed" || f.Class != "retryable" || f.Attention || !strings.Contains(f.Remedy, "by itself") {
		t.Errorf("%+v", f)
	}
	x, err := r.Explain(t.Context(), "orders")
	if err != nil || len(x.Shards) != 1 || x.Shards[0].Pending != 20 || len(x.Attention) != 0 {
		t.Errorf("%+v, %v", x, err)
	}
	if code := x.Shards[0].Code; code != schedule.CodeGroupWait && code != schedule.CodeRunning {
		t.Logf("asked between two attempts: %s", code)
	}
	store.down.Store(false)
	r.until("the merge", func() bool {
		got, err := r.failures("orders")
		now, loaded := r.load(t.Context(), "orders")
		return err == nil && len(got) == 0 && loaded == nil && now.Mark("a") == 20
	})
	if rows := r.rows("orders"); rows != 200 || r.count(r.keys.Demand(etcd.SlotOf("orders", testSlots), "orders", "a")) != 1 {
		t.Errorf("%d rows", rows)
	}
}
