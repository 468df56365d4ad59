package merge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tidemark/internal/compaction"
	"tidemark/internal/deltalog"
	"tidemark/internal/parquetfile"
	"tidemark/internal/table"
	"tidemark/internal/tracing"
)

// mergeOnce makes one commit of a plan, or of what can be used of it, and returns the shards that stopped before the
// plan's end.
func (x *execution) mergeOnce(ctx context.Context, plan []backlog) (stops, error) {
	schema, stopped, err := x.evolve(ctx, plan)
	if err != nil {
		return nil, err
	}
	plan, _ = stopped.cut(plan)
	if len(plan) == 0 {
		return stopped, nil
	}
	a, jobs, err := x.newAttempt(schema, plan)
	if err != nil {
		return nil, err
	}
	began := x.Clock.Now()
	results, more, err := a.execute(ctx, jobs)
	x.Trace.Stage("merge", began, x.Clock.Now(), err)
	if err != nil {
		return nil, err
	}
	stopped.add(more)
	var done result
	for _, r := range results {
		done.taken = append(done.taken, r.taken...)
		done.adds = append(done.adds, r.adds...)
		done.removes = append(done.removes, r.removes...)
	}
	if len(done.taken) == 0 {
		return stopped, nil
	}
	began = x.Clock.Now()
	err = x.commit(ctx, schema, done)
	x.Trace.Stage("commit", began, x.Clock.Now(), err)
	return stopped, err
}

// newAttempt divides a plan into jobs: pieces of an append, or one bucket each.
func (x *execution) newAttempt(e evolution, plan []backlog) (*attempt, []job, error) {
	a := &attempt{
		execution: x,
		shape:     shape{mem: x.Mem, arrow: e.schema.Arrow(), key: x.table.Key, sequence: x.table.Sequence},
		target:    compaction.TargetDefault, indexedColumns: indexedColumns(x.properties),
		partitions: x.table.Snapshot.Metadata.PartitionColumns,
	}
	if x.properties.TargetFileSize > 0 {
		a.target = x.properties.TargetFileSize
	}
	var jobs []job
	if x.table.Mode == table.Append {
		pieces := spans(plan, x.Lanes, a.target)
		numbers := x.fileNumbers(len(pieces))
		var layout *parquetfile.Layout
		if len(a.partitions) == 0 { // else every row has a file to go to
			var err error
			if layout, err = parquetfile.LayoutOf(a.shape.arrow); err != nil {
				return nil, nil, err
			}
		}
		for i, s := range pieces {
			jobs = append(jobs, &appendJob{attempt: a, numbers: numbers[i], take: s, layout: layout})
		}
	} else {
		bases, err := basesOf(x.table.Snapshot)
		if err != nil {
			return nil, nil, &Error{Table: x.req.Table, Code: CodeTable, Class: Data, Err: err}
		}
		numbers := x.fileNumbers(len(plan))
		for i, b := range plan {
			jobs = append(jobs, &upsertJob{attempt: a, numbers: numbers[i], take: b, base: bases[b.shard]})
		}
	}
	a.divide(len(jobs))
	return a, jobs, nil
}

// indexedColumns is a table property as a Parquet writer takes it.
func indexedColumns(p deltalog.Properties) int {
	switch {
	case p.IndexedColumns < 0:
		return parquetfile.AllColumns
	case p.IndexedColumns == 0:
		return parquetfile.NoColumns
	}
	return p.IndexedColumns
}

// fileNumbers are the numbers of the files of n jobs, all above those of earlier attempts.
func (x *execution) fileNumbers(n int) []*numbers {
	first := 0
	for _, earlier := range x.numbering {
		first = max(first, earlier.next)
	}
	x.numbering = nil
	for i := range n {
		x.numbering = append(x.numbering, &numbers{next: first + i, step: n})
	}
	return x.numbering
}

func (x *execution) commit(ctx context.Context, e evolution, r result) error {
	if x.tooOld() {
		return x.ageError()
	}
	in := deltalog.Intent{
		TableID: x.table.ID, Read: x.table.Snapshot, Adds: r.adds, Upsert: x.table.Mode == table.Upsert,
		Marks: map[string]deltalog.MarkChange{},
	}
	for _, add := range r.removes {
		in.Removes = append(in.Removes, deltalog.RemoveOf(add, x.Clock.Now(), true))
	}
	marks := map[string]uint64{}
	generations, bytes, rows := 0, int64(0), int64(0)
	for _, b := range r.taken {
		marks[b.shard] = max(marks[b.shard], b.through())
		generations, bytes, rows = generations+len(b.generations), bytes+b.bytes(), rows+b.rows()
	}
	for shard, through := range marks {
		in.Marks[deltalog.AppID(x.table.ID, shard)] = deltalog.MarkChange{From: int64(x.shards[shard].mark), To: int64(through)}
	}
	if in.Upsert {
		in.Buckets = slices.Sorted(maps.Keys(marks))
	}
	e.change(&in)
	rowsOut, bytesOut := int64(0), int64(0)
	for _, add := range r.adds {
		n, _ := add.Rows()
		rowsOut, bytesOut = rowsOut+n, bytesOut+add.Size
	}
	in.Info = deltalog.CommitInfo{
		Operation: "WRITE", ExecutionID: x.req.Execution,
		Parameters: map[string]string{"mode": "Append"},
		Metrics: map[string]int64{
			"numGenerations": int64(generations), "numSourceRows": rows,
			"numOutputRows": rowsOut, "numOutputBytes": bytesOut,
			"numFiles": int64(len(r.adds)), "numRemovedFiles": int64(len(r.removes)),
		},
	}
	if in.Upsert {
		in.Info.Operation, in.Info.Parameters = "MERGE", map[string]string{"key": fmt.Sprint(x.table.Key)}
	}

	if err := x.put(ctx, in); err != nil {
		return err
	}
	for shard, through := range marks {
		x.shards[shard].mark = through
	}
	for _, b := range r.taken {
		for i, g := range b.generations {
			x.Trace.Merged(tracing.Generation{
				Table: x.req.Table, TableID: x.table.ID, Shard: b.shard, Number: b.mark + uint64(i) + 1, SealedMS: g.SealedMS,
			})
		}
	}
	o := &x.out
	o.Generations += generations
	o.RowsIn, o.BytesIn = o.RowsIn+rows, o.BytesIn+bytes
	o.RowsOut, o.BytesOut = o.RowsOut+rowsOut, o.BytesOut+bytesOut
	return nil
}

// put commits. What was written belongs to the table then; what a slow or unknown put might yet commit is not deleted.
func (x *execution) put(ctx context.Context, in deltalog.Intent) error {
	// The table's own log may be on another store; what is committed goes through the execution's scope.
	log := deltalog.Open(x.store, x.req.Table, deltalog.Options{Clock: x.Clock, Random: x.Random, Log: x.Log})
	res, err := log.Commit(ctx, in)
	if res.Slow || errors.Is(err, deltalog.ErrInDoubt) {
		x.mayDelete = false
	}
	if err != nil {
		return err
	}
	for _, add := range in.Adds {
		x.files.forget(x.key(add.Path))
	}
	x.meter.add(Progress{Commits: 1})
	o := &x.out
	o.Commits = append(o.Commits, res.Version)
	o.FilesAdded, o.FilesGone = o.FilesAdded+len(in.Adds), o.FilesGone+len(in.Removes)
	x.Tables.Offer(x.table, res.Snapshot)
	return nil
}
