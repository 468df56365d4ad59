package ownership

import (
	"context"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
)

func (f floor) readyQueue() *ReadyQueue {
	f.t.Helper()
	q := NewReadyQueue(f.client, testKeys, clock.System(), random.Seeded(1), hclog.NewNullLogger())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	f.t.Cleanup(func() {
		stop()
		<-ended
	})
	f.eventually("the queue is mirrored", func() bool { return !q.Stale() })
	return q
}

func free(q *ReadyQueue) []string {
	var keys []string
	for u := range q.Free() {
		keys = append(keys, u.Key)
	}
	return keys
}

func TestTheQueueShowsFreeUnitsInTheOrderOfService(t *testing.T) {
	f := newFloor(t)
	late := f.queue(etcd.ReadyKey{Class: 1, Order: "2", Table: "a", Turns: etcd.AllGroups})
	first := f.queue(etcd.ReadyKey{Class: 0, Order: "9", Table: "b", Turns: etcd.TurnsOf(1, 2)})
	q := f.readyQueue()
	second := f.queue(etcd.ReadyKey{Class: 1, Order: "1", Table: "b", Turns: etcd.TurnsOf(2, 3)})
	f.eventually("all are shown in order", func() bool {
		return slices.Equal(free(q), []string{first.Key, second.Key, late.Key})
	})

	x := f.executor("x")
	turn, err := x.Claim(t.Context(), x.grant, first)
	if err != nil {
		t.Fatal(err)
	}
	f.eventually("the claimed unit and what it covers are not shown", func() bool {
		return slices.Equal(free(q), []string{late.Key}) && q.Len() == 2
	})
	if err := x.Release(t.Context(), turn, nil); err != nil {
		t.Fatal(err)
	}
	f.eventually("what it covered is shown again", func() bool {
		return slices.Equal(free(q), []string{second.Key, late.Key})
	})
}

func TestTheCriticalClassIsTakenFromItsHeadAndOthersAreSpread(t *testing.T) {
	units := func(class int, orders ...string) []ReadyKV {
		var units []ReadyKV
		for _, o := range orders {
			u := etcd.ReadyKey{Class: class, Order: o, Table: "t", Turns: 1}
			units = append(units, ReadyKV{ReadyKey: u, Key: testKeys.Ready(u)})
		}
		return units
	}
	all := func(ReadyKV) bool { return true }
	critical := append(units(0, "1", "2"), units(1, "1")...)
	for _, executor := range []string{"x", "y", "z"} {
		if u, ok := Choose(slices.Values(critical), executor, all); !ok || u.Key != critical[0].Key {
			t.Errorf("%s takes %s", executor, u.Key)
		}
	}
	if u, _ := Choose(slices.Values(critical), "x", func(u ReadyKV) bool { return u.Key != critical[0].Key }); u.Key != critical[1].Key {
		t.Errorf("what does not fit is skipped: %s", u.Key)
	}

	merges := append(units(1, "a", "b", "c", "d", "e", "f", "g", "h"), units(2, "a")...)
	taken := map[string]bool{}
	for i := range 20 {
		u, ok := Choose(slices.Values(merges), string(rune('a'+i)), all)
		if !ok || u.Class != 1 {
			t.Fatalf("took %s", u.Key)
		}
		taken[u.Key] = true
	}
	if len(taken) < 4 {
		t.Errorf("20 executors reach for %d of 8 units", len(taken))
	}
	if _, ok := Choose(slices.Values(merges), "x", func(ReadyKV) bool { return false }); ok {
		t.Error("took what does not fit")
	}
}
