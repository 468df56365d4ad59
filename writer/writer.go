package writer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/rowkey"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/tracing"
)

// Writer holds one shard. It is safe for concurrent use; calls are served one at a time.
type Writer struct {
	env   *environment
	owned bool // env was made for this writer, and is closed with it
	shard string
	hold  *shardmanifest.Hold

	turn chan struct{} // holds one token; whoever has it may touch what follows
	in   *intake       // shared with the other buckets of a Router, which has its own turn
	room *room
	// bucket is the bucket of an upsert shard, else -1.
	bucket int

	buffer  []batch   // taken and not given to a seal yet
	sealing *sealing  // not settled: to be sealed again before anything else
	began   time.Time // when that seal began
	backlog backlog   // as known after the last seal or look
	ended   error     // ErrClosed, once closed, abandoned or fenced
}

// batch is one appended record in the shape of the table at that time.
type batch struct {
	rec   arrow.Record
	bytes int64
}

// room is what unsealed rows may take, shared by the buckets of a Router.
type room struct {
	max  int64
	used atomic.Int64
}

// Sealed is the result of a seal. Its rows are durable.
type Sealed struct {
	Shard      string
	Generation uint64
	Epoch      uint64
	Rows       int64 // in this generation
	Bytes      int64 // of its file; an empty generation has none
	// Settled is the number of generations of earlier Seal calls, whose outcome was not known then, that this call
	// found or made sealed. Their rows are not in Rows.
	Settled int
	// Pending is the number of generations of the shard that are sealed and not merged: as etcd knows it, or at most
	// that many as the manifest and the Delta log were last seen.
	Pending uint64
	// Unpublished says why etcd was not told, if it was to be told. It is told with a later seal, or finds out by a scan.
	Unpublished error
}

// Claim takes a shard of a table and fences the writer that had it. It fails when the table does not exist, or is of mode
// upsert and the shard is not one of its buckets.
func Claim(ctx context.Context, c Config) (*Writer, error) { return ClaimWith(ctx, c, Deps{}) }

// ClaimWith is Claim for programs of this module.
func ClaimWith(ctx context.Context, c Config, d Deps) (*Writer, error) {
	env, err := open(ctx, c, d)
	if err != nil {
		return nil, err
	}
	w, err := claimAlone(ctx, env)
	if err != nil {
		return nil, errors.Join(err, env.close())
	}
	return w, nil
}

func claimAlone(ctx context.Context, env *environment) (*Writer, error) {
	in, err := env.intake()
	if err != nil {
		return nil, err
	}
	w, err := env.claim(ctx, env.cfg.Shard, "", in, &room{max: env.cfg.BufferBytes})
	if err != nil {
		return nil, err
	}
	w.owned = true
	return w, nil
}

// Shard is the claimed shard.
func (w *Writer) Shard() string { return w.shard }

// Epoch is the writer epoch of the claim.
func (w *Writer) Epoch() uint64 { return w.hold.Epoch() }

// lock waits for the writer's turn, or for ctx.
func (w *Writer) lock(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *Writer) unlock() { <-w.turn }

// Append checks a record and buffers it for the next seal. The record is retained as long as it is needed; the caller
// keeps its own reference. With MaxPending generations pending it waits, or fails with ErrBacklogged, as OnBacklog says;
// it fails with ErrBufferFull when the rows would not fit. A record that is refused has changed nothing.
func (w *Writer) Append(ctx context.Context, rec arrow.Record) error {
	if err := w.admit(ctx); err != nil {
		return err
	}
	if err := w.lock(ctx); err != nil {
		return err
	}
	defer w.unlock()
	if w.ended != nil {
		return w.ended
	}
	if rec.NumRows() == 0 {
		return nil
	}
	before := *w.in
	shaped, err := w.in.take(ctx, rec)
	if err != nil {
		return err
	}
	bytes := recordBytes(shaped)
	if err = w.checkBucket(); err == nil {
		err = w.room.reserve(w.env, bytes)
	}
	if err != nil {
		*w.in = before
		shaped.Release()
		return err
	}
	w.buffer = append(w.buffer, batch{shaped, bytes})
	return nil
}

