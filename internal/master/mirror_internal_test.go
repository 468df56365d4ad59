package master

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/scan"
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

// Every master finds every table on storage, and notes what etcd says of it.
func TestATableThatIsGoneIsForgottenByOwnersAndOthers(t *testing.T) {
	for _, owned := range []bool{true, false} {
		m, f := bookOf(false)
		m.scanner = scan.NewScanner(scan.Deps{})
		p := passing{Master: m, owned: map[int]ownership.SlotToken{}}
		if owned {
			p.owned[0] = ownership.SlotToken{}
		}
		for life := range 3 {
			name := fmt.Sprint("t", life)
			m.found([]string{name})
			f.Put(&mvccpb.KeyValue{Key: []byte(m.keys.Table(0, name)), Value: []byte(`{"v":1}`), ModRevision: 1})
			e := m.book.entry(name)
			m.found(nil)
			e.scanning, e.mine, e.wanted = owned, owned, !owned
			f.Delete(m.keys.Table(0, name))
			if owned {
				if m.book.entry(name) != e {
					t.Error("a scan under way ends with an entry that is not in the book")
				}
				m.endScan(e, scan.Report{}, true, nil)
			}
			e.planned, e.busy = true, false
			if !owned {
				p.visit(e)
			}
			if n := len(m.book.tables) + len(m.book.dirty); n != 0 {
				t.Errorf("owned %v: %d entries are left of the tables that are gone", owned, n)
			}
		}
	}
}

// The last news of a dropped table may be that its demand is gone; by then nothing else is known of it.
func TestATableOfWhichOnlyDemandWasLeftIsForgotten(t *testing.T) {
	r := newRig(t)
	m, _ := r.run(r.config("m1"))
	slot := etcd.SlotOf("ghost", testSlots)
	r.until("the slot's owner", func(keys map[string]string) bool { return keys[r.keys.Slot(slot)] != "" })
	publish := demand.SealedEvent{Table: "ghost", TableID: "x", Incarnation: 1, Shard: "a", Sealed: demand.Mark{Gen: 1, Epoch: 1}, SealedMS: 1}
	if _, err := r.publisher().PublishSealed(t.Context(), publish); err != nil {
		t.Fatal(err)
	}
	r.until("its demand to go", func(keys map[string]string) bool { return keys[r.keys.Demand(slot, "ghost", "a")] == "" })
	for left := 1; left > 0; {
		m.mu.Lock()
		left = len(m.book.tables)
		m.mu.Unlock()
		if err := m.config.Clock.Sleep(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

// What a cache shows that is not complete is no reason to scan, to decide, and least of all to delete.
func TestNothingIsDoneOnTheWordOfDemandThatIsNotComplete(t *testing.T) {
	m, _ := bookOf(false) // it has no scanner and no queue: whoever reaches for them fails
	m.cache = demand.NewCache(nil, m.keys, m.config.Clock, nil, m.config.Log)
	e := m.book.entry("t")
	e.record, e.scanning = &TableRecord{V: 1}, true
	m.book.touch(e)
	m.scan(t.Context(), e, ownership.SlotToken{})
	if e.scanning || m.counts.scans != 0 {
		t.Errorf("scanning %v, %d scans", e.scanning, m.counts.scans)
	}
	p := passing{Master: m, owned: map[int]ownership.SlotToken{0: {}}, nowMS: 1000}
	p.visit(e)
	if _, dirty := m.book.dirty[e]; e.planned || !dirty || p.soonest == 0 {
		t.Errorf("planned %v, to be looked at again %v at %d", e.planned, dirty, p.soonest)
	}
}
