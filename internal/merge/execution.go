package merge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/deltalog"
	"tidemark/internal/demand"
	"tidemark/internal/objstore"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

const (
	// plansMax bounds how often an execution plans again because of others, or because a file it needs is gone.
	plansMax = 8
	// rowGroupBytesMax is about how much is encoded before a row group ends: the unit in which readers of the table
	// read, and the most that a writer holds in memory.
	rowGroupBytesMax = 32 << 20
	rowGroupBytesMin = 1 << 20
	// rowGroupsBucket is into about how many row groups the files of a bucket are cut, between these bounds: what a merge
	// with few keys must decode and encode anew is whole row groups, and readers pay for many small ones, and for small
	// chunks, of which there is one for every column.
	rowGroupsBucket     = 32
	bucketGroupBytesMin = 512 << 10
	bucketGroupBytesMax = 8 << 20
	bucketChunkBytesMin = 64 << 10
	// ownTablesBytes bounds the snapshot that an execution keeps for itself if it was given no cache.
	ownTablesBytes = 64 << 20
)

// execution is one run of a merge, over all its plans and commits.
type execution struct {
	Deps
	req   Request
	log   hclog.Logger
	store *objstore.Scope // closed when the execution is too old to commit
	meter *meter
	files *files
	began instant

	lifetime time.Duration // half of the table's deleted-file retention; 0 until the table is known

	table      *table.Table
	properties deltalog.Properties
	shards     map[string]*shard
	// missing are generations whose file was not there: the first time, another merge and a cleanup may have been
	// faster, and a fresh plan knows; the second time the file is lost.
	missing   map[string]uint64
	out       Outcome
	numbering []*numbers // of the last attempt's jobs
	mayDelete bool       // no request that is still under way could make our files visible
}

// shard is what an execution knows of one of its shards.
type shard struct {
	manifest *shardmanifest.Manifest
	mark     uint64
	failure  *Error
}

// usable is what of a backlog comes before the generation at which the shard stops.
func (s *shard) usable(b backlog) backlog {
	if s.failure == nil {
		return b
	}
	if s.failure.Generation == 0 {
		return backlog{shard: b.shard, mark: b.mark}
	}
	return b.before(s.failure.Generation)
}

// instant is a moment on both clocks.
type instant struct {
	wall time.Time
	mono time.Duration
}

// age is the larger of what the two clocks say has passed since the execution began: either may have stood still.
func (x *execution) age() time.Duration {
	return max(x.Clock.Mono()-x.began.mono, x.Clock.Now().Round(0).Sub(x.began.wall.Round(0)))
}

func newExecution(d Deps, req Request) *execution {
	if d.Log == nil {
		d.Log = hclog.NewNullLogger()
	}
	if d.Tables == nil {
		d.Tables = table.NewCache(d.Store, table.Deps{Clock: d.Clock, Random: d.Random, Log: d.Log}, ownTablesBytes)
	}
	d.Lanes = max(d.Lanes, 1)
	req.CommitsMax = max(req.CommitsMax, 1)
	return &execution{
		Deps: d, req: req, log: d.Log.With("table", req.Table, "execution", req.Execution),
		store:  objstore.NewScope(d.Store, d.Clock),
		meter:  &meter{report: d.Progress},
		files:  &files{keys: map[string]struct{}{}},
		began:  instant{d.Clock.Now(), d.Clock.Mono()},
		shards: map[string]*shard{}, missing: map[string]uint64{},
		out:       Outcome{Table: req.Table},
		mayDelete: true,
	}
}

// replan carries out plans until one is not void by what others did, within bounds.
func (x *execution) replan(ctx context.Context, message string, plan func(context.Context) error) (err error) {
	for range plansMax {
		err = plan(ctx)
		var again *deltalog.PlanAgainError
		if !errors.As(err, &again) {
			break
		}
		x.log.Info(message, "reason", again.Reason)
		x.removeOwn(ctx)
	}
	return err
}

func (x *execution) run(ctx context.Context) error {
	err := x.replan(ctx, "planning again", x.plan)
	switch {
	case errors.Is(err, deltalog.ErrAlreadyMerged):
		x.out.AlreadyMerged = true
		_, err = x.read(ctx) // for the marks to report
	case err != nil && x.tooOld():
		err = x.ageError()
	}
	return err
}

// plan makes one plan from storage and carries it out.
func (x *execution) plan(ctx context.Context) error {
	began := x.Clock.Now()
	backlogs, err := x.read(ctx)
	x.Trace.Stage("plan", began, x.Clock.Now(), err)
	if err != nil {
		return err
	}
	if err := x.table.Mergeable(); err != nil {
		return err
	}
	return x.mergeAll(ctx, backlogs)
}

// tooOld says whether a sweep might take files of this execution for abandoned ones before they are committed.
func (x *execution) tooOld() bool { return x.lifetime > 0 && x.age() >= x.lifetime }

