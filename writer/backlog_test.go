package writer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/demand"
	"tidemark/internal/objstore"
	"tidemark/internal/table"
)

// etcdDouble keeps the demand of one shard in memory.
type etcdDouble struct {
	mu     sync.Mutex // guards all below
	record demand.Record
	err    error
	calls  int
}

func (e *etcdDouble) PublishSealed(_ context.Context, ev demand.SealedEvent) (demand.Record, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	if e.err != nil {
		return demand.Record{}, e.err
	}
	e.record, _ = demand.Join(e.record, demand.Event{
		TableID: ev.TableID, Incarnation: ev.Incarnation, Sealed: &ev.Sealed,
		SealedTimes: []demand.SealTime{{Gen: ev.Sealed.Gen, MS: ev.SealedMS}},
	})
	return e.record, nil
}

func (e *etcdDouble) merged(tbl *table.Table, mark demand.Mark) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.record, _ = demand.Join(e.record, demand.Event{TableID: tbl.ID, Incarnation: tbl.Incarnation, Merged: &mark})
}

func TestASealTellsTheBacklogFromTheJoinedRecord(t *testing.T) {
	_, d, tbl := events(t)
	etcd := &etcdDouble{}
	d.Publisher = etcd
	w := mustClaim(t, Config{}, d)
	mustAppend(t, w, ids(t, 1, 5))
	if got := mustSeal(t, w); got.Pending != 1 || got.Unpublished != nil {
		t.Fatalf("%+v", got)
	}
	etcd.merged(tbl, demand.Mark{Gen: 1, Epoch: 1})
	if got := mustSeal(t, w); got.Pending != 1 {
		t.Fatalf("generation 1 is merged: %+v", got)
	}
	sealed := etcd.record.Sealed
	if sealed.Gen != 2 || sealed.Epoch != 1 || sealed.Rows != 5 || sealed.Bytes == 0 || len(etcd.record.SealedTimes) != 1 {
		t.Fatalf("%+v", etcd.record)
	}
}

func TestAFailedPublishFailsNoSealAndIsMadeUpForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d, _ := events(t)
		etcd := &etcdDouble{err: errors.New("etcd is away")}
		d.Publisher = etcd
		w := mustClaim(t, Config{}, d)
		for range 3 {
			if got := mustSeal(t, w); got.Unpublished == nil || got.Pending == 0 {
				t.Fatalf("%+v", got)
			}
		}
		if etcd.calls != 1 {
			t.Fatalf("it kept the seals waiting %d times", etcd.calls)
		}
		etcd.err = nil
		time.Sleep(publishPause)
		if got := mustSeal(t, w); got.Unpublished != nil || etcd.record.Sealed.Gen != 4 {
			t.Fatalf("%+v, %+v", got, etcd.record)
		}
	})
}

// merge commits a merged mark, as an executor does.
func merge(t *testing.T, tbl *table.Table, shard string, to int64) {
	t.Helper()
	snapshot, err := tbl.Log.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	from := snapshot.Mark(shard)
	_, err = tbl.Log.Commit(t.Context(), deltalog.Intent{
		TableID: tbl.ID, Read: snapshot, Info: deltalog.CommitInfo{Operation: "MERGE"},
		Marks: map[string]deltalog.MarkChange{deltalog.AppID(tbl.ID, shard): {From: from, To: to}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAppendWaitsWhileTheBacklogIsAtItsLimit(t *testing.T) {
	for name, publisher := range map[string]*etcdDouble{"without etcd": nil, "with etcd": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := objstore.NewMemory(clock.System())
				tbl := createTable(t, s, "events", eventsSchema, table.CreateOptions{})
				d := Deps{Store: s}
				if publisher != nil {
					d.Publisher = publisher
					publisher.merged(tbl, demand.Mark{})
				}
				w := mustClaim(t, Config{MaxPending: 2}, d)
				mustSeal(t, w)
				mustSeal(t, w)
				appended := make(chan error, 1)
				go func() { appended <- w.Append(t.Context(), ids(t, 1, 1)) }()
				time.Sleep(time.Minute)
				select {
				case err := <-appended:
					t.Fatalf("it did not wait: %v", err)
				default:
				}
				mustSeal(t, w) // a waiting append does not hold up a seal
				merge(t, tbl, "rollout-0", 2)
				if publisher != nil {
					publisher.merged(tbl, demand.Mark{Gen: 2, Epoch: 1})
				}
				if err := <-appended; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestAppendRefusesWhileTheBacklogIsAtItsLimitIfAskedTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := objstore.NewMemory(clock.System())
		tbl := createTable(t, s, "events", eventsSchema, table.CreateOptions{})
		w := mustClaim(t, Config{MaxPending: 1, OnBacklog: Refuse}, Deps{Store: s})
		mustSeal(t, w)
		if err := w.Append(t.Context(), ids(t, 1, 1)); !errors.Is(err, ErrBacklogged) {
			t.Fatal(err)
		}
		merge(t, tbl, "rollout-0", 1)
		time.Sleep(backlogPoll)
		mustAppend(t, w, ids(t, 1, 1))
	})
}

func TestAWriterThatComesBackKnowsItsBacklog(t *testing.T) {
	s, d, tbl := events(t)
	w := mustClaim(t, Config{}, d)
	for range 3 {
		mustSeal(t, w)
	}
	merge(t, tbl, "rollout-0", 2)
	if w = mustClaim(t, Config{MaxPending: 1, OnBacklog: Refuse}, Deps{Store: s}); w.backlog.pending != 1 {
		t.Fatal(w.backlog.pending)
	}
	if err := w.Append(t.Context(), ids(t, 1, 1)); !errors.Is(err, ErrBacklogged) {
		t.Fatal(err)
	}
}

func TestWaitingForTheBacklogEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := objstore.NewMemory(clock.System())
		createTable(t, s, "events", eventsSchema, table.CreateOptions{})
		w := mustClaim(t, Config{MaxPending: 1}, Deps{Store: s})
		mustSeal(t, w)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Append(ctx, ids(t, 1, 1)); !errors.Is(err, ErrBacklogged) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}
