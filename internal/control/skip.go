package control

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tidemark/internal/deltalog"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

// OperationSkip is what commitInfo calls a skip.
const OperationSkip = "SKIP GENERATION"

// SkipRequest names a generation to leave out.
type SkipRequest struct {
	Table      string
	Shard      string
	Generation uint64
	Reason     string // why, for whoever reads the log in a year; required
}

// Skip leaves a generation that cannot be merged out of its table for good: it commits the shard's merged mark past it
// without its rows. It is refused unless that very generation is the next one of its shard and is recorded as failing
// with a failure that waiting does not cure.
//
//  1. The outcome record of the shard's group names this generation, and needs attention.
//  2. The mark is right before it, and the manifest lists it.
//  3. Commit the mark; commitInfo says what, why and who. A merge that has it in its plan loses the race and plans again.
//  4. Note it in the ledger, and publish the mark. Both may fail: a scan publishes, and the commit is the record.
func (c *Control) Skip(ctx context.Context, r SkipRequest, o Options) (Done, error) {
	if strings.TrimSpace(r.Reason) == "" {
		return Done{}, refuse(CodeReasonMissing, "skipping loses rows for good and needs a reason: give --reason")
	}
	cluster, err := c.cluster(ctx)
	if err != nil {
		return Done{}, err
	}
	execution := random.ID(c.d.Random)
	for range roundsMax {
		t, gen, err := c.skippable(ctx, r)
		if err != nil {
			return Done{}, err
		}
		sentence := fmt.Sprintf("Generation %d of shard %s of table %s is skipped: its %d rows (%d bytes) are not part of the table and will not be. "+
			"Its file %s stays until cleanup, at least an hour from now.", r.Generation, r.Shard, r.Table, gen.Rows, gen.Bytes, gen.Path)
		if o.DryRun {
			return o.done("skip", r.Table, r.Shard, true, "%s", sentence), nil
		}
		res, err := t.Log.Commit(ctx, skipIntent(t, r, o, execution, gen))
		var again *deltalog.PlanAgainError
		switch {
		case errors.As(err, &again):
			continue
		case errors.Is(err, deltalog.ErrAlreadyMerged):
			return Done{}, refuse(CodeNotTheFailing, "generation %d of shard %s of table %s was merged meanwhile; nothing is skipped", r.Generation, r.Shard, r.Table)
		case err != nil:
			return Done{}, err
		}
		return o.done("skip", r.Table, r.Shard, true, "%s Version %d of the log says so.%s", sentence, res.Version, c.noteSkip(ctx, cluster, t, r, o)), nil
	}
	return Done{}, refuse(CodeContended, "generation %d of shard %s of table %s is not skipped: others keep committing; try again", r.Generation, r.Shard, r.Table)
}

func skipIntent(t *table.Table, r SkipRequest, o Options, execution string, gen shardmanifest.Generation) deltalog.Intent {
	return deltalog.Intent{
		TableID: t.ID, Read: t.Snapshot, Upsert: t.Mode == table.Upsert,
		Marks: map[string]deltalog.MarkChange{deltalog.AppID(t.ID, r.Shard): {From: int64(r.Generation) - 1, To: int64(r.Generation)}},
		Info: deltalog.CommitInfo{
			Operation: OperationSkip, ExecutionID: execution,
			Parameters: map[string]string{
				"shard": r.Shard, "generation": strconv.FormatUint(r.Generation, 10), "path": gen.Path, "reason": r.Reason, "by": o.By,
			},
			Metrics: map[string]int64{"numSkippedRows": gen.Rows, "numSkippedBytes": gen.Bytes},
		},
	}
}

