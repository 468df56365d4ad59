package schedule

import (
	"strings"
	"testing"
)

func poisoned() Outcome {
	return Outcome{V: 1, Execution: "x", Kind: KindMerge, Result: ResultFailed, EndedMS: 10_000, Nothing: 3,
		Failure: &Failure{Code: "store_failed", Class: Retryable, Count: 4, FailedMS: 9_000},
		Shards: map[string]Failure{
			"a": {Code: "generation_damaged", Class: Data, Generation: 7, Count: 2, FailedMS: 10_000},
			"b": {Code: "schema_clash", Class: Data, Generation: 3, Count: 1, FailedMS: 4_000},
		}}
}

func TestARetryClearsOneShardAndWhatHoldsItsGroupAndLeavesTheRestAsLongToWait(t *testing.T) {
	was := poisoned()
	next, changed := was.Retried("a", 60_000)
	if !changed || next.Failure != nil || len(next.Shards) != 1 || !next.More || next.Nothing != 0 {
		t.Errorf("%+v", next)
	}
	if len(was.Shards) != 2 {
		t.Error("the record that was given is changed")
	}
	if f, blocked := next.Blocked("b", 0, 60_000); !blocked || f.Count != 1 {
		t.Errorf("b is not blocked: %+v", f)
	}
	_, before, _ := was.shardBlock("b", 0, was.EndedMS, 60_000)
	_, after, _ := next.shardBlock("b", 0, next.EndedMS, 60_000)
	if before != after {
		t.Errorf("b was to be tried at %d, and now at %d", before, after)
	}
	if _, blocked := next.Blocked("a", 0, 60_000); blocked {
		t.Error("a is still blocked")
	}
	all, changed := was.Retried("", 60_000)
	if !changed || all.Failure != nil || len(all.Shards) != 0 {
		t.Errorf("%+v", all)
	}
	if _, changed := all.Retried("", 61_000); changed {
		t.Error("there was nothing left to clear")
	}
	only, changed := Outcome{Shards: map[string]Failure{"b": {Code: "x", Class: Data}}}.Retried("a", 1)
	if changed || len(only.Shards) != 1 {
		t.Errorf("another shard was cleared: %+v", only)
	}
}

func TestASkipIsKeptOverExecutionsTheLatestOnes(t *testing.T) {
	o := poisoned()
	for n := range uint64(skipsMax + 3) {
		o = o.Skipped(Skip{Shard: "a", Generation: 7 + n, Reason: strings.Repeat("x", 2*messageBytesMax), By: "me", AtMS: 20_000})
	}
	if _, ok := o.Shards["a"]; ok || len(o.Shards) != 1 || o.Failure == nil {
		t.Errorf("%+v", o)
	}
	next := Next(&o, Run{Execution: "y", Kind: KindMerge, EndedMS: 30_000, Did: true})
	if len(next.Skips) != skipsMax || next.Skips[skipsMax-1].Generation != 7+skipsMax+2 || len(next.Skips[0].Reason) != messageBytesMax {
		t.Errorf("%d skips, %+v", len(next.Skips), next.Skips[len(next.Skips)-1])
	}
	if again := Next(&next, Run{Execution: "z", Incarnation: 9, Kind: KindMerge}); len(again.Skips) != 0 {
		t.Error("a new life of the table remembers the skips of the old one")
	}
}

func TestEveryFailureThatNeedsAPersonHasARemedyThatNamesWhatToDo(t *testing.T) {
	for _, f := range []Failure{
		{Code: "generation_damaged", Class: Data, Generation: 3}, {Code: "anything", Class: Data}, {Code: "anything", Class: Data, Generation: 1},
		{Code: "anything", Class: Config}, {Code: "store_failed", Class: Retryable, Count: attentionAfter},
	} {
		if remedy := f.Remedy(); !f.NeedsAttention() || !strings.Contains(remedy, "`tidemark ") {
			t.Errorf("%+v: %s", f, remedy)
		}
	}
	if remedy := (Failure{Code: "store_failed", Class: Retryable, Count: 1}).Remedy(); !strings.Contains(remedy, "by itself") {
		t.Error(remedy)
	}
}

func TestEachKindOfMaintenanceFailsByItself(t *testing.T) {
	run := func(prev *Outcome, kind Kind, code string, ended int64) *Outcome {
		r := Run{Execution: "x", Kind: kind, EndedMS: ended, Did: code == ""}
		if code != "" {
			r.Failure = &Failure{Code: code, Class: Data}
		}
		next := Next(prev, r)
		return &next
	}
	o := run(nil, KindCompact, "base_file_damaged", 1000)
	o = run(o, KindCleanup, "store_refused", 2000)
	o = run(o, KindCheckpoint, "", 3000)
	if len(o.Upkeep) != 2 || o.Failure == nil || o.Result != ResultMerged {
		t.Fatalf("a checkpoint that succeeds cures nothing else: %+v", o)
	}
	o = run(o, KindCompact, "base_file_damaged", 4000)
	if o.Upkeep[KindCompact].Count != 2 || o.Failure.Code != "base_file_damaged" {
		t.Fatalf("%+v", o)
	}
	value, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseOutcome(value)
	if err != nil || len(back.Upkeep) != 2 {
		t.Fatalf("%+v, %v", back, err)
	}
	if _, blocked := back.upkeepBlock(KindCheckpoint, 4000, 5000); blocked {
		t.Error("a checkpoint waits for another's failure")
	}
	if until, blocked := back.upkeepBlock(KindCleanup, 4000, 5000); !blocked || until != 2000+probeDelay.Milliseconds() {
		t.Errorf("cleanup is tried at %d", until)
	}
	if all, changed := back.Retried("", 6000); !changed || all.Upkeep != nil || all.Failure != nil {
		t.Errorf("%+v", all)
	}
	o = run(run(&back, KindCompact, "", 7000), KindCleanup, "", 8000)
	if len(o.Upkeep) != 0 || o.Failure != nil {
		t.Errorf("all succeeded: %+v", o)
	}
}
