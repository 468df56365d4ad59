package writer

import (
	"context"
	"fmt"
	"time"

	"tidemark/internal/deltalog"
	"tidemark/internal/demand"
	"tidemark/internal/shardmanifest"
)

// Publisher tells etcd of a seal and answers with the joined demand of the shard. *demand.Publisher is one.
type Publisher interface {
	PublishSealed(ctx context.Context, ev demand.SealedEvent) (demand.Record, error)
}

// backlog is what a writer knows of its shard's pending generations. Its owner's turn guards it.
type backlog struct {
	pending uint64
	through uint64             // newest generation
	merged  uint64             // mark, as last seen in the Delta log or trimmed
	event   demand.SealedEvent // of the newest generation
	// pauseUntil is when publishing may be tried again, by the monotonic clock.
	pauseUntil time.Duration
	// lookedAt is when the backlog was last looked at because it was at its limit; meaningless before the first time.
	lookedAt time.Duration
	looked   bool
}

// sealed takes over a manifest that was read after a claim or a seal.
func (b *backlog) sealed(env *environment, shard string, m *shardmanifest.Manifest) {
	b.through = m.SealedThrough
	b.merged = max(b.merged, m.TrimmedThrough)
	b.pending = b.through - min(b.merged, b.through)
	if m.SealedThrough == 0 {
		return
	}
	g, _ := m.Generation(m.SealedThrough) // if it was trimmed already its time does not matter any more
	bytes, rows, epoch, _ := m.CumAt(m.SealedThrough)
	b.event = demand.SealedEvent{
		Table: env.cfg.Table, TableID: env.table.ID, Incarnation: env.table.Incarnation, Shard: shard,
		Sealed: demand.Mark{Gen: m.SealedThrough, Epoch: epoch, Bytes: bytes, Rows: rows}, SealedMS: g.SealedMS,
	}
}

// publish tells etcd of the newest generation. A failure is returned for the record only: the next seal tells more.
func (b *backlog) publish(ctx context.Context, env *environment) error {
	if env.deps.Publisher == nil || b.through == 0 {
		return nil
	}
	now := env.deps.Clock.Mono()
	if now < b.pauseUntil {
		return fmt.Errorf("not published: the last attempt failed less than %v ago", publishPause)
	}
	record, err := env.deps.Publisher.PublishSealed(ctx, b.event)
	if err != nil {
		b.pauseUntil = now + publishPause
		return err
	}
	if pending, known := record.Pending(); known {
		b.pending = pending
		b.merged = max(b.merged, record.Merged.Gen)
	}
	return nil
}

// look finds out what has been merged meanwhile: publishing again what is published changes nothing and brings the joined
// record; without etcd the Delta log says it.
func (b *backlog) look(ctx context.Context, env *environment, shard string) error {
	if env.deps.Publisher != nil && b.publish(ctx, env) == nil {
		return nil
	}
	snapshot, err := env.refresh(ctx)
	if err != nil {
		return err
	}
	b.seen(shard, snapshot)
	return nil
}

// seen takes over the merged mark of a snapshot.
func (b *backlog) seen(shard string, snapshot *deltalog.Snapshot) {
	b.merged = max(b.merged, uint64(max(0, snapshot.Mark(shard)))) // an absent mark is 0 in storage
	b.pending = b.through - min(b.merged, b.through)
}

// admit holds an append back while the backlog is at its limit.
func (w *Writer) admit(ctx context.Context) error {
	full, err := w.full(ctx)
	if err != nil || !full {
		return err
	}
	if w.env.cfg.OnBacklog == Refuse {
		return fmt.Errorf("shard %s of table %s: %w: %d generations are sealed and not merged; append again later",
			w.shard, w.env.cfg.Table, ErrBacklogged, w.env.cfg.MaxPending)
	}
	for full && err == nil {
		if err = w.env.deps.Clock.Sleep(ctx, backlogPoll); err == nil {
			full, err = w.full(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("shard %s of table %s: %w: gave up waiting: %w", w.shard, w.env.cfg.Table, ErrBacklogged, err)
	}
	return nil
}

// full looks whether the backlog is at its limit, at most once per backlogPoll.
func (w *Writer) full(ctx context.Context) (bool, error) {
	if err := w.lock(ctx); err != nil {
		return false, err
	}
	defer w.unlock()
	limit := uint64(w.env.cfg.MaxPending)
	b := &w.backlog
	if w.ended != nil || b.pending < limit {
		return false, w.ended
	}
	now := w.env.deps.Clock.Mono()
	if b.looked && now-b.lookedAt < backlogPoll {
		return true, nil
	}
	b.looked, b.lookedAt = true, now
	if err := b.look(ctx, w.env, w.shard); err != nil {
		return false, fmt.Errorf("shard %s of table %s: look at the backlog: %w", w.shard, w.env.cfg.Table, err)
	}
	return b.pending >= limit, nil
}
