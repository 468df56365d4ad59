package merge

import (
	"context"
	"errors"
	"io"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
)

// appendJob packs whole generations, shard by shard and in order, into files of the target size.
type appendJob struct {
	*attempt
	numbers *numbers
	take    []backlog
	layout  *parquetfile.Layout // of the table's columns; nil if its files hold others, or they must be decoded
}

func (j *appendJob) backlogs() []backlog { return j.take }

func (j *appendJob) with(take []backlog) job {
	return &appendJob{attempt: j.attempt, numbers: j.numbers, take: take, layout: j.layout}
}

// origin is the generation that a source reads.
type origin struct {
	shard      string
	generation shardmanifest.Generation
}

// portion is some rows of a generation: decoded, in the table's schema; a row group as the file holds it; or the whole file,
// unread.
type portion struct {
	rows  arrow.Record
	raw   *parquetfile.RawRowGroup
	whole *wholeFile
}

func (p portion) release() {
	if p.rows != nil {
		p.rows.Release()
	}
	if p.whole != nil {
		_ = p.whole.reader.Close() // it was only read
	}
}

// portions gives the rows of a generation. A file of exactly the table's columns that a Tidemark writer has written, which
// its checksum proves, is not decoded.
func (j *appendJob) portions(g shardmanifest.Generation) source[portion] {
	return func(ctx context.Context, give func(portion) error) error {
		if given, err := j.giveWhole(ctx, g, give); given || err != nil {
			return err
		}
		r, err := j.openGeneration(ctx, g)
		if err != nil {
			return err
		}
		defer r.Close()
		if g.XXH3 == "" || !j.layout.Recodes(r) {
			return j.project(ctx, r, func(rows arrow.Record) error { return give(portion{rows: rows}) })
		}
		for i, group := range r.RowGroups() {
			raw, err := r.FetchRowGroup(ctx, i)
			if err != nil {
				return err
			}
			j.meter.add(Progress{RowsRead: group.Rows})
			if err := give(portion{raw: raw}); err != nil {
				return err
			}
		}
		return nil
	}
}

func (j *appendJob) run(ctx context.Context) (result, error) {
	var sources []source[portion]
	var origins []origin
	for _, b := range j.take {
		for _, g := range b.generations {
			if g.Rows > 0 {
				sources = append(sources, j.portions(g))
				origins = append(origins, origin{b.shard, g})
			}
		}
	}
	var out output = &packer{attempt: j.attempt, numbers: j.numbers}
	if len(j.partitions) > 0 {
		out = newRouter(j.attempt, j.numbers)
	}
	defer out.abort(ctx)
	if err := j.pack(ctx, out, sources, origins); err != nil {
		return result{}, err
	}
	adds, err := out.end(ctx)
	if err != nil {
		return result{}, err
	}
	return result{taken: j.take, adds: adds}, nil
}

const (
	// readAtOnceMax is how many small generations are read side by side.
	readAtOnceMax = 8
	// readAheadShare is the part of a job's budget that they may take.
	readAheadShare = 16
)

// readAtOnce is how many generations are read side by side: one per lane, which keeps the cores busy, and more where they are
// so small that their time is mostly that of the store's answer. That is only done with files that are not decoded: what is
// decoded may be many times the file.
func (j *appendJob) readAtOnce(origins []origin) int {
	largest := int64(1)
	for _, o := range origins {
		if j.layout == nil || o.generation.XXH3 == "" {
			return j.Lanes
		}
		largest = max(largest, o.generation.Bytes*(1+decodedRatio))
	}
	return max(j.Lanes, int(min(j.share/readAheadShare/largest, readAtOnceMax)))
}

// output is where the rows of an append job go.
type output interface {
	// add appends a portion, which stays the caller's.
	add(context.Context, portion) error
	// end writes what is left, and returns all files.
	end(context.Context) ([]deltalog.Add, error)
	// abort throws away what is not finished. It does nothing after an end.
	abort(context.Context)
}

// pack writes what the sources give. When a generation turns out to be unusable nothing more is written, because its
// rows may be in the open file already; the rest is only read, so that one pass finds everything that has to be left
// out of the next.
func (j *appendJob) pack(ctx context.Context, out output, sources []source[portion], origins []origin) error {
	feed := startAhead(ctx, sources, j.readAtOnce(origins), portion.release)
	defer feed.stop()
	var found stops
	for i := 0; feed.nextSource(); i++ {
		for {
			got, err := feed.next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				err = j.failed(origins[i].shard, origins[i].generation.Number, err)
				if !found.add(err) {
					return err
				}
				break
			}
			if found == nil {
				err = out.add(ctx, got)
			}
			got.release()
			var refused *schema.ValueError
			var damaged *parquetfile.FileError
			gone := got.whole != nil && errors.Is(err, objstore.ErrNotFound)
			if errors.As(err, &refused) || errors.As(err, &damaged) || gone { // the rows do not fit any file of ours, or are lost
				err = j.failed(origins[i].shard, origins[i].generation.Number, err)
			}
			if err != nil && !found.add(err) {
				return err
			}
		}
	}
	if found != nil {
		return found
	}
	return nil
}

// add appends a portion of an append table.
func (p *packer) add(ctx context.Context, got portion) error {
	if got.whole != nil {
		return p.join(ctx, got.whole)
	}
	if got.raw == nil {
		return p.write(ctx, sorted{rows: got.rows})
	}
	return p.put(ctx, sorted{}, got.raw.Rows(), func(w *parquetfile.Writer) error { return w.Recode(got.raw) })
}

// end ends the open file.
func (p *packer) end(ctx context.Context) ([]deltalog.Add, error) {
	if err := p.cut(ctx); err != nil {
		return nil, err
	}
	return p.adds, nil
}

// result is what a job has written and what it has merged by that.
type result struct {
	taken   []backlog // may end before what the job was given
	adds    []deltalog.Add
	removes []deltalog.Add
}