// reserve takes room for rows, or refuses.
func (r *room) reserve(env *environment, bytes int64) error {
	if used := r.used.Add(bytes); used > r.max {
		r.used.Add(-bytes)
		return fmt.Errorf("table %s: %w: %d bytes are waiting and %d more do not fit into %d; seal, or append smaller records",
			env.cfg.Table, ErrBufferFull, used-bytes, bytes, r.max)
	}
	return nil
}

// checkBucket refuses the record that was taken last if one of its rows belongs to another bucket.
func (w *Writer) checkBucket() error {
	if w.bucket < 0 {
		return nil
	}
	for row := range w.in.keys.Len() {
		if b := rowkey.Bucket(w.in.keys.At(row), w.in.buckets); b != w.bucket {
			return &RowError{w.env.cfg.Table, w.in.key[0], row,
				fmt.Sprintf("the row belongs to shard %s, not %s; a Router files rows under their buckets", rowkey.BucketShard(b), w.shard)}
		}
	}
	return nil
}

// Seal makes everything appended so far durable as the next generation of the shard. Without rows it seals an empty
// generation. If the outcome of an earlier seal is not known, that is settled first; Sealed then describes the newest
// generation.
//
// After an error that is ErrFenced the writer has ended, and the error holds the rows. After any other error all unsealed
// rows are kept, and Seal may be called again.
func (w *Writer) Seal(ctx context.Context) (Sealed, error) {
	if err := w.lock(ctx); err != nil {
		return Sealed{}, err
	}
	defer w.unlock()
	return w.seal(ctx)
}

func (w *Writer) seal(ctx context.Context) (Sealed, error) {
	if w.ended != nil {
		return Sealed{}, w.ended
	}
	settled := 0
	if w.sealing != nil {
		done, err := w.commit(ctx)
		if err != nil || len(w.buffer) == 0 {
			return done, err
		}
		settled = 1
	}
	if err := w.admitted(ctx); err != nil {
		return Sealed{}, w.failed(err)
	}
	w.sealing, w.began = &sealing{batches: w.buffer}, w.env.deps.Clock.Now()
	w.buffer = nil
	if err := w.sealing.upload(ctx, w.env, w.in, w.hold); err != nil {
		w.takeBack()
		return Sealed{}, fmt.Errorf("shard %s of table %s: upload generation %d: %w", w.shard, w.env.cfg.Table, w.hold.Next(), err)
	}
	sealed, err := w.commit(ctx)
	sealed.Settled = settled
	return sealed, err
}

// admitted asks whether a seal would be refused, before a file is uploaded for it. A full manifest may have been trimmed
// since it was read.
func (w *Writer) admitted(ctx context.Context) error {
	err := w.hold.Admits()
	if !errors.Is(err, shardmanifest.ErrBacklogged) {
		return err
	}
	if err := w.hold.Refresh(ctx); err != nil {
		return err
	}
	return w.hold.Admits()
}

// takeBack puts the rows of a seal that is settled as unsealed back into the buffer, before what came later.
func (w *Writer) takeBack() {
	w.buffer = append(w.sealing.batches, w.buffer...)
	w.sealing = nil
}

// commit names the uploaded generation in the manifest, again if its outcome was not known, and tells etcd.
func (w *Writer) commit(ctx context.Context) (Sealed, error) {
	manifest, err := w.hold.Seal(ctx, w.sealing.generation)
	if err != nil {
		return Sealed{}, w.failed(err)
	}
	g, number := w.sealing.generation, w.sealing.number
	if p := w.env.cfg.Tracers; p != nil {
		tracing.Sealed(ctx, p, tracing.Generation{
			Table: w.env.cfg.Table, TableID: w.env.table.ID, Shard: w.shard, Number: number, SealedMS: g.SealedMS,
		}, g.Rows, g.Bytes, w.began, w.env.deps.Clock.Now())
	}
	for _, b := range w.sealing.batches {
		b.rec.Release()
		w.room.used.Add(-b.bytes)
	}
	w.sealing = nil
	w.backlog.sealed(w.env, w.shard, manifest)
	unpublished := w.backlog.publish(ctx, w.env)
	return Sealed{
		Shard: w.shard, Generation: number, Epoch: w.hold.Epoch(), Rows: g.Rows, Bytes: g.Bytes,
		Pending: w.backlog.pending, Unpublished: unpublished,
	}, nil
}

