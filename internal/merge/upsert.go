package merge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sync/errgroup"

	"tidemark/internal/deltalog"
	"tidemark/internal/parquetfile"
)

const (
	// openAtOnce is how many generations are opened side by side: enough to hide a store's latency.
	openAtOnce = 8
	// absorbRatio: an untouched file is rewritten together with its neighbours if it is at most this many times as
	// large as the new generations. The sizes of a bucket's small files then grow geometrically, so that their
	// number, and how often a row is rewritten, stay logarithmic.
	absorbRatio = 4
	// absorbBytesMin: files below this are absorbed whatever the size of the generations; opening a file costs more
	// than rewriting that much.
	absorbBytesMin = 1 << 20
)

// upsertJob merges the generations of one bucket into its base files. Base files are sorted by key and their key
// ranges are disjoint, so the base is one long sorted run, of which only the files that a new key falls into are read:
//
//  1. Generations are opened oldest first, as many as fit the memory.
//  2. Base files are visited in key order. A file that lies wholly below the lowest new key is left alone.
//  3. New keys below the file are merged among themselves; then, if the lowest new key is within the file's range,
//     the file is rewritten, and removed from the table: see rewrite.go.
//  4. Where a file is left alone the output file before it ends, so that ranges stay disjoint; small files are
//     absorbed rather than left alone.
type upsertJob struct {
	*attempt
	numbers *numbers
	take    backlog
	base    []baseFile // of the bucket, in key order
}

// baseFile is a data file of an upsert table with the range of its keys.
type baseFile struct {
	add      deltalog.Add
	min, max []byte
}

func newBaseFile(add deltalog.Add) (f baseFile, err error) {
	f.add = add
	if f.min, err = base64.StdEncoding.DecodeString(add.Tags[deltalog.TagKeyMin]); err == nil {
		f.max, err = base64.StdEncoding.DecodeString(add.Tags[deltalog.TagKeyMax])
	}
	if err == nil && (add.Tags[deltalog.TagBucket] == "" || len(f.max) == 0) {
		err = errors.New("tags are missing: it was not written by Tidemark")
	}
	if err != nil {
		return f, fmt.Errorf("base file %s: bucket and key range: %w", add.Path, err)
	}
	return f, nil
}

func (j *upsertJob) backlogs() []backlog { return []backlog{j.take} }

func (j *upsertJob) with(take []backlog) job {
	return &upsertJob{attempt: j.attempt, numbers: j.numbers, take: take[0], base: j.base}
}

// groupBytes is the size at which row groups of the bucket's files end.
func (j *upsertJob) groupBytes() int64 {
	if j.Deps.rowGroupBytes > 0 {
		return j.Deps.rowGroupBytes
	}
	bytes := j.take.bytes()
	for _, f := range j.base {
		bytes += f.add.Size
	}
	chunks := int64(j.shape.arrow.NumFields()) * bucketChunkBytesMin
	return min(max(bytes/rowGroupsBucket, bucketGroupBytesMin, chunks), bucketGroupBytesMax, j.attempt.rowGroupBytes)
}

// basesOf sorts a snapshot's files into buckets, each in key order.
func basesOf(s *deltalog.Snapshot) (map[string][]baseFile, error) {
	out := map[string][]baseFile{}
	for add := range s.Files() {
		f, err := newBaseFile(add)
		if err != nil {
			return nil, err
		}
		bucket := add.Tags[deltalog.TagBucket]
		out[bucket] = append(out[bucket], f)
	}
	for bucket, files := range out {
		slices.SortFunc(files, func(a, b baseFile) int {
			return cmp.Or(bytes.Compare(a.min, b.min), cmp.Compare(a.add.Path, b.add.Path))
		})
		for i := 1; i < len(files); i++ {
			if bytes.Compare(files[i-1].max, files[i].min) >= 0 {
				return nil, fmt.Errorf("base files %s and %s of %s overlap: the table was changed by something else than Tidemark",
					files[i-1].add.Path, files[i].add.Path, bucket)
			}
		}
	}
	return out, nil
}

// message goes from the goroutine that orders to the one that encodes.
type message struct {
	sorted
	raw *parquetfile.RawRowGroup // instead of rows
	cut bool                     // end the file here; there are no rows
}

func (m message) release() {
	if m.rows != nil {
		m.rows.Release()
	}
}

func (j *upsertJob) run(ctx context.Context) (result, error) {
	open, err := j.open(ctx)
	if err != nil {
		return result{}, err
	}
	defer closeAll(open)
	p := &packer{attempt: j.attempt, numbers: j.numbers, bucket: j.take.shard, groupBytes: j.groupBytes()}
	defer p.abort(ctx)

	var removes []deltalog.Add
	messages := make(chan message, queueDepth)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		defer close(messages)
		removes, err = j.order(gctx, open, messages)
		return err
	})
	g.Go(func() error {
		for m := range messages {
			// Not the group's context: an upload outlives the group by its completion.
			err := p.accept(ctx, m)
			m.release()
			if err != nil {
				return err
			}
		}
		return nil
	})
	err = g.Wait()
	for m := range messages {
		m.release()
	}
	if err != nil {
		return result{}, err
	}
	if err := p.cut(ctx); err != nil {
		return result{}, err
	}
	taken := j.take
	taken.generations = taken.generations[:len(open)]
	return result{taken: []backlog{taken}, adds: p.adds, removes: removes}, nil
}

