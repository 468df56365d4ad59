package executor

import (
	"tidemark/internal/etcd"
	"tidemark/internal/merge"
	"tidemark/internal/schedule"
)

// result is what one execution did, before it is split by group.
type result struct {
	merge merge.Outcome // of a merge
	// Of maintenance: whether it changed anything, and whether there is more to do at once.
	did, more bool
	// logVersion is the newest version of the log that was committed, or checkpointed; 0 for none.
	logVersion int64
	failure    *schedule.Failure // of the whole execution
}

// outcomes splits a result into one record per turn. previous are the records before it, by turn; now is this
// executor's wall clock in milliseconds.
//
// A failure of the whole execution is every turn's. Otherwise a turn's record speaks of the shards of its group only,
// so a poisoned shard is not held against the other groups (invariant 8).
func outcomes(kind schedule.Kind, turns etcd.TurnSet, base schedule.Run, r result, previous map[int]*schedule.Outcome) (map[int][]byte, error) {
	runs := map[int]*schedule.Run{}
	for turn := range turns.All() {
		run := base
		run.Kind, run.Failure, run.Did, run.More, run.LogVersion = kind, r.failure, r.did, r.more, r.logVersion
		runs[turn] = &run
	}
	// A merge also reports the marks of shards that it found merged already; without a commit, its own or the one that
	// was faster, it found nothing to do.
	merged := r.merge.Merged
	if len(r.merge.Commits) == 0 && !r.merge.AlreadyMerged {
		merged = nil
	}
	for _, m := range merged {
		if run := runs[etcd.GroupOf(m.Shard)]; run != nil {
			run.Merged = append(run.Merged, schedule.ShardMark{Shard: m.Shard, Gen: m.Mark.Gen})
			run.More = run.More || m.Remaining > 0 && !failed(r.merge.Failures, m.Shard)
		}
	}
	for _, f := range r.merge.Failures {
		if run := runs[etcd.GroupOf(f.Shard)]; run != nil {
			run.Failures = append(run.Failures, schedule.ShardFailure{Shard: f.Shard, Failure: schedule.Failure{
				Code: f.Code, Class: schedule.FailureClass(f.Class), Message: f.Message, Generation: f.Generation,
			}})
		}
	}
	records := map[int][]byte{}
	for turn, run := range runs {
		record, err := schedule.Next(previous[turn], *run).Marshal()
		if err != nil {
			return nil, err
		}
		records[turn] = record
	}
	return records, nil
}

func failed(failures []merge.ShardFailure, shard string) bool {
	for _, f := range failures {
		if f.Shard == shard {
			return true
		}
	}
	return false
}