// failed decides what a refused or doubtful seal means for the rows.
func (w *Writer) failed(err error) error {
	var fenced *shardmanifest.FencedError
	switch {
	case errors.As(err, &fenced):
		return w.fenced(&FencedError{By: describe(fenced.By), ByEpoch: fenced.By.Epoch, byID: fenced.By.WriterID}, fenced.InDoubt)
	case errors.Is(err, shardmanifest.ErrRetired):
		return w.fenced(&FencedError{Retired: true}, false)
	case w.hold.Unsettled():
		return err
	}
	if w.sealing != nil {
		w.takeBack()
	}
	if errors.Is(err, shardmanifest.ErrBacklogged) {
		return fmt.Errorf("%w: %w", ErrBacklogged, err)
	}
	return err
}

// fenced ends the writer and hands its rows back.
func (w *Writer) fenced(e *FencedError, inDoubt bool) error {
	e.Table, e.Shard = w.env.cfg.Table, w.shard
	if w.sealing != nil && inDoubt {
		e.InDoubt = records(w.sealing.batches)
		w.sealing = nil
	}
	if w.sealing != nil {
		w.takeBack()
	}
	e.Unsealed = records(w.buffer)
	w.end()
	return e
}

// end gives up the buffer, whose records somebody else now owns.
func (w *Writer) end() {
	for _, b := range w.buffer {
		w.room.used.Add(-b.bytes)
	}
	w.buffer, w.sealing = nil, nil
	w.ended = fmt.Errorf("shard %s of table %s: %w", w.shard, w.env.cfg.Table, ErrClosed)
}

func records(batches []batch) []arrow.Record {
	recs := make([]arrow.Record, len(batches))
	for i, b := range batches {
		recs[i] = b.rec
	}
	return recs
}

func describe(c shardmanifest.Claim) string {
	if c.Label == "" {
		return c.WriterID
	}
	return fmt.Sprintf("%q (%s)", c.Label, c.WriterID)
}

// Close seals what is buffered, gives the shard up, so that IfFree claims can have it, and releases what the writer
// holds. Being fenced is an error only while there are rows to seal. After an error other than ErrFenced the writer is
// open still: close it again, or Abandon it. Closing a writer that has ended does nothing.
func (w *Writer) Close(ctx context.Context) error {
	if err := w.lock(ctx); err != nil {
		return err
	}
	defer w.unlock()
	if w.ended != nil {
		return w.release()
	}
	for w.sealing != nil || len(w.buffer) > 0 {
		if _, err := w.seal(ctx); err != nil {
			return errors.Join(err, w.releaseIfEnded())
		}
	}
	err := w.hold.Close(ctx)
	if err != nil && !errors.Is(err, ErrFenced) && !errors.Is(err, ErrRetired) {
		return err
	}
	// All rows are sealed. If somebody has taken the shard meanwhile, there is nothing to give up any more.
	w.end()
	return w.release()
}

// Abandon ends the writer without sealing anything and without a request to the store. It hands back the rows that are
// not sealed, and those whose seal is not settled; the caller owns the records. The shard stays open until it is claimed.
func (w *Writer) Abandon() (unsealed, inDoubt []arrow.Record, err error) {
	w.turn <- struct{}{}
	defer w.unlock()
	if w.ended != nil {
		return nil, nil, w.release()
	}
	if w.sealing != nil {
		inDoubt = records(w.sealing.batches)
		for _, b := range w.sealing.batches {
			w.room.used.Add(-b.bytes)
		}
	}
	unsealed = records(w.buffer)
	w.end()
	return unsealed, inDoubt, w.release()
}

func (w *Writer) releaseIfEnded() error {
	if w.ended == nil {
		return nil
	}
	return w.release()
}

// release closes what was opened for this writer alone.
func (w *Writer) release() error {
	if !w.owned {
		return nil
	}
	w.owned = false
	return w.env.close()
}

// take buffers rows that a Router has checked and for which it has taken the room.
func (w *Writer) take(b batch) {
	w.turn <- struct{}{}
	defer w.unlock()
	w.buffer = append(w.buffer, b)
}

// dirty reports whether there is anything to seal or to settle.
func (w *Writer) dirty() bool {
	w.turn <- struct{}{}
	defer w.unlock()
	return w.ended == nil && (len(w.buffer) > 0 || w.sealing != nil)
}
