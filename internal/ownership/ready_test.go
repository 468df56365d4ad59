package ownership

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
)

func (f floor) readyQueue() *ReadyQueue {
	f.t.Helper()
	q := NewReadyQueue(f.client, testKeys, "x", clock.System(), random.Seeded(1), hclog.NewNullLogger())
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

// seen makes candidates of one executor that were all seen at once.
func seen(at time.Duration, executors map[string]int64, executor string, class int, orders ...string) []candidate {
	var all []candidate
	for _, o := range orders {
		u := etcd.ReadyKey{Class: class, Order: o, Table: "t", Turns: 1}
		key := testKeys.Ready(u)
		all = append(all, candidate{ReadyKV{ReadyKey: u, Key: key}, at, rankOf(key, executors, executor)})
	}
	return all
}

func TestTheCriticalClassIsTakenFromItsHead(t *testing.T) {
	q := &ReadyQueue{clock: clock.System(), units: map[string]candidate{}}
	for _, c := range append(seen(0, nil, "x", 0, "1", "2"), seen(0, nil, "x", 1, "1")...) {
		q.units[c.Key] = c
		q.order = append(q.order, c.Key)
	}
	unit, ok, _ := q.Choose(func(ReadyKV) bool { return true })
	if !ok || unit.Key != q.order[0] {
		t.Errorf("took %s", unit.Key)
	}
	unit, _, _ = q.Choose(func(u ReadyKV) bool { return u.Key != q.order[0] })
	if unit.Key != q.order[1] {
		t.Errorf("what does not fit is not skipped: %s", unit.Key)
	}
	if _, ok, after := q.Choose(func(ReadyKV) bool { return false }); ok || after != 0 {
		t.Errorf("took what does not fit, or waits for it: %v", after)
	}
}

func TestAUnitThatAppearsIsReachedForByOneExecutorAfterTheOther(t *testing.T) {
	executors := map[string]int64{}
	for i := range 2 * rankMax {
		executors[fmt.Sprint("x-", i)] = 1
	}
	const now = time.Hour
	reach := map[time.Duration]int{} // how many reach for it after so long
	for x := range executors {
		unit := seen(now, executors, x, 1, "a")
		_, ok, after := choose(unit, now, rankStepMin)
		if ok != (after == 0) {
			t.Fatalf("%s: %v, %v", x, ok, after)
		}
		if _, ok, _ := choose(unit, now+after, rankStepMin); !ok {
			t.Errorf("%s does not reach for it when its time has come", x)
		}
		reach[after]++
	}
	for rank := range rankMax {
		if n := reach[time.Duration(rank)*rankStepMin]; n != 1 {
			t.Errorf("%d executors reach for it after %d steps", n, rank)
		}
	}
	// Alone nobody waits.
	if _, ok, _ := choose(seen(now, map[string]int64{"x": 1}, "x", 1, "a"), now, rankStepMin); !ok {
		t.Error("the only executor waits")
	}
}

func TestExecutorsSpreadOverUnitsThatHaveWaited(t *testing.T) {
	executors := map[string]int64{}
	for i := range 8 {
		executors[fmt.Sprint("x-", i)] = 1
	}
	taken := map[string]int{}
	for x := range executors {
		units := seen(0, executors, x, 1, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p")
		unit, ok, _ := choose(units, time.Hour, rankStepMin)
		if !ok {
			t.Fatal("nothing is chosen")
		}
		taken[unit.Key]++
	}
	if len(taken) < 6 {
		t.Errorf("8 executors reach for %d of 16 units", len(taken))
	}
}

func TestAUnitThatIsKnownToBeGoneIsStruckOutAtOnce(t *testing.T) {
	f := newFloor(t)
	unit := f.queue(etcd.ReadyKey{Class: 1, Order: "1", Table: "a", Turns: etcd.TurnsOf(1)})
	q := f.readyQueue()
	f.eventually("it is shown", func() bool { return slices.Equal(free(q), []string{unit.Key}) })

	older := unit
	older.ModRevision--
	q.Strike(older)
	if got := free(q); !slices.Equal(got, []string{unit.Key}) {
		t.Errorf("the news of an older unit under the same key struck out this one: %v", got)
	}
	q.Strike(unit)
	if got := free(q); len(got) != 0 {
		t.Errorf("after striking it out there is still %v", got)
	}
	again := f.queue(unit.ReadyKey)
	f.eventually("a new unit under the same key is shown", func() bool {
		all := slices.Collect(q.Free())
		return len(all) == 1 && all[0].ModRevision == again.ModRevision
	})
}

// Where etcd is slow, the next executor waits longer for the news of a claim; soon after it is fast again, it does not.
func TestTheStepBetweenRanksFollowsWhatClaimsTake(t *testing.T) {
	q := &ReadyQueue{}
	check := func(when string, want time.Duration) {
		t.Helper()
		if got := q.step(); got != want {
			t.Errorf("%s the step is %v, want %v", when, got, want)
		}
	}
	check("before any claim", rankStepMin)
	for range 20 {
		q.Claimed(time.Millisecond)
	}
	check("while claims take 1 ms", rankStepMin)
	for range 50 {
		q.Claimed(4 * time.Millisecond)
	}
	if got := q.step(); got < 3*time.Millisecond || got > 4*time.Millisecond {
		t.Errorf("while claims take 4 ms the step is %v", got)
	}
	q.Claimed(time.Minute)
	check("after a claim that hung", rankStepMax)
	for range 100 {
		q.Claimed(time.Millisecond)
	}
	check("after a hundred fast claims", rankStepMin)
}
