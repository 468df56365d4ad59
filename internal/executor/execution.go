package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/maintain"
	"tidemark/internal/merge"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
	"tidemark/internal/tracing"
)

// errStuck cancels an execution whose completed work stands still. It is retried like any failure.
var errStuck = errors.New("no work was completed for longer than the idle timeout")

// stopped is why an execution was cancelled, be it by its watchdog or by a second signal. Whatever of it comes up in the
// work below counts as the end of its context: else a merge would take it for a fault of the generation that it was reading.
type stopped struct{ cause error }

func (s stopped) Error() string        { return s.cause.Error() }
func (s stopped) Unwrap() error        { return s.cause }
func (s stopped) Is(target error) bool { return target == context.Canceled }

// execution is one run of a unit.
type execution struct {
	turn    ownership.Turn
	unit    schedule.Unit
	budget  int64
	started time.Duration      // monotonic
	trace   *tracing.Execution // nil if nothing is traced

	demandRevision int64 // at which demand was read; 0 = it was not

	mu   sync.Mutex // guards the following
	now  merge.Progress
	seq  int64
	last time.Duration // when seq rose, monotonic
}

// advance notes completed work. Only a change counts: a report of the same numbers is no progress.
func (x *execution) advance(p merge.Progress, at time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p != x.now {
		x.now, x.last = p, at
		x.seq++
	}
}

// step notes completed work that is not counted in rows.
func (x *execution) step(at time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = at
	x.seq++
}

func (x *execution) progress() (p ownership.Progress, last time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	stage := "reading"
	switch {
	case x.now.Commits > 0:
		stage = "committed"
	case x.now.RowsWritten > 0:
		stage = "writing"
	}
	if x.unit.Kind != schedule.KindMerge {
		stage = string(x.unit.Kind)
	}
	return ownership.Progress{Seq: x.seq, Stage: stage, Rows: x.now.RowsWritten, Bytes: x.now.BytesUploaded}, x.last
}

// watch beats until ctx is done: it records progress, and calls cancel when the sequence stands still for idle, or when
// the turns are not ours any more.
func (e *Executor) watch(ctx context.Context, x *execution, cancel context.CancelCauseFunc) {
	for next := firstBeat; clock.Sleep(ctx, e.deps.Clock, next) == nil; next = heartbeatEvery {
		p, last := x.progress()
		err := e.turns.Progress(ctx, x.turn, p)
		if errors.Is(err, ownership.ErrTurnLost) {
			cancel(err)
		}
		if e.deps.Clock.Mono()-last >= e.config.IdleTimeout {
			cancel(errStuck)
		}
	}
}

// run carries a claimed unit from claim to release, and returns what there is to publish. Cancelling ctx cancels the work,
// and so does the end of the session's grant; the release is sent all the same.
func (e *Executor) run(ctx context.Context, x *execution) merge.Outcome {
	log := e.deps.Log.With("table", x.turn.Table, "turns", x.turn.Turns.String(), "kind", x.unit.Kind, "execution", x.turn.Execution)
	log.Debug("claimed")
	previous, err := e.previousOutcomes(ctx, x.turn, x.unit.Incarnation)
	var did result
	if err == nil {
		did, err = e.work(ctx, x, previous)
	}
	did.failure = failureOf(x.turn.Grant, err)
	records, err := outcomes(x.unit.Kind, x.turn.Turns, schedule.Run{
		Execution: x.turn.Execution, Executor: e.config.ID, Incarnation: max(did.merge.Incarnation, x.unit.Incarnation), EndedMS: e.deps.Clock.Now().UnixMilli(),
		DemandRevision: x.demandRevision,
	}, did, previous)
	if err != nil {
		log.Error("the outcome cannot be recorded", "error", err)
	}
	releasing := e.deps.Clock.Now()
	err = e.turns.Release(context.WithoutCancel(ctx), x.turn, records)
	x.trace.Stage("release", releasing, e.deps.Clock.Now(), err)
	if err != nil {
		log.Warn("releasing", "error", err)
	}
	e.metrics.observe(x, did, e.deps.Clock.Mono()-x.started)
	if did.failure != nil {
		log.Warn("failed", "code", did.failure.Code, "class", did.failure.Class, "error", did.failure.Message)
	} else {
		log.Info("done", "commits", len(did.merge.Commits), "generations", did.merge.Generations, "rows", did.merge.RowsOut,
			"already_merged", did.merge.AlreadyMerged, "failures", len(did.merge.Failures), "took", e.deps.Clock.Mono()-x.started)
	}
	return did.merge
}

// work runs the unit under the watchdog.
func (e *Executor) work(ctx context.Context, x *execution, previous map[int]*schedule.Outcome) (result, error) {
	above := []context.Context{ctx, x.turn.Grant.Context}
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	cancel := func(cause error) { end(stopped{cause}) }
	for _, ends := range above {
		unlink := context.AfterFunc(ends, func() { cancel(context.Cause(ends)) })
		defer unlink()
	}
	beating := make(chan struct{})
	beat, stop := context.WithCancel(ctx)
	go func() {
		defer close(beating)
		e.watch(beat, x, cancel)
	}()
	defer func() {
		stop()
		<-beating
	}()
	did, err := e.perform(ctx, x, previous)
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, errStuck) || errors.Is(cause, ownership.ErrTurnLost)) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return did, err
}

