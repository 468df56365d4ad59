package readyqueue

import (
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
	"tidemark/test/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var keys = etcd.KeysOf("test")

func start(t *testing.T) (*clientv3.Client, *Queue) {
	c := etcdtest.Start(t)
	put(t, c, keys.Slot(3), "token-a")
	return c, New(c, keys, random.Seeded(1))
}

func put(t *testing.T, c *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := c.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func fence(token string) Fence {
	return Fence{Slot: 3, Compare: clientv3.Compare(clientv3.Value(keys.Slot(3)), "=", token)}
}

func unit(class schedule.Class, order string, groups schedule.Groups) schedule.Unit {
	return schedule.Unit{Kind: schedule.KindMerge, Table: "prod/events", Class: class, Order: order, Groups: groups, Gens: 9}
}

// queued is the ready queue in key order, checked to read back.
func queued(t *testing.T, c *clientv3.Client) []schedule.Unit {
	t.Helper()
	r, err := c.Get(t.Context(), keys.ReadyAll(), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var units []schedule.Unit
	for _, kv := range r.Kvs {
		u, err := Parse(keys, string(kv.Key), kv.Value)
		if err != nil {
			t.Fatal(err)
		}
		if Key(keys, u) != string(kv.Key) {
			t.Errorf("unit of %s has key %s", kv.Key, Key(keys, u))
		}
		units = append(units, u)
	}
	return units
}

func TestAChangeReplacesOverlappingKeysInOneTransaction(t *testing.T) {
	c, q := start(t)
	whole := unit(schedule.Merge, "63-00000000000001", schedule.AllGroups)
	if _, _, err := q.Apply(t.Context(), fence("token-a"), schedule.Change{Put: []schedule.Unit{whole}}); err != nil {
		t.Fatal(err)
	}
	cuts := []schedule.Unit{unit(schedule.Critical, "00000000000002", 0x00ff), unit(schedule.Critical, "00000000000001", 0xff00)}
	_, revision, err := q.Apply(t.Context(), fence("token-a"), schedule.Change{Delete: queued(t, c), Put: cuts})
	if err != nil {
		t.Fatal(err)
	}
	got := queued(t, c)
	if len(got) != 2 || got[0].Groups != 0xff00 || got[1].Groups != 0x00ff || got[0].ID == "" || got[0].ID == got[1].ID {
		t.Fatalf("queue is %+v", got)
	}
	before, err := c.Get(t.Context(), keys.ReadyAll(), clientv3.WithPrefix(), clientv3.WithRev(revision-1))
	if err != nil || len(before.Kvs) != 1 {
		t.Fatalf("one revision before there are %d keys, %v", before.Count, err)
	}
}

func TestADeposedOwnerCannotQueueOrUnqueue(t *testing.T) {
	c, q := start(t)
	whole := unit(schedule.Merge, "63-00000000000001", schedule.AllGroups)
	if _, _, err := q.Apply(t.Context(), fence("token-a"), schedule.Change{Put: []schedule.Unit{whole}}); err != nil {
		t.Fatal(err)
	}
	put(t, c, keys.Slot(3), "token-b")
	for _, change := range []schedule.Change{{Put: []schedule.Unit{unit(schedule.Low, "1", 1)}}, {Delete: []schedule.Unit{whole}}} {
		if _, _, err := q.Apply(t.Context(), fence("token-a"), change); !errors.Is(err, ErrDeposed) {
			t.Errorf("%+v: %v", change, err)
		}
	}
	if got := queued(t, c); len(got) != 1 || got[0].Groups != schedule.AllGroups {
		t.Fatalf("queue is %+v", got)
	}
}

// Invariant 6.
func TestNothingIsQueuedOverAHeldTurn(t *testing.T) {
	c, q := start(t)
	put(t, c, keys.Turn("prod/events", 4), "held")
	change := schedule.Change{Put: []schedule.Unit{unit(schedule.Merge, "63-00000000000001", schedule.AllGroups)}}
	if _, _, err := q.Apply(t.Context(), fence("token-a"), change); !errors.Is(err, ErrTurnHeld) {
		t.Fatal(err)
	}
	log := unit(schedule.Maintenance, "63-00000000000001", schedule.Log)
	log.Kind = schedule.KindCleanup
	if _, _, err := q.Apply(t.Context(), fence("token-a"), schedule.Change{Put: []schedule.Unit{log}}); err != nil {
		t.Fatalf("the log's turn is free: %v", err)
	}
	if got := queued(t, c); len(got) != 1 || got[0].Groups != schedule.Log {
		t.Fatalf("queue is %+v", got)
	}
}
