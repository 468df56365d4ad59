package merge

import (
	"context"
	"errors"
	"io"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/deltalog"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
)

// appendJob packs whole generations, shard by shard and in order, into files of the target size.
type appendJob struct {
	*attempt
	numbers *numbers
	take    []backlog
}

func (j *appendJob) backlogs() []backlog { return j.take }

func (j *appendJob) with(take []backlog) job {
	return &appendJob{attempt: j.attempt, numbers: j.numbers, take: take}
}

// origin is the generation that a source reads.
type origin struct {
	shard      string
	generation shardmanifest.Generation
}

func (j *appendJob) run(ctx context.Context) (result, error) {
	var sources []source[arrow.Record]
	var origins []origin
	for _, b := range j.take {
		for _, g := range b.generations {
			if g.Rows > 0 {
				sources = append(sources, j.records(g))
				origins = append(origins, origin{b.shard, g})
			}
		}
	}
	p := &packer{attempt: j.attempt, numbers: j.numbers}
	defer p.abort(ctx)
	if err := j.pack(ctx, p, sources, origins); err != nil {
		return result{}, err
	}
	if err := p.cut(ctx); err != nil {
		return result{}, err
	}
	return result{taken: j.take, adds: p.adds}, nil
}

// pack writes what the sources give. When a generation turns out to be unusable nothing more is written, because its
// rows may be in the open file already; the rest is only read, so that one pass finds everything that has to be left
// out of the next.
func (j *appendJob) pack(ctx context.Context, p *packer, sources []source[arrow.Record], origins []origin) error {
	feed := startAhead(ctx, sources, j.Lanes, arrow.Record.Release)
	defer feed.stop()
	var found stops
	for i := 0; feed.nextSource(); i++ {
		for {
			rec, err := feed.next(ctx)
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
				err = p.write(ctx, sorted{rows: rec})
			}
			rec.Release()
			var refused *schema.ValueError
			if errors.As(err, &refused) { // the rows do not fit any file of ours
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

// result is what a job has written and what it has merged by that.
type result struct {
	taken   []backlog // may end before what the job was given
	adds    []deltalog.Add
	removes []deltalog.Add
}