func (x *execution) ageError() error {
	return &Error{Table: x.req.Table, Code: CodeTooOld, Class: Retryable, Err: fmt.Errorf(
		"the execution is older than %s, half of delta.deletedFileRetentionDuration, and may not commit any more; raise that property or merge less at a time", x.lifetime)}
}

// mergeAll commits backlogs, oldest first, in as many commits as they need and the request allows.
func (x *execution) mergeAll(ctx context.Context, backlogs []backlog) error {
	for len(backlogs) > 0 {
		now, _ := nextCommit(backlogs, limits{commitBytesMax, commitGenerationsMax})
		stopped, err := x.mergeOnce(ctx, now)
		if err != nil {
			return err
		}
		if err := x.stop(stopped); err != nil {
			return err
		}
		var rest []backlog
		for _, b := range backlogs {
			s := x.shards[b.shard]
			if b = s.usable(b.after(s.mark)); len(b.generations) > 0 {
				rest = append(rest, b)
			}
		}
		if backlogs = rest; len(backlogs) == 0 || len(x.out.Commits) >= x.req.CommitsMax {
			break
		}
		if err := x.goOn(ctx); err != nil {
			return err
		}
	}
	return nil
}

// goOn takes up the table as it is after a commit. If somebody else has moved our shards' marks meanwhile, what is left
// of the plan is void.
func (x *execution) goOn(ctx context.Context) error {
	t, err := x.Tables.Load(ctx, x.req.Table)
	if err != nil {
		return err
	}
	again := &deltalog.PlanAgainError{Table: x.req.Table}
	if t.ID != x.table.ID {
		again.Reason = "it was dropped and created again"
		return again
	}
	for name, s := range x.shards {
		if s.manifest != nil && t.Mark(name) != s.mark {
			again.Reason = fmt.Sprintf("the mark of shard %s is %d after a commit of %d", name, t.Mark(name), s.mark)
			return again
		}
	}
	return x.adopt(t)
}

// stop records the shards that cannot go on. A missing file is first looked for again in a fresh plan.
func (x *execution) stop(stopped stops) error {
	var again error
	for _, name := range slices.Sorted(maps.Keys(stopped)) {
		e := stopped[name]
		if e.Code == CodeMissing && x.missing[name] != e.Generation {
			x.missing[name] = e.Generation
			again = &deltalog.PlanAgainError{Table: x.req.Table, Reason: e.Error()}
			continue
		}
		if e.Code == CodeMissing {
			e.Class = Data
		}
		x.fail(e)
	}
	return again
}

func (x *execution) fail(e *Error) {
	x.log.Warn("shard stops", "shard", e.Shard, "generation", e.Generation, "code", e.Code, "error", e.Err)
	if s := x.shards[e.Shard]; s != nil {
		s.failure = e
	} else {
		x.shards[e.Shard] = &shard{failure: e}
	}
}

// removeOwn deletes the files that were written and not committed, unless a request might yet commit them. What cannot
// be deleted is left to the sweep.
func (x *execution) removeOwn(ctx context.Context) {
	if !x.mayDelete {
		return
	}
	for _, key := range x.files.take() {
		if err := x.Store.Delete(ctx, key); err != nil {
			x.log.Warn("a file that was not committed could not be deleted; the sweep will", "file", key, "error", err)
		}
	}
}

func (x *execution) outcome() Outcome {
	out := x.out
	for _, name := range slices.Sorted(maps.Keys(x.shards)) {
		s := x.shards[name]
		if e := s.failure; e != nil {
			out.Failures = append(out.Failures, ShardFailure{
				Shard: name, Code: e.Code, Class: e.Class, Message: e.Error(), Generation: e.Generation,
			})
		}
		if s.manifest == nil {
			continue
		}
		bytes, rows, epoch, ok := s.manifest.CumAt(s.mark)
		if !ok {
			continue // a mark without its bytes and rows is not one
		}
		m := ShardMerged{Shard: name, Mark: demand.Mark{Gen: s.mark, Epoch: epoch, Bytes: bytes, Rows: rows}}
		if pending := s.manifest.Pending(s.mark); len(pending) > 0 {
			m.NextSealedMS, m.Remaining = pending[0].SealedMS, len(pending)
		}
		out.Merged = append(out.Merged, m)
	}
	return out
}

// failed is the failure of a shard at a generation, or of the whole execution if that is not the generation's fault.
func (x *execution) failed(shard string, generation uint64, err error) error {
	e := &Error{Table: x.req.Table, Shard: shard, Generation: generation, Class: Data, Err: err}
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		e.Code, e.Class = CodeMissing, Retryable
	case storeFailed(err):
		return err
	default:
		e.Code = inRows(err, CodeDamaged)
	}
	return e
}
