package control

import (
	"testing"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/internal/rowkey"
	"tidemark/internal/schedule"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

// rows counts the rows of a table by its statistics.
func (r *rig) rows(name string) (rows int64) {
	r.t.Helper()
	now, err := r.load(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	for add := range now.Snapshot.Files() {
		n, _ := add.Rows()
		rows += n
	}
	return rows
}

func TestAPoisonedGenerationIsExplainedSkippedWithAReasonAndTheShardGoesOn(t *testing.T) {
	r := newEmptyRig(t)
	r.create("orders")
	_, stopMaster := r.master()
	r.until("the cluster", func() bool { return r.count(r.keys.Cluster()) == 1 })
	r.seal("orders", "a", 4)
	r.damage("orders", "a", 2)
	skip := SkipRequest{Table: "orders", Shard: "a", Generation: 2, Reason: "the disk lied"}

	_, err := r.Skip(t.Context(), skip, real)
	refused(t, err, CodeNotTheFailing, "not the next one")
	stopExecutor := r.executor("e1")
	if _, err := r.Merge(t.Context(), "orders", PriorityNormal, real); err != nil {
		t.Fatal(err)
	}
	n := etcd.GroupOf("a")
	r.until("the failure", func() bool {
		all, err := r.outcomes(t.Context(), "orders")
		return err == nil && all[n].record != nil && all[n].record.Shards["a"].Generation == 2 && r.count(r.keys.TurnsAll()) == 0
	})
	x, err := r.Explain(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if s := x.Shards[0]; s.Code != schedule.CodeBackoff || s.Failure == nil || s.Failure.Class != schedule.Data || len(x.Attention) != 1 {
		t.Errorf("%+v %v", s, x.Attention)
	}

	_, err = r.Skip(t.Context(), SkipRequest{Table: "orders", Shard: "a", Generation: 3, Reason: "x"}, real)
	refused(t, err, CodeNotTheFailing, "not the next one")
	_, err = r.Skip(t.Context(), SkipRequest{Table: "orders", Shard: "a", Generation: 2, Reason: "  "}, real)
	refused(t, err, CodeReasonMissing, "--reason")
	_, err = r.Skip(t.Context(), SkipRequest{Table: "orders", Shard: "b", Generation: 1, Reason: "x"}, real)
	refused(t, err, CodeUnknownShard, `"b"`)
	stopExecutor() // what it and the master still write on their own account is no effect of the dry run
	stopMaster()
	r.dryRun(func(o Options) (Done, error) { return r.Skip(t.Context(), skip, o) }, "10 rows")
	r.master()
	r.executor("e1")

	d, err := r.Skip(t.Context(), skip, real)
	did(t, d, err, true, "Generation 2 of shard a", "10 rows", "Version")
	now, err := r.load(t.Context(), "orders")
	if err != nil || now.Mark("a") < 2 {
		t.Fatalf("the mark is %d, %v", now.Mark("a"), err)
	}
	commits, err := now.Log.Since(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, c := range commits {
		if c.Info.Operation == OperationSkip {
			found = true
			if p := c.Info.Parameters; p["reason"] != "the disk lied" || p["by"] != "tester" || p["shard"] != "a" || p["generation"] != "2" || c.Info.Metrics["numSkippedRows"] != 10 {
				t.Errorf("the commit says %+v", c.Info)
			}
		}
	}
	if !found {
		t.Error("no commit says that a generation was skipped")
	}

	if _, err := r.Merge(t.Context(), "orders", PriorityNormal, real); err != nil {
		t.Fatal(err)
	}
	r.until("the rest of the shard", func() bool {
		got, err := r.client.Get(t.Context(), r.keys.Demand(etcd.SlotOf("orders", testSlots), "orders", "a"))
		if err != nil || len(got.Kvs) != 1 {
			return false
		}
		record, err := demand.Parse(got.Kvs[0].Value)
		return err == nil && record.Merged != nil && record.Merged.Gen == 4
	})
	if rows := r.rows("orders"); rows != 30 {
		t.Errorf("%d rows, want those of three generations", rows)
	}
	all, err := r.outcomes(t.Context(), "orders")
	if err != nil || len(all[n].record.Shards) != 0 {
		t.Errorf("%+v, %v", all[n].record, err)
	}
	if skips := all[n].record.Skips; len(skips) != 1 || skips[0].Reason != "the disk lied" || skips[0].By != "tester" || skips[0].Generation != 2 {
		t.Errorf("the ledger says %+v", skips)
	}
}

func TestOnlyTheGenerationThatIsRecordedAsFailingForGoodIsSkipped(t *testing.T) {
	r := newRig(t)
	r.create("orders")
	r.seal("orders", "a", 2)
	skip := func(n uint64) error {
		_, err := r.Skip(t.Context(), SkipRequest{Table: "orders", Shard: "a", Generation: n, Reason: "x"}, real)
		return err
	}
	refused(t, skip(1), CodeNotTheFailing, "no recorded failure")
	record := func(f schedule.Failure) {
		r.outcome("orders", etcd.GroupOf("a"), schedule.Outcome{Kind: schedule.KindMerge, EndedMS: time.Now().UnixMilli(), Shards: map[string]schedule.Failure{"a": f}})
	}
	record(data(2))
	refused(t, skip(1), CodeNotTheFailing, "fails at generation 2")
	record(schedule.Failure{Code: "store_failed", Class: schedule.Retryable, Generation: 1, Count: 3})
	refused(t, skip(1), CodeNotTheFailing, "store_failed")
	record(data(1))
	if err := skip(1); err != nil {
		t.Error(err)
	}
	refused(t, skip(1), CodeNotTheFailing, "merged mark is 1")
	refused(t, skip(3), CodeNotTheFailing)
	if err := table.Drop(t.Context(), r.store, "orders", r.tableDeps()); err != nil {
		t.Fatal(err)
	}
	refused(t, skip(2), CodeDropped)
}

// TestAGenerationOfAnUpsertTableIsSkipped: the commit has no file, touches no bucket, and is no foreign write.
func TestAGenerationOfAnUpsertTableIsSkipped(t *testing.T) {
	r := newRig(t)
	columns, err := schema.FromArrow(rowSchema)
	if err != nil {
		t.Fatal(err)
	}
	tbl, err := table.Create(t.Context(), r.store, "states", table.CreateOptions{Schema: columns, Key: []string{"n"}, Buckets: 2}, r.tableDeps())
	if err != nil {
		t.Fatal(err)
	}
	shard := rowkey.BucketShard(1)
	chain := shardmanifest.Open(r.store, "states", tbl.ID, shard, shardmanifest.Options{Clock: clock.System(), Random: random.New()})
	hold, err := chain.Claim(t.Context(), shardmanifest.ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hold.Seal(t.Context(), shardmanifest.Generation{Path: chain.GenerationPath(hold.Next()), Bytes: 10, Rows: 2, SealedMS: 1}); err != nil {
		t.Fatal(err)
	}
	r.outcome("states", etcd.GroupOf(shard), schedule.Outcome{Kind: schedule.KindMerge, EndedMS: time.Now().UnixMilli(), Shards: map[string]schedule.Failure{shard: data(1)}})
	d, err := r.Skip(t.Context(), SkipRequest{Table: "states", Shard: shard, Generation: 1, Reason: "x"}, real)
	did(t, d, err, true, "2 rows")
	now, err := r.load(t.Context(), "states")
	if err != nil || now.Mark(shard) != 1 || now.Mergeable() != nil {
		t.Errorf("mark %d, %v, %v", now.Mark(shard), now.Mergeable(), err)
	}
}