// perform does what the unit is for.
func (e *Executor) perform(ctx context.Context, x *execution, previous map[int]*schedule.Outcome) (result, error) {
	switch x.unit.Kind {
	case schedule.KindMerge:
		out, err := e.merge(ctx, x, previous)
		return rewritten(out), err
	case schedule.KindCheckpoint:
		report, err := maintain.Checkpoint(ctx, e.maintenance(x), x.turn.Table)
		return result{did: err == nil, logVersion: max(report.CheckpointVersion, 0)}, merge.Classified(ctx, "checkpoint", x.turn.Table, err)
	case schedule.KindCompact:
		return e.compact(ctx, x)
	case schedule.KindCleanup:
		report, err := maintain.Cleanup(ctx, e.maintenance(x), x.turn.Table)
		did := report.GenerationsTrimmed > 0 || len(report.ObjectsDeleted) > 0
		return result{did: did, more: report.More}, merge.Classified(ctx, "cleanup", x.turn.Table, err)
	}
	return result{}, fmt.Errorf("unit %s of table %s is of kind %q, which this executor does not know", x.unit.ID, x.turn.Table, x.unit.Kind)
}

// maintenance is what the maintenance of a table works with: the same scope as a merge.
func (e *Executor) maintenance(x *execution) maintain.Deps {
	scope, _ := e.scoped()
	return maintain.Deps{
		Store: scope, Clock: e.deps.Clock, Random: e.deps.Random, Log: e.deps.Log, Progress: func() { x.step(e.deps.Clock.Mono()) },
	}
}

// merge merges the shards of the claimed groups that have something pending and are not in backoff.
func (e *Executor) merge(ctx context.Context, x *execution, previous map[int]*schedule.Outcome) (merge.Outcome, error) {
	shards, revision, err := e.pendingShards(ctx, x.turn, previous)
	x.demandRevision = revision
	if err != nil || len(shards) == 0 {
		return merge.Outcome{Table: x.turn.Table}, err
	}
	return merge.Run(ctx, e.mergeDeps(x), merge.Request{Table: x.turn.Table, Shards: shards, Execution: x.turn.Execution, Budget: x.budget})
}

// mergeDeps is what rewriting a table's files works with.
func (e *Executor) mergeDeps(x *execution) merge.Deps {
	scope, tables := e.scoped()
	return merge.Deps{
		Store: scope, Clock: e.deps.Clock, Random: e.deps.Random, Mem: e.deps.Mem, Tables: tables, Log: e.deps.Log,
		Lanes: runtime.GOMAXPROCS(0), Trace: x.trace, Progress: func(p merge.Progress) { x.advance(p, e.deps.Clock.Mono()) },
	}
}

// rewritten is the result of what has rewritten a table's files.
func rewritten(out merge.Outcome) result {
	did := result{merge: out}
	if n := len(out.Commits); n > 0 {
		did.logVersion = out.Commits[n-1]
	}
	return did
}

// compact joins small base files.
func (e *Executor) compact(ctx context.Context, x *execution) (result, error) {
	out, err := merge.Compact(ctx, e.mergeDeps(x), merge.CompactRequest{Table: x.turn.Table, Execution: x.turn.Execution, Budget: x.budget})
	did := rewritten(out)
	did.did, did.more = len(out.Commits) > 0, out.More
	return did, err
}

// pendingShards lists the shards of the claimed groups which demand says have, or may have, something pending. It is a
// hint of where to look: what is merged is read from storage. It also returns the revision that demand was read at.
func (e *Executor) pendingShards(ctx context.Context, turn ownership.Turn, previous map[int]*schedule.Outcome) ([]string, int64, error) {
	nowMS := e.deps.Clock.Now().UnixMilli()
	var shards []string
	records, revision, err := e.demandOf(ctx, turn.Table)
	for shard, record := range records {
		group := etcd.GroupOf(shard)
		if !turn.Turns.Has(group) {
			continue
		}
		if n, known := record.Pending(); known && n == 0 {
			continue
		}
		if p := previous[group]; p != nil {
			var merged uint64
			if record.Merged != nil {
				merged = record.Merged.Gen
			}
			if _, blocked := p.Blocked(shard, merged, nowMS); blocked {
				continue
			}
		}
		shards = append(shards, shard)
	}
	return shards, revision, err
}

// failureOf is what an outcome record says of an execution's error; nil for none.
func failureOf(grant ownership.Grant, err error) *schedule.Failure {
	if err == nil {
		return nil
	}
	f := &schedule.Failure{Code: merge.CodeOf(err), Class: schedule.FailureClass(merge.ClassOf(err)), Message: err.Error()}
	switch {
	case errors.Is(err, errStuck):
		f.Code, f.Class = "stuck", schedule.Retryable
	case errors.Is(err, ownership.ErrTurnLost), grant.Err() != nil:
		f.Code, f.Class = "turn_lost", schedule.Lost
	}
	return f
}