func (p *packer) accept(ctx context.Context, m message) error {
	switch {
	case m.cut:
		return p.cut(ctx)
	case m.raw != nil:
		return p.copy(ctx, m)
	}
	return p.write(ctx, m.sorted)
}

// open opens generations, oldest first, as many as fit the job's share of the budget.
func (j *upsertJob) open(ctx context.Context) (open []*input, err error) {
	defer func() {
		if err != nil {
			closeAll(open)
		}
	}()
	var estimates []int64
	for chunk := range slices.Chunk(j.take.generations, openAtOnce) {
		inputs := make([]*input, len(chunk))
		failures := make([]error, len(chunk))
		var g errgroup.Group
		for i, generation := range chunk {
			g.Go(func() error {
				inputs[i], failures[i] = j.openInput(ctx, generation)
				return nil
			})
		}
		_ = g.Wait() // failures has the errors
		open = append(open, inputs...)
		for i, failure := range failures {
			if failure != nil {
				return open, j.failed(j.take.shard, chunk[i].Number, failure)
			}
			estimates = append(estimates, inputs[i].memory)
		}
		if n := fanIn(estimates, j.share-j.reserved()); n < len(open) {
			closeAll(open[n:])
			return open[:n], nil
		}
	}
	return open, nil
}

// order merges the open generations into the base and sends what comes out. It returns the base files that were read,
// and so are replaced.
func (j *upsertJob) order(ctx context.Context, open []*input, messages chan<- message) ([]deltalog.Add, error) {
	o := &ordering{upsertJob: j, messages: messages, group: j.groupBytes()}
	o.collector = collector{shape: j.shape, held: j.share / 8, give: func(ctx context.Context, s sorted) error {
		o.pending, o.encoding = true, true
		return o.send(ctx, message{sorted: s})
	}}
	o.merger = merger{out: &o.collector}
	defer o.merger.close()
	defer o.collector.drop()
	for i, in := range open {
		generation := in.generation
		r := &run{arrival: i + 1, next: func(ctx context.Context) (*block, error) {
			b, err := in.next(ctx)
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, j.failed(j.take.shard, generation, err)
			}
			return b, err
		}}
		if err := o.merger.add(ctx, r); err != nil {
			return nil, err
		}
	}
	for i, f := range j.base {
		touched, err := o.reach(ctx, f, j.base[i+1:])
		if err != nil {
			return nil, err
		}
		if !touched {
			continue
		}
		if err := o.rewrite(ctx, f); err != nil {
			return nil, err
		}
	}
	if err := o.merger.mergeBelow(ctx, nil); err != nil {
		return nil, err
	}
	return o.removes, o.collector.flush(ctx)
}

// ordering is the state of one pass over a bucket.
type ordering struct {
	*upsertJob
	merger    merger
	collector collector
	messages  chan<- message
	pending   bool  // rows were sent since the last cut
	encoding  bool  // the last that was sent were rows: they wait in an open row group
	group     int64 // bytes at which a row group ends
	removes   []deltalog.Add
}

func (o *ordering) send(ctx context.Context, m message) error {
	select {
	case o.messages <- m:
		return nil
	case <-ctx.Done():
		m.release()
		return context.Cause(ctx)
	}
}

// reach merges the new keys below a file and reports whether the file must be read, with the files after it in hand.
// If not, the output file before it has been ended.
func (o *ordering) reach(ctx context.Context, f baseFile, after []baseFile) (bool, error) {
	if err := o.merger.mergeBelow(ctx, f.min); err != nil {
		return false, err
	}
	first := o.merger.first()
	if first != nil && bytes.Compare(first, f.max) <= 0 {
		return true, nil
	}
	// The file could be left alone. New rows right before or right behind it take it along if it is small.
	behind := first != nil && (len(after) == 0 || bytes.Compare(first, after[0].min) < 0)
	if (o.pending || o.collector.rows > 0 || behind) && o.small(f) {
		return true, nil
	}
	if err := o.collector.flush(ctx); err != nil {
		return false, err
	}
	if o.pending {
		o.pending, o.encoding = false, false
		return false, o.send(ctx, message{cut: true})
	}
	return false, nil
}

func (o *ordering) small(f baseFile) bool {
	return f.add.Size < o.target/2 && f.add.Size <= max(absorbBytesMin, absorbRatio*o.take.bytes())
}
