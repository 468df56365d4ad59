package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/compaction"
	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/partition"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

const (
	// compactBytesMax and compactFilesMax bound one compaction, so that it is over within a minute or two and what else
	// is due of the table comes to its turn; it says More then. 8192 removals are a commit of 8 MB.
	compactBytesMax = 2 << 30
	compactFilesMax = 8192
	// salvagesMax bounds how often a compaction gives up bins that others were faster to change, and commits the rest.
	salvagesMax = 8
	// unlimited is the target size of a file that takes in a whole bin.
	unlimited = 1 << 62
)

// CompactRequest is one compaction of a table.
type CompactRequest struct {
	Table     string
	Execution string // unique; it is stamped into file names and commits
	Budget    int64  // memory in bytes, as of a merge
}

// Compact joins small base files of a table:
//
//  1. Plan bins of small files from the newest snapshot (internal/compaction), as many as one execution may take.
//  2. Write each bin's rows, in the order of its files, into one new file. Bins run side by side. A bin whose file is
//     damaged is given up, and the others go on.
//  3. Commit adds and removes without a change of data. A bin of which another commit has removed a file is given up, and
//     the rest is committed; a change of the table's schema or layout begins again at 1.
//
// It runs beside merges. Those of an append table only add files, and the commits rebase over each other. Those of an
// upsert table rewrite files of their buckets: a bucket with something pending is therefore left to its merges, which
// absorb small files by the way, and that is looked at again right before the commit. What remains is a merge that begins
// in that very moment; it plans again.
//
// The error is an *Error; what was committed, which the outcome says, stays committed. Nothing to do is no error.
func Compact(ctx context.Context, d Deps, req CompactRequest) (Outcome, error) {
	c := &compacting{execution: newExecution(d, Request{Table: req.Table, Execution: req.Execution, Budget: req.Budget})}
	err := c.run(ctx)
	c.removeOwn(ctx)
	return c.outcome(), Classified(ctx, "compaction", req.Table, err)
}

// compacting is the execution of a compaction.
type compacting struct {
	*execution
	damaged error // the first bin that was given up because of a damaged file
}

// compacted is a bin and what it has become: one file, or none if it held no row.
type compacted struct {
	bin  compaction.Bin
	adds []deltalog.Add
}

func (c *compacting) run(ctx context.Context) error {
	err := c.replan(ctx, "planning the compaction again", c.once)
	switch {
	case err != nil && c.tooOld():
		return c.ageError()
	case err != nil:
		return err
	}
	return c.damaged
}

// once makes one plan and carries it out.
func (c *compacting) once(ctx context.Context) error {
	t, err := c.Tables.Load(ctx, c.req.Table)
	if err != nil {
		return err
	}
	if err := c.adopt(t); err != nil {
		return err
	}
	if err := t.Mergeable(); err != nil {
		return err
	}
	bins, err := c.bins(ctx)
	if err != nil || len(bins) == 0 {
		return err
	}
	done, err := c.rewrite(ctx, bins)
	if err != nil || len(done) == 0 {
		return err
	}
	return c.commitAll(ctx, done)
}

// bins plans, and takes as much as one execution may.
func (c *compacting) bins(ctx context.Context) ([]compaction.Bin, error) {
	options := compaction.Options{Target: c.properties.TargetFileSize, Upsert: c.table.Mode == table.Upsert}
	bins := compaction.Plan(c.table.Snapshot.Files(), options)
	if options.Upsert {
		if _, err := basesOf(c.table.Snapshot); err != nil {
			return nil, &Error{Table: c.req.Table, Code: CodeTable, Class: Data, Err: err}
		}
		busy, err := c.busy(ctx, bins)
		if err != nil {
			return nil, err
		}
		bins = slices.DeleteFunc(bins, func(b compaction.Bin) bool { return busy[bucketOf(b)] })
	}
	var total compaction.Backlog
	for i := range bins {
		one := compaction.Count(bins[i : i+1])
		if total.Bins > 0 && (total.Bytes+one.Bytes > compactBytesMax || total.Files+one.Files > compactFilesMax) {
			c.out.More = true
			return bins[:i], nil
		}
		total.Bins, total.Files, total.Bytes = total.Bins+1, total.Files+one.Files, total.Bytes+one.Bytes
	}
	c.out.More = false
	return bins, nil
}

