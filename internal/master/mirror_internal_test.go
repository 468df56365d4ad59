package master

import (
	"testing"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/schedule"
	"tidemark/internal/schedule/readyqueue"
)

func bookOf(ready bool) (*Master, *mirror) {
	m := &Master{
		config: Config{Clock: clock.System(), Log: hclog.NewNullLogger()}, keys: etcd.Keys{Prefix: "/t"}, stale: map[*mirror]struct{}{},
		wakePlanner: make(chan struct{}, 1), wakeScans: make(chan struct{}, 1), wakeDogs: make(chan struct{}, 1),
	}
	m.book = newBook(m.keys, 1)
	return m, &mirror{m: m, held: map[string]int64{}, ready: ready}
}

// The planner notes a unit when etcd answers. One that is claimed while the watch is broken is in no snapshot.
func TestASnapshotTakesOutUnitsThatOnlyThePlannerHasNoted(t *testing.T) {
	m, f := bookOf(true)
	u := schedule.Unit{V: 1, Kind: schedule.KindMerge, Table: "t", Groups: schedule.Groups(etcd.AllGroups), Order: "5"}
	key := readyqueue.Key(m.keys, u)
	m.book.entry("t").ready[key] = readyUnit{Unit: u, revision: 7}
	for noted, revision := range f.All() {
		if noted != key || revision != 7 {
			t.Errorf("%s at %d", noted, revision)
		}
		f.Delete(noted)
	}
	if n := len(m.book.entry("t").ready); n != 0 {
		t.Errorf("%d units are left", n)
	}
}

func TestOutcomesOfAnEtcdThatReplacedAnotherAreNotOlder(t *testing.T) {
	m, f := bookOf(false)
	record := func(execution string, revision int64) {
		f.Put(&mvccpb.KeyValue{Key: []byte(m.keys.Outcome("t", 3)), Value: []byte(`{"v":1,"execution":"` + execution + `"}`), ModRevision: revision})
	}
	record("old", 5000)
	f.Stale(etcd.ErrReplaced)
	record("new", 4)
	if o := m.book.entry("t").outcomes[3].record; o == nil || o.Execution != "new" {
		t.Errorf("%+v", o)
	}
}