// skippable checks that a generation may be skipped, and returns what the shard's manifest says of it.
func (c *Control) skippable(ctx context.Context, r SkipRequest) (*table.Table, shardmanifest.Generation, error) {
	fail := func(err error) (*table.Table, shardmanifest.Generation, error) {
		return nil, shardmanifest.Generation{}, err
	}
	t, err := c.load(ctx, r.Table)
	if err != nil {
		return fail(err)
	}
	if err := t.Mergeable(); err != nil {
		return fail(err)
	}
	m, err := shardmanifest.Open(c.d.Store, t.Name, t.ID, r.Shard, shardmanifest.Options{Clock: c.d.Clock, Random: c.d.Random}).Latest(ctx)
	if errors.Is(err, shardmanifest.ErrNoShard) {
		return fail(refuse(CodeUnknownShard, "table %s has no shard %q; see `tidemark table show %s`", r.Table, r.Shard, r.Table))
	}
	if err != nil {
		return fail(err)
	}
	if t, err = c.load(ctx, r.Table); err != nil { // the mark is read after the manifest
		return fail(err)
	}
	if mark := t.Mark(r.Shard); r.Generation != mark+1 {
		return fail(refuse(CodeNotTheFailing, "generation %d of shard %s of table %s is not the next one: the merged mark is %d", r.Generation, r.Shard, r.Table, mark))
	}
	gen, ok := m.Generation(r.Generation)
	if !ok {
		return fail(refuse(CodeNotTheFailing, "shard %s of table %s has sealed no generation %d yet", r.Shard, r.Table, r.Generation))
	}
	records, err := c.outcomes(ctx, r.Table)
	if err != nil {
		return fail(fmt.Errorf("reading the failures of table %s: %w", r.Table, err))
	}
	var f schedule.Failure
	if last := records[etcd.GroupOf(r.Shard)].record; last != nil {
		f = last.Shards[r.Shard]
	}
	switch {
	case f.Code == "":
		return fail(refuse(CodeNotTheFailing, "shard %s of table %s has no recorded failure: only a generation that fails can be skipped", r.Shard, r.Table))
	case f.Generation != r.Generation:
		return fail(refuse(CodeNotTheFailing, "shard %s of table %s fails at generation %d with %s, not at %d", r.Shard, r.Table, f.Generation, f.Code, r.Generation))
	case !f.NeedsAttention():
		return fail(refuse(CodeNotTheFailing, "generation %d of shard %s of table %s failed with %s, which is tried again by itself; it can be skipped once it needs attention",
			r.Generation, r.Shard, r.Table, f.Code))
	}
	return t, gen, nil
}

// noteSkip leaves word of a skip that is committed. It returns what to add to the sentence.
func (c *Control) noteSkip(ctx context.Context, cluster etcd.Cluster, t *table.Table, r SkipRequest, o Options) string {
	skip := schedule.Skip{Shard: r.Shard, Generation: r.Generation, Reason: r.Reason, By: o.By, AtMS: c.nowMS()}
	_, err := c.changeOutcome(ctx, r.Table, etcd.GroupOf(r.Shard), func(now schedule.Outcome) (schedule.Outcome, bool) {
		return now.Skipped(skip), true
	})
	note := ""
	if err != nil {
		c.d.Log.Warn("a skip is committed and could not be noted in the ledger", "table", r.Table, "shard", r.Shard, "error", err)
		note = fmt.Sprintf(" The ledger in etcd does not show it: %v.", err)
	}
	if err := c.publishMark(ctx, cluster, t, r); err != nil {
		c.d.Log.Warn("the merged mark after a skip was not published; a scan does it", "table", r.Table, "shard", r.Shard, "error", err)
	}
	return note
}

// publishMark publishes the mark that a skip has committed.
func (c *Control) publishMark(ctx context.Context, cluster etcd.Cluster, t *table.Table, r SkipRequest) error {
	m, err := shardmanifest.Open(c.d.Store, t.Name, t.ID, r.Shard, shardmanifest.Options{Clock: c.d.Clock, Random: c.d.Random}).Latest(ctx)
	if err != nil {
		return err
	}
	bytes, rows, epoch, ok := m.CumAt(r.Generation)
	if !ok {
		return fmt.Errorf("generation %d is not listed any more", r.Generation)
	}
	next, _ := m.Generation(r.Generation + 1)
	_, err = demand.NewPublisher(c.d.Client, c.d.Keys, cluster.Slots, c.d.Clock, c.d.Random).PublishMerged(ctx, demand.MergedEvent{
		Table: t.Name, TableID: t.ID, Incarnation: t.Incarnation, Shard: r.Shard,
		Merged: demand.Mark{Gen: r.Generation, Epoch: epoch, Bytes: bytes, Rows: rows}, NextMS: next.SealedMS,
	})
	return err
}
