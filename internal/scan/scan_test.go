package scan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/compaction"
	"tidemark/internal/deltalog"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
	"tidemark/test/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a root in memory with one scanner.
type rig struct {
	t       *testing.T
	store   *counting
	deps    table.Deps
	scanner *Scanner
}

// counting counts the requests that a scan costs.
type counting struct {
	objstore.Store
	requests atomic.Int64
}

func (c *counting) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	c.requests.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *counting) List(ctx context.Context, req objstore.ListRequest) (objstore.Page, error) {
	c.requests.Add(1)
	return c.Store.List(ctx, req)
}

func newRig(t *testing.T) *rig {
	store := &counting{Store: objstore.NewMemory(clock.System())}
	r := &rig{t: t, store: store, deps: table.Deps{Clock: clock.System(), Random: random.Seeded(1)}}
	r.scanner = NewScanner(Deps{Store: store, Clock: clock.System(), Random: random.Seeded(2), Log: hclog.NewNullLogger()})
	return r
}

func (r *rig) create(name string) *table.Table {
	r.t.Helper()
	s, err := schema.Parse(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}`)
	if err != nil {
		r.t.Fatal(err)
	}
	t, err := table.Create(r.t.Context(), r.store, name, table.CreateOptions{Schema: s}, r.deps)
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

func (r *rig) chain(t *table.Table, shard string) *shardmanifest.Chain {
	return shardmanifest.Open(r.store, t.Name, t.ID, shard, shardmanifest.Options{Clock: clock.System(), Random: random.Seeded(3)})
}

// seal claims a shard and seals n generations of 10 bytes and 2 rows each.
func (r *rig) seal(t *table.Table, shard string, n int) {
	r.t.Helper()
	hold, err := r.chain(t, shard).Claim(r.t.Context(), shardmanifest.ClaimOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for range n {
		g := shardmanifest.Generation{Path: hold.Chain().GenerationPath(hold.Next()), Bytes: 10, Rows: 2, SealedMS: 1000 + int64(hold.Next())}
		if _, err := hold.Seal(r.t.Context(), g); err != nil {
			r.t.Fatal(err)
		}
	}
}

// merge commits a merged mark, as an execution does.
func (r *rig) merge(t *table.Table, shard string, gen int64) {
	r.t.Helper()
	snapshot, err := t.Log.Snapshot(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = t.Log.Commit(r.t.Context(), deltalog.Intent{
		TableID: t.ID, Read: snapshot, Info: deltalog.CommitInfo{Operation: "MERGE"},
		Marks: map[string]deltalog.MarkChange{deltalog.AppID(t.ID, shard): {From: snapshot.Mark(shard), To: gen}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func nothingSeen(string, string) uint64 { return 0 }

func (r *rig) scan(name string, seen Seen) Report {
	r.t.Helper()
	report, err := r.scanner.Scan(r.t.Context(), name, seen)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, err := range report.Broken {
		r.t.Error(err)
	}
	return report
}

// Invariant 5: no mark in the log is a known 0.
func TestBothMarksOfEveryShardAreWhatStorageShows(t *testing.T) {
	r := newRig(t)
	tbl := r.create("prod/events")
	r.seal(tbl, "a", 5)
	r.seal(tbl, "b", 100)
	r.merge(tbl, "b", 40)
	report := r.scan("prod/events", nothingSeen)
	if len(report.Shards) != 2 {
		t.Fatalf("%d shards", len(report.Shards))
	}
	a, b := report.Shards[0].Event, report.Shards[1].Event
	if *a.Merged != (demand.Mark{}) || *a.Sealed != (demand.Mark{Gen: 5, Epoch: 1, Bytes: 50, Rows: 10}) || len(a.SealedTimes) != 5 {
		t.Errorf("a: sealed %+v, merged %+v, times %v", *a.Sealed, *a.Merged, a.SealedTimes)
	}
	if *b.Merged != (demand.Mark{Gen: 40, Epoch: 1, Bytes: 400, Rows: 80}) || *b.Sealed != (demand.Mark{Gen: 100, Epoch: 1, Bytes: 1000, Rows: 200}) {
		t.Errorf("b: sealed %+v, merged %+v", *b.Sealed, *b.Merged)
	}
	if b.SealedTimes[0] != (demand.SealTime{Gen: 41, MS: 1041}) || b.TableID != tbl.ID || b.Incarnation != 1 {
		t.Errorf("b: %+v", b)
	}
}

func TestSmallFilesAreCountedThatACompactionWouldJoin(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t")
	if got := r.scan("t", nothingSeen).Compaction; got != (compaction.Backlog{}) {
		t.Fatalf("%+v", got)
	}
	snapshot, err := tbl.Log.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in := deltalog.Intent{TableID: tbl.ID, Read: snapshot, Info: deltalog.CommitInfo{Operation: "WRITE"}}
	for i, size := range []int64{10, 20, 30, 100 << 20} {
		in.Adds = append(in.Adds, deltalog.Add{Path: fmt.Sprintf("part-%d.parquet", i), Size: size, DataChange: true})
	}
	if _, err := tbl.Log.Commit(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also when nothing has changed since the last scan
		if got := r.scan("t", nothingSeen).Compaction; got != (compaction.Backlog{Bins: 1, Files: 3, Bytes: 60}) {
			t.Fatalf("%+v", got)
		}
	}
}

func TestAScanOfAnIdleTableCostsTwoListings(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t")
	for _, shard := range []string{"a", "b", "c"} {
		r.seal(tbl, shard, 3)
	}
	if !r.scan("t", nothingSeen).Changed {
		t.Error("a first scan finds everything new")
	}
	r.store.requests.Store(0)
	report := r.scan("t", nothingSeen)
	if report.Changed || r.store.requests.Load() != 2 || len(report.Shards) != 3 || report.Shards[2].Event.Sealed.Gen != 3 {
		t.Errorf("changed %v, %d requests, %d shards", report.Changed, r.store.requests.Load(), len(report.Shards))
	}
	r.merge(tbl, "b", 2)
	r.seal(tbl, "c", 1)
	report = r.scan("t", nothingSeen)
	if !report.Changed || report.Shards[1].Event.Merged.Bytes != 20 || report.Shards[2].Event.Sealed.Gen != 4 {
		t.Errorf("changed %v, %+v", report.Changed, report.Shards)
	}
}

func TestTheIntervalDoublesToAnHourWhileNothingChanges(t *testing.T) {
	var got []time.Duration
	d := NextInterval(0, true)
	for range 6 {
		got = append(got, d/time.Second)
		d = NextInterval(d, false)
	}
	if !slices.Equal(got, []time.Duration{300, 600, 1200, 2400, 3600, 3600}) || NextInterval(d, true) != 300*time.Second {
		t.Errorf("intervals %v", got)
	}
}

// A merged mark below what was trimmed, or below one seen before, twice in a row from uncached snapshots.
func TestAMarkThatWentBackIsReportedAndNotPublished(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t")
	r.seal(tbl, "a", 5)
	r.seal(tbl, "b", 5)
	r.seal(tbl, "c", 5)
	r.merge(tbl, "b", 2)
	if _, err := r.chain(tbl, "a").Trim(t.Context(), 3); err != nil { // somebody expired the transaction of a
		t.Fatal(err)
	}
	report := r.scan("t", func(id, shard string) uint64 { return map[string]uint64{"b": 4}[shard] })
	var regressed []bool
	for _, s := range report.Shards {
		regressed = append(regressed, s.Regressed)
	}
	if !slices.Equal(regressed, []bool{true, true, false}) {
		t.Fatalf("regressed %v", regressed)
	}
}

func TestAMarkThatIsOnlyLateIsNoRegression(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t")
	r.seal(tbl, "a", 5)
	r.scan("t", nothingSeen)
	report := r.scan("t", func(id, shard string) uint64 {
		if snapshot, err := tbl.Log.Snapshot(t.Context()); err == nil && snapshot.Mark("a") == 0 {
			r.merge(tbl, "a", 4) // after the scan's snapshot, before the uncached ones
		}
		return 4
	})
	if len(report.Shards) != 0 {
		t.Fatalf("the shard is left to the next scan, not %+v", report.Shards)
	}
	if report = r.scan("t", nothingSeen); report.Shards[0].Regressed || report.Shards[0].Event.Merged.Gen != 4 {
		t.Fatalf("%+v", report.Shards[0])
	}
}

func TestARetiredAndMergedShardIsOver(t *testing.T) {
	r := newRig(t)
	tbl := r.create("t")
	r.seal(tbl, "a", 2)
	r.seal(tbl, "b", 2)
	r.merge(tbl, "a", 2)
	for _, shard := range []string{"a", "b"} {
		if _, err := r.chain(tbl, shard).Retire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	report := r.scan("t", nothingSeen)
	if !report.Shards[0].Over() || report.Shards[1].Over() {
		t.Fatalf("over: %v, %v", report.Shards[0].Over(), report.Shards[1].Over())
	}
}

func TestATableThatIsDroppedAndCreatedAgainIsScannedInItsNewLife(t *testing.T) {
	r := newRig(t)
	old := r.create("t")
	r.seal(old, "a", 7)
	r.scan("t", nothingSeen)
	if err := table.Drop(t.Context(), r.store, "t", r.deps); err != nil {
		t.Fatal(err)
	}
	again := r.create("t")
	r.seal(again, "a", 1)
	report := r.scan("t", nothingSeen)
	if ev := report.Shards[0].Event; len(report.Shards) != 1 || ev.Incarnation != 2 || ev.Sealed.Gen != 1 || ev.TableID == old.ID {
		t.Fatalf("%+v", report.Shards)
	}
}

func TestADroppedAndAnUnknownTableAreErrorsOfTheirOwn(t *testing.T) {
	r := newRig(t)
	r.create("t")
	if err := table.Drop(t.Context(), r.store, "t", r.deps); err != nil {
		t.Fatal(err)
	}
	if _, err := r.scanner.Scan(t.Context(), "t", nothingSeen); !errors.Is(err, table.ErrDropped) {
		t.Fatal(err)
	}
	if _, err := r.scanner.Scan(t.Context(), "other", nothingSeen); !errors.Is(err, table.ErrUnknownTable) {
		t.Fatal(err)
	}
}

// Invariant 11: etcd is rebuilt from storage, and what is there already costs no write.
func TestAScanRebuildsDemandAndWritesNothingTwice(t *testing.T) {
	r := newRig(t)
	client, keys := etcdtest.Start(t), etcd.KeysOf("test")
	var results []demand.Result
	detached := demand.NewDetached(demand.NewPublisher(client, keys, 4, clock.System(), random.Seeded(4)),
		func(r demand.Result) { results = append(results, r) })
	defer detached.Close()
	tbl := r.create("t")
	r.seal(tbl, "a", 5)
	r.seal(tbl, "b", 9)
	r.merge(tbl, "b", 9)
	unknown := func(string) demand.Record { return demand.Record{} }
	news, complete := r.scanner.Publish(t.Context(), detached, r.scan("t", nothingSeen), unknown)
	if len(news) != 2 || !complete || !slices.Equal(results, []demand.Result{demand.Written, demand.Written}) {
		t.Fatalf("%v", results)
	}
	answer, err := client.Get(t.Context(), keys.Demand(etcd.SlotOf("t", 4), "t", "a"))
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatal(answer, err)
	}
	record, err := demand.Parse(answer.Kvs[0].Value)
	if n, known := record.Pending(); err != nil || n != 5 || !known || record.Source != demand.Scan {
		t.Fatalf("%+v, %v", record, err)
	}
	results = nil
	known := func(shard string) demand.Record {
		if shard == "a" {
			return record
		}
		return demand.Record{}
	}
	news, complete = r.scanner.Publish(t.Context(), detached, r.scan("t", nothingSeen), known)
	if len(news) != 1 || !complete || !slices.Equal(results, []demand.Result{demand.Unchanged}) {
		t.Fatalf("%v", results)
	}
	again, err := client.Get(t.Context(), keys.DemandAll())
	if err != nil || again.Header.Revision != answer.Header.Revision {
		t.Fatalf("revision went from %d to %d, %v", answer.Header.Revision, again.Header.Revision, err)
	}
}
