package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
	"tidemark/internal/schema"
	"tidemark/internal/table"
	"tidemark/test/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSlots = 8

// rig is an observer of a cluster on a real etcd and a root in memory, in which the test plays all processes.
type rig struct {
	t      testing.TB
	client *clientv3.Client
	keys   etcd.Keys
	store  *objstore.Memory
	see    *Observer
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, client: etcdtest.Start(t), keys: etcd.KeysOf("test"), store: objstore.NewMemory(clock.System())}
	r.put(r.keys.Cluster(), etcd.Cluster{V: 1, Name: "test", ID: "id", Root: "mem://", Slots: testSlots})
	r.see = New(Config{Client: r.client, Keys: r.keys, Store: r.store, Clock: clock.System(), Random: random.New(), Log: hclog.NewNullLogger()})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.see.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	r.until("the mirror is complete", r.see.Fresh)
	return r
}

// until waits for changes until something holds.
func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	for {
		changed := r.see.Changed()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.t.Fatalf("waited in vain: %s", what)
		}
	}
}

func (r *rig) put(key string, value any) {
	r.t.Helper()
	body, ok := value.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(value); err != nil {
			r.t.Fatal(err)
		}
	}
	if _, err := r.client.Put(r.t.Context(), key, string(body)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) demand(name, shard string, sealed, merged *demand.Mark, sealedMS int64) {
	d := demand.Record{TableID: "id-" + name, Incarnation: 1, Sealed: sealed, Merged: merged, Source: demand.Writer}
	if sealed != nil && merged != nil && sealed.Gen > merged.Gen {
		d.SealedTimes = []demand.SealTime{{Gen: merged.Gen + 1, MS: sealedMS}}
	}
	r.put(r.keys.Demand(etcd.SlotOf(name, testSlots), name, shard), d.Encode())
}

func (r *rig) record(name, state string) {
	r.put(r.keys.Table(etcd.SlotOf(name, testSlots), name), map[string]any{"v": 1, "table_id": "id-" + name, "incarnation": 1, "mode": "append", "state": state})
}

func mark(gen uint64) *demand.Mark {
	return &demand.Mark{Gen: gen, Epoch: 1, Bytes: int64(gen) * 100, Rows: int64(gen) * 10}
}

func TestATableIsTheSumOfItsShardsAndUnknownIsNotZero(t *testing.T) {
	r := newRig(t)
	sealedMS := time.Now().Add(-time.Minute).UnixMilli()
	r.record("a/b", "")
	r.demand("a/b", "one", mark(9), mark(4), sealedMS)
	r.demand("a/b", "two", mark(3), mark(3), 0)
	r.demand("a/b", "three", mark(7), nil, 0)
	var got Table
	r.until("three shards are seen", func() bool { got, _ = r.see.Table("a/b"); return got.Shards == 3 })
	if got.PendingGenerations != 5 || got.PendingBytes != 500 || got.PendingRows != 50 || got.UnknownShards != 1 || got.OldestMS == 0 || got.State != "active" {
		t.Errorf("%+v", got)
	}
	if age := time.Now().UnixMilli() - got.OldestMS; age < 59_000 || age > 120_000 {
		t.Errorf("the oldest has waited %d ms, sealed a minute ago", age)
	}
	page, err := r.see.Shards("a/b", Query{Sort: "pending", Desc: true})
	if err != nil || len(page.Items) != 3 || page.Items[0].Shard != "one" || page.Items[0].PendingGenerations != 5 {
		t.Errorf("%+v %v", page, err)
	}
	for _, s := range page.Items {
		if s.Shard == "three" && s.Merged != nil {
			t.Error("an unknown mark is shown as one")
		}
	}
}

