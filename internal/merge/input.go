package merge

import (
	"context"
	"errors"
	"io"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/shardmanifest"
)

// eagerBytesMax is the size up to which a generation is decoded when it is opened: then what it takes in memory is
// known instead of estimated, which is what lets hundreds of small generations be merged at once, and several are
// decoded side by side.
const eagerBytesMax = 1 << 20

// eagerDecodedMax is how much of a small generation is decoded at once at most: text that repeats itself may be a
// thousand times as large as its file.
const eagerDecodedMax = 16 << 20

// readAhead is how many batches of a streamed generation are in memory: the one in hand, one whose rows are waiting to be
// spliced, and one under construction.
const readAhead = 3

// input is an open generation of an upsert table, as a sorted run.
type input struct {
	generation uint64
	memory     int64 // bytes held while it is open, about
	reader     *parquetfile.Reader
	decoded    []*block // of a small generation, all of it
	blocks     *blocks
	meter      *meter
}

func (a *attempt) openInput(ctx context.Context, g shardmanifest.Generation) (*input, error) {
	in := &input{generation: g.Number, meter: a.meter}
	if g.Rows == 0 {
		return in, nil
	}
	var err error
	if in.blocks, err = newBlocks(a.shape); err != nil {
		return nil, err
	}
	in.blocks.sealed = true
	if in.reader, err = a.openGeneration(ctx, g); err != nil {
		return nil, err
	}
	estimate := in.reader.MemoryEstimate()
	for {
		b, err := in.decode(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			in.close()
			return nil, err
		}
		in.decoded = append(in.decoded, b)
		in.memory += b.size
		if g.Bytes > eagerBytesMax || in.memory > eagerDecodedMax {
			// The reader's own estimate allows for batches of any size; the first ones show what they are here.
			in.memory += min(estimate, g.Bytes+g.Bytes/2+(readAhead-1)*b.size)
			return in, nil
		}
	}
	_ = in.reader.Close() // it was only read
	in.reader = nil
	return in, nil
}

// next is the next block; io.EOF at the end.
func (in *input) next(ctx context.Context) (*block, error) {
	if len(in.decoded) > 0 {
		b := in.decoded[0]
		in.decoded = in.decoded[1:]
		return b, nil
	}
	if in.reader == nil {
		return nil, io.EOF
	}
	return in.decode(ctx)
}

func (in *input) decode(ctx context.Context) (*block, error) {
	rec, err := in.reader.Next(ctx)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	in.meter.add(Progress{RowsRead: rec.NumRows()})
	return in.blocks.of(ctx, rec)
}

func (in *input) close() {
	if in.reader != nil {
		_ = in.reader.Close() // it was only read
	}
	for _, b := range in.decoded {
		b.release()
	}
	in.reader, in.decoded = nil, nil
}

func closeAll(inputs []*input) {
	for _, in := range inputs {
		if in != nil {
			in.close()
		}
	}
}

// baseBlocks gives the blocks of a base file, reading only some columns unless they are nil.
func (a *attempt) baseBlocks(add deltalog.Add, columns []string) source[*block] {
	return func(ctx context.Context, give func(*block) error) error {
		blocks, err := newBlocks(a.shape)
		if err != nil {
			return err
		}
		in := &input{blocks: blocks, meter: a.meter}
		defer in.close()
		if in.reader, err = a.openBase(ctx, add, columns); err != nil {
			return err
		}
		return in.each(ctx, give)
	}
}

// each gives every block that is left, and takes back what is refused.
func (in *input) each(ctx context.Context, give func(*block) error) error {
	for {
		b, err := in.decode(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := give(b); err != nil {
			b.release()
			return err
		}
	}
}

// failedBase is the failure of a base file: it stops the bucket.
func (j *upsertJob) failedBase(path string, err error) error {
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		// Another commit has replaced the file and a vacuum has taken it, or it is lost. A fresh plan knows.
		return &deltalog.PlanAgainError{Table: j.req.Table, Reason: "base file " + path + " is gone"}
	case storeFailed(err):
		return err
	}
	return &Error{
		Table: j.req.Table, Shard: j.take.shard, Generation: j.take.mark + 1, Class: Data, Code: CodeBaseDamaged, Err: err,
	}
}
