package demand

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// DetachedTimeout bounds one batch of detached publishes.
	DetachedTimeout = 15 * time.Second
	// DetachedMax is how many batches are in flight at once; a further one is dropped. Demand that is stale costs a
	// look; publishers that pile up while etcd is slow cost etcd.
	DetachedMax = 4
)

// Result is how one event of a batch ended; its name is a label of a metric.
type Result string

// The results of publishing one event.
const (
	Written   Result = "written"   // the record changed
	Unchanged Result = "unchanged" // the record said so already
	Refused   Result = "refused"   // the stored record is of an unknown version
	Expired   Result = "expired"   // the batch's time was up
	Lost      Result = "lost"      // every round was lost, or etcd failed
	Dropped   Result = "dropped"   // too many batches were in flight
)

// Results are all of them.
var Results = []Result{Written, Unchanged, Refused, Expired, Lost, Dropped}

// ShardEvent is one event of a batch.
type ShardEvent struct {
	Table, Shard string
	Event        Event
}

// Events makes merged events a batch.
func (p *Publisher) Events(merged []MergedEvent) []ShardEvent {
	batch := make([]ShardEvent, 0, len(merged))
	for _, ev := range merged {
		batch = append(batch, ShardEvent{Table: ev.Table, Shard: ev.Shard, Event: p.merged(ev)})
	}
	return batch
}

// Detached publishes batches beside the work that knows them: an executor's marks after its release, a scan's findings.
// A batch has 15 s, 4 are in flight, and what does not fit is dropped: a later merge or the next scan says it again.
// Every event is counted with its result. It is safe for concurrent use.
type Detached struct {
	publisher *Publisher
	count     func(Result)
	ctx       context.Context
	cancel    context.CancelFunc
	slots     chan struct{} // one token per batch in flight
	wait      sync.WaitGroup
}

// NewDetached publishes through p and counts every result. Close ends it.
func NewDetached(p *Publisher, count func(Result)) *Detached {
	ctx, cancel := context.WithCancel(context.Background())
	return &Detached{publisher: p, count: count, ctx: ctx, cancel: cancel, slots: make(chan struct{}, DetachedMax)}
}

// errDropped is what a batch ends with that was not taken.
var errDropped = fmt.Errorf("publishing demand: %d batches were in flight", DetachedMax)

// Go publishes a batch, one shard per put, without waiting for it. It says whether the batch was taken. done is called once
// it has ended, with the first error of its events.
func (d *Detached) Go(batch []ShardEvent, done func(error)) bool {
	select {
	case d.slots <- struct{}{}:
	default:
		d.countAll(batch, Dropped)
		done(errDropped)
		return false
	}
	d.wait.Go(func() {
		defer func() { <-d.slots }()
		done(d.publish(d.ctx, batch))
	})
	return true
}

// Do publishes a batch and waits for it, for a caller that has nothing better to do, such as a scan. It waits for a
// place in flight too, within the same bound.
func (d *Detached) Do(ctx context.Context, batch []ShardEvent) error {
	ctx, cancel := context.WithTimeout(ctx, DetachedTimeout)
	defer cancel()
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		d.countAll(batch, Dropped)
		return fmt.Errorf("publishing %d demand events: no place in flight: %w", len(batch), context.Cause(ctx))
	}
	return d.publish(ctx, batch)
}

// Close ends what is in flight and waits for it.
func (d *Detached) Close() {
	d.cancel()
	d.wait.Wait()
}

// publish returns the first error; the other events are published all the same.
func (d *Detached) publish(ctx context.Context, batch []ShardEvent) error {
	ctx, cancel := context.WithTimeout(ctx, DetachedTimeout)
	defer cancel()
	var first error
	for i, ev := range batch {
		if err := ctx.Err(); err != nil {
			d.countAll(batch[i:], Expired)
			return errors.Join(first, fmt.Errorf("publishing demand: %d of %d events not sent: %w", len(batch)-i, len(batch), err))
		}
		_, wrote, err := d.publisher.publish(ctx, ev.Table, ev.Shard, ev.Event)
		d.count(resultOf(wrote, err))
		if first == nil {
			first = err
		}
	}
	return first
}

func (d *Detached) countAll(batch []ShardEvent, result Result) {
	for range batch {
		d.count(result)
	}
}

func resultOf(wrote bool, err error) Result {
	switch {
	case errors.Is(err, ErrFormat):
		return Refused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Expired
	case err != nil:
		return Lost
	case wrote:
		return Written
	}
	return Unchanged
}