func TestWhatIsDeletedIsForgotten(t *testing.T) {
	r := newRig(t)
	r.record("gone", "")
	r.demand("gone", "s", mark(2), mark(1), 1)
	r.until("the table is seen", func() bool { v, ok := r.see.Table("gone"); return ok && v.Shards == 1 && v.State == "active" })
	if _, err := r.client.Delete(t.Context(), r.keys.Prefix+"/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	r.until("the table is forgotten", func() bool { _, ok := r.see.Table("gone"); return !ok })
	if o := r.see.Overview(); o.Tables != 0 || o.PendingGenerations != 0 || o.Cluster.Slots != 0 {
		t.Errorf("%+v", o)
	}
}

func TestTheVerdictIsTheWorstThatHolds(t *testing.T) {
	r := newRig(t)
	verdict := func(want Verdict) {
		t.Helper()
		r.until(string(want), func() bool { return r.see.Overview().Verdict == want })
	}
	verdict(Unowned)
	r.put(r.keys.Master("m"), map[string]any{"v": 1, "started_ms": 1})
	for slot := range testSlots {
		r.put(r.keys.Slot(slot), map[string]any{"v": 1, "owner": "m", "epoch": 1})
	}
	verdict(CaughtUp)
	r.record("t", "")
	r.demand("t", "s", mark(5), mark(1), time.Now().UnixMilli())
	verdict(Unserved)
	r.put(r.keys.Executor("e"), map[string]any{"v": 1, "slots": 2, "memory": 1 << 30})
	verdict(KeepingUp)
	r.demand("t", "s", mark(6), mark(1), time.Now().Add(-time.Hour).UnixMilli())
	verdict(Behind)
	failure := schedule.Failure{Code: "corrupt_file", Class: schedule.Data, Message: "generation 2 is damaged", Generation: 2, Count: 3, FailedMS: time.Now().UnixMilli()}
	out, err := schedule.Outcome{Execution: "x", Kind: schedule.KindMerge, Result: schedule.ResultFailed, Shards: map[string]schedule.Failure{"s": failure}}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	r.put(r.keys.Outcome("t", etcd.GroupOf("s")), out)
	verdict(Attention)
	page, err := r.see.Failures(Query{})
	if err != nil || page.Total != 1 || page.Items[0].Code != "corrupt_file" || !page.Items[0].Attention || page.Items[0].Remedy == "" {
		t.Errorf("%+v %v", page, err)
	}
	// The failure is over once the mark has passed the generation.
	r.demand("t", "s", mark(6), mark(6), 0)
	verdict(CaughtUp)
	if page, _ := r.see.Failures(Query{}); page.Total != 0 {
		t.Errorf("a failure that is over is shown: %+v", page)
	}
}

func TestATurnShowsHowFarItIsUntilItIsReleased(t *testing.T) {
	r := newRig(t)
	r.demand("t", "s", mark(10), mark(0), time.Now().UnixMilli())
	r.until("the shard is seen", func() bool { v, _ := r.see.Table("t"); return v.PendingRows == 100 })
	unit, err := schedule.Unit{ID: "u", Kind: schedule.KindMerge, Table: "t", Groups: schedule.AllGroups, Bytes: 1000}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	turn := map[string]any{"v": 1, "execution": "x", "executor": "e", "unit": json.RawMessage(unit), "turns": "ffff", "started_ms": time.Now().Add(-10 * time.Second).UnixMilli()}
	for group := range etcd.Groups {
		r.put(r.keys.Turn("t", group), turn)
	}
	r.put(r.keys.Progress("x"), map[string]any{"v": 1, "seq": 4, "stage": "writing", "rows": 50, "bytes": 500})
	var turns []Turn
	r.until("progress is seen", func() bool { turns = r.see.Turns("t"); return len(turns) == 1 && turns[0].Sequence == 4 })
	got := turns[0]
	if got.Fraction != 0.5 || got.RowsPerSecond < 4 || got.LeftMS <= 0 || got.Stage != "writing" || got.Groups != etcd.Groups {
		t.Errorf("%+v", got)
	}
	if _, err := r.client.Delete(t.Context(), r.keys.TurnsOfTable("t"), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	r.until("the turn is gone", func() bool { return len(r.see.Turns("")) == 0 })
}

func TestADetailNamesThePartitionColumns(t *testing.T) {
	r := newRig(t)
	s, err := schema.Parse(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},{"name":"day","type":"date","nullable":true,"metadata":{}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	for name, columns := range map[string][]string{"divided": {"day"}, "whole": {}} {
		if _, err := table.Create(t.Context(), r.store, name, table.CreateOptions{Schema: s, PartitionBy: columns}, r.see.deps()); err != nil {
			t.Fatal(err)
		}
		if d, err := r.see.Detail(t.Context(), name); err != nil || d.PartitionBy == nil || !slices.Equal(d.PartitionBy, columns) {
			t.Errorf("%s: partitioned by %#v, %v; want %v", name, d.PartitionBy, err, columns)
		}
	}
}

func TestCommitsAreReadOnceAndTheNewestFirst(t *testing.T) {
	r := newRig(t)
	s, err := schema.Parse(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	made, err := table.Create(t.Context(), r.store, "t", table.CreateOptions{Schema: s}, r.see.deps())
	if err != nil {
		t.Fatal(err)
	}
	snapshot := made.Snapshot
	for i := range 4 {
		m := snapshot.Metadata
		m.Configuration = map[string]string{}
		for k, v := range snapshot.Metadata.Configuration {
			m.Configuration[k] = v
		}
		m.Configuration["note"] = fmt.Sprint(i)
		done, err := made.Log.Commit(t.Context(), deltalog.Intent{TableID: made.ID, Read: snapshot, Metadata: &m, Info: deltalog.CommitInfo{Operation: "SET TBLPROPERTIES"}})
		if err != nil {
			t.Fatal(err)
		}
		snapshot = done.Snapshot
	}
	commits, more, err := r.see.Commits(t.Context(), "t", 0, 3)
	if err != nil || !more || len(commits) != 3 || commits[0].Version != 4 || commits[2].Version != 2 {
		t.Fatalf("%+v %v %v", commits, more, err)
	}
	rest, more, err := r.see.Commits(t.Context(), "t", 2, 3)
	if err != nil || more || len(rest) != 2 || rest[1].Version != 0 || rest[1].Operation != "CREATE TABLE" {
		t.Fatalf("%+v %v %v", rest, more, err)
	}
	detail, err := r.see.Detail(t.Context(), "t")
	if err != nil || detail.Version != 4 || len(detail.Columns) != 1 || detail.Properties["note"] != "3" {
		t.Fatalf("%+v %v", detail, err)
	}
}

func BenchmarkTablesOfALargeFleet(b *testing.B) {
	o := New(Config{Clock: clock.System(), Keys: etcd.KeysOf("test"), Store: objstore.NewMemory(clock.System()), Random: random.New(), Log: hclog.NewNullLogger()})
	for i := range 13_400 {
		name := fmt.Sprintf("team-%03d/table-%05d", i%200, i)
		for s := range 4 {
			d := demand.Record{TableID: "id", Incarnation: 1, Sealed: mark(uint64(i%50 + 1)), Merged: mark(1)}
			o.put(o.keys.Demand(0, name, fmt.Sprint("s", s)), d.Encode())
		}
	}
	b.ResetTimer()
	for range b.N {
		if _, err := o.Tables(Query{Sort: "pending", Desc: true}); err != nil {
			b.Fatal(err)
		}
	}
}