func bucketOf(b compaction.Bin) string { return b.Files[0].Tags[deltalog.TagBucket] }

// busy are the buckets, of those that bins touch, which have something pending.
func (c *compacting) busy(ctx context.Context, bins []compaction.Bin) (map[string]bool, error) {
	buckets := map[string]bool{}
	for _, b := range bins {
		buckets[bucketOf(b)] = false
	}
	var mu sync.Mutex // guards buckets
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(manifestsAtOnce)
	for _, bucket := range slices.Collect(maps.Keys(buckets)) {
		mark := c.table.Mark(bucket)
		g.Go(func() error {
			chain := shardmanifest.Open(c.store, c.req.Table, c.table.ID, bucket, shardmanifest.Options{Clock: c.Clock, Random: c.Random})
			m, err := chain.Latest(gctx)
			if errors.Is(err, shardmanifest.ErrNoShard) {
				return nil // nobody has written to it yet
			}
			damaged := errors.Is(err, shardmanifest.ErrDamaged) || errors.Is(err, shardmanifest.ErrFormat)
			if err != nil && !damaged {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			// A bucket that cannot be judged is left alone; its merges report what is wrong with it.
			buckets[bucket] = damaged || m.SealedThrough > mark
			return nil
		})
	}
	return buckets, g.Wait()
}

// rewrite writes the bins, as many at once as there are lanes.
func (c *compacting) rewrite(ctx context.Context, bins []compaction.Bin) ([]compacted, error) {
	a := &attempt{
		execution: c.execution,
		shape:     shape{mem: c.Mem, arrow: c.columns(), key: c.table.Key, sequence: c.table.Sequence},
		target:    unlimited, indexedColumns: indexedColumns(c.properties),
	}
	a.divide(len(bins))
	numbers := c.fileNumbers(len(bins))
	done := make([]*compacted, len(bins))
	damaged := make([]*baseFileError, len(bins))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(a.lanes)
	for i, bin := range bins {
		g.Go(func() error {
			job := &compactJob{attempt: a, numbers: numbers[i], bin: bin}
			adds, err := job.run(gctx)
			var e *baseFileError
			if errors.As(err, &e) {
				damaged[i] = e
				return nil
			}
			done[i] = &compacted{bin, adds}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []compacted
	for i, one := range done {
		if one != nil {
			out = append(out, *one)
		} else if err := c.giveUp(ctx, damaged[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// giveUp notes why a bin is left out. A file that is not there may have been removed and vacuumed meanwhile, which is no
// failure.
func (c *compacting) giveUp(ctx context.Context, e *baseFileError) error {
	if errors.Is(e, objstore.ErrNotFound) {
		now, err := c.Tables.Load(ctx, c.req.Table)
		if err != nil {
			return err
		}
		if _, live := now.Snapshot.File(e.path); !live || now.ID != c.table.ID {
			return nil
		}
	}
	c.log.Warn("some files are not compacted", "error", e)
	if c.damaged == nil {
		c.damaged = &Error{Table: c.req.Table, Code: CodeBaseDamaged, Class: Data, Err: e}
	}
	return nil
}

// baseFileError says that a base file cannot be read as the log describes it.
type baseFileError struct {
	path string
	err  error
}

func (e *baseFileError) Error() string { return fmt.Sprintf("base file %s: %v", e.path, e.err) }

func (e *baseFileError) Unwrap() error { return e.err }

// columns are those that data files hold: the table's, without those that a partition's folder stands for.
func (c *compacting) columns() *arrow.Schema {
	return partition.Of(c.table.Schema.Arrow(), c.table.Snapshot.Metadata.PartitionColumns).Data()
}

// commitAll commits the bins, giving up those that others were faster to change.
func (c *compacting) commitAll(ctx context.Context, done []compacted) error {
	for range salvagesMax {
		if c.table.Mode == table.Upsert {
			var bins []compaction.Bin
			for _, one := range done {
				bins = append(bins, one.bin)
			}
			busy, err := c.busy(ctx, bins)
			if err != nil {
				return err
			}
			done = c.keep(ctx, done, func(one compacted) bool { return !busy[bucketOf(one.bin)] })
		}
		if len(done) == 0 {
			return nil
		}
		err := c.commitBins(ctx, done)
		var again *deltalog.PlanAgainError
		if !errors.As(err, &again) || !c.mayDelete {
			return err
		}
		before := c.table
		now, loadErr := c.Tables.Load(ctx, c.req.Table)
		if loadErr != nil {
			return loadErr
		}
		if now.ID != before.ID || !sameLayout(before.Snapshot, now.Snapshot) {
			return err
		}
		c.log.Info("giving up what others have changed", "reason", again.Reason)
		if err := c.adopt(now); err != nil {
			return err
		}
		done = c.keep(ctx, done, func(one compacted) bool { return unchanged(one.bin, before.Snapshot, now.Snapshot, before.Mode) })
		if len(done) == 0 {
			return err
		}
	}
	return &deltalog.PlanAgainError{Table: c.req.Table, Reason: fmt.Sprintf("other commits were faster %d times in a row", salvagesMax)}
}

// keep drops bins, with the files that they have become.
func (c *compacting) keep(ctx context.Context, done []compacted, good func(compacted) bool) []compacted {
	var kept []compacted
	for _, one := range done {
		if good(one) {
			kept = append(kept, one)
			continue
		}
		for _, add := range one.adds {
			if key := c.key(add.Path); c.mayDelete && c.Store.Delete(ctx, key) == nil {
				c.files.forget(key)
			}
		}
	}
	return kept
}

// sameLayout reports whether files that were written for one version of a table fit a later one.
func sameLayout(a, b *deltalog.Snapshot) bool {
	return a.Protocol.Equal(b.Protocol) && a.Metadata.SchemaString == b.Metadata.SchemaString &&
		slices.Equal(a.Metadata.PartitionColumns, b.Metadata.PartitionColumns)
}

// unchanged reports whether a bin can still be replaced by what it has become: its files are the same, and in an upsert
// table nothing else of its bucket has come or gone.
func unchanged(bin compaction.Bin, before, now *deltalog.Snapshot, mode table.Mode) bool {
	for _, f := range bin.Files {
		was, _ := before.File(f.Path)
		if is, live := now.File(f.Path); !live || is.Size != was.Size || is.ModificationTime != was.ModificationTime {
			return false
		}
	}
	return mode == table.Append || slices.Equal(bucketFiles(before, bucketOf(bin)), bucketFiles(now, bucketOf(bin)))
}

// bucketFiles are the paths of a bucket's files, in order.
func bucketFiles(s *deltalog.Snapshot, bucket string) (paths []string) {
	for f := range s.Files() {
		if f.Tags[deltalog.TagBucket] == bucket {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// commitBins makes one commit of bins.
func (c *compacting) commitBins(ctx context.Context, done []compacted) error {
	if c.tooOld() {
		return c.ageError()
	}
	in := deltalog.Intent{TableID: c.table.ID, Read: c.table.Snapshot, Upsert: c.table.Mode == table.Upsert}
	metrics := map[string]int64{}
	buckets := map[string]bool{}
	for _, one := range done {
		for _, f := range one.bin.Files {
			in.Removes = append(in.Removes, deltalog.RemoveOf(f, c.Clock.Now(), false))
		}
		metrics["numRemovedFiles"] += int64(len(one.bin.Files))
		metrics["numRemovedBytes"] += one.bin.Bytes
		in.Adds = append(in.Adds, one.adds...)
		for _, add := range one.adds {
			rows, _ := add.Rows()
			metrics["numOutputRows"] += rows
			metrics["numAddedFiles"]++
			metrics["numAddedBytes"] += add.Size
		}
		buckets[bucketOf(one.bin)] = true
	}
	if in.Upsert {
		in.Buckets = slices.Sorted(maps.Keys(buckets))
	}
	in.Info = deltalog.CommitInfo{
		Operation: "OPTIMIZE", ExecutionID: c.req.Execution, Parameters: map[string]string{"predicate": "[]"}, Metrics: metrics,
	}
	if err := c.put(ctx, in); err != nil {
		return err
	}
	o := &c.out
	o.RowsOut, o.BytesOut = o.RowsOut+metrics["numOutputRows"], o.BytesOut+metrics["numAddedBytes"]
	return nil
}

// compactJob writes one bin.
type compactJob struct {
	*attempt
	numbers *numbers
	bin     compaction.Bin
}

func (j *compactJob) run(ctx context.Context) ([]deltalog.Add, error) {
	p := &packer{attempt: j.attempt, numbers: j.numbers, bucket: bucketOf(j.bin), values: j.bin.Files[0].PartitionValues}
	p.folder = partition.Of(j.table.Schema.Arrow(), j.table.Snapshot.Metadata.PartitionColumns).Folder(p.values)
	defer p.abort(ctx)
	var sources []source[sorted]
	for _, f := range j.bin.Files {
		sources = append(sources, j.rows(f))
	}
	feed := startAhead(ctx, sources, j.width(), func(s sorted) { s.rows.Release() })
	defer feed.stop()
	for i := 0; feed.nextSource(); i++ {
		if err := j.copy(ctx, p, feed, j.bin.Files[i]); err != nil {
			return nil, err
		}
	}
	if err := p.cut(ctx); err != nil {
		return nil, err
	}
	for i := range p.adds {
		p.adds[i].DataChange = false
	}
	return p.adds, nil
}

// copy writes the rows of one file, and checks that they are as many as the log says.
func (j *compactJob) copy(ctx context.Context, p *packer, feed *ahead[sorted], f deltalog.Add) error {
	rows := int64(0)
	for {
		s, err := feed.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return failedFile(f.Path, err)
		}
		rows += s.rows.NumRows()
		err = p.write(ctx, s)
		s.rows.Release()
		if err != nil {
			return failedFile(f.Path, err)
		}
	}
	if want, known := f.Rows(); known && want != rows {
		return &baseFileError{f.Path, fmt.Errorf("it holds %d rows, and the log says %d: it was replaced", rows, want)}
	}
	return nil
}

// rows gives the rows of one file, of an upsert table with their lowest and highest key.
func (j *compactJob) rows(f deltalog.Add) source[sorted] {
	if len(j.shape.key) == 0 {
		return func(ctx context.Context, give func(sorted) error) error {
			r, err := j.openBase(ctx, f, nil)
			if err != nil {
				return err
			}
			defer r.Close()
			return j.project(ctx, r, func(rec arrow.Record) error { return give(sorted{rows: rec}) })
		}
	}
	return func(ctx context.Context, give func(sorted) error) error {
		base, err := newBaseFile(f)
		if err != nil {
			return err
		}
		return j.baseBlocks(f, nil)(ctx, func(b *block) error {
			n := b.keys.Len()
			if n == 0 {
				b.release()
				return nil
			}
			s := sorted{rows: b.rows, min: b.keys.At(0), max: b.keys.At(n - 1)}
			if bytes.Compare(s.min, base.min) < 0 || bytes.Compare(s.max, base.max) > 0 {
				return errors.New("it holds keys outside the range it is tagged with")
			}
			b.rows.Retain()
			if err := give(s); err != nil {
				b.rows.Release()
				return err
			}
			b.release()
			return nil
		})
	}
}

// width is how many files of the bin are read side by side: as many as hide a store's latency, if a quarter of the memory
// holds two batches of each.
func (j *compactJob) width() int {
	most := int64(0)
	for _, f := range j.bin.Files {
		most = max(most, f.Size+2*min(8*f.Size, compactBatchBytes))
	}
	return int(min(max(j.share/4/max(most, 1), 1), openAtOnce))
}

// compactBatchBytes is about the most that a batch of a base file takes in memory.
const compactBatchBytes = 16 << 20

// failedFile tells what is wrong with a base file from what is wrong with the store, or with what was written.
func failedFile(path string, err error) error {
	var output *outputError
	if storeFailed(err) || errors.As(err, &output) {
		return err
	}
	return &baseFileError{path, err}
}
