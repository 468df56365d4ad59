package merge

import (
	"context"
	"io"
	"sync"
)

// source is something that gives values until it is done: a generation's records, a base file's blocks. It takes each
// value back if give refuses it, which happens once nobody wants more.
type source[T any] func(ctx context.Context, give func(T) error) error

// ahead runs sources in front of whoever takes their values. Several sources run side by side, each with a short queue
// of its own; values are delivered source by source, in the order of the sources, as if they were read one after the
// other.
type ahead[T any] struct {
	cancel context.CancelFunc
	lanes  chan *lane[T]
	drop   func(T)
	group  sync.WaitGroup
	lane   *lane[T]
}

type lane[T any] struct {
	values chan T
	err    error // set before values is closed
	done   func()
}

// queueDepth is how many values may wait between a source and their taker: one being taken and one ready.
const queueDepth = 1

// startAhead runs up to width sources at once. Whoever started it must stop it.
func startAhead[T any](ctx context.Context, sources []source[T], width int, drop func(T)) *ahead[T] {
	ctx, cancel := context.WithCancel(ctx)
	a := &ahead[T]{cancel: cancel, lanes: make(chan *lane[T], len(sources)), drop: drop}
	running := make(chan struct{}, max(width, 1))
	a.group.Go(func() {
		defer close(a.lanes)
		for _, s := range sources {
			select {
			case running <- struct{}{}:
			case <-ctx.Done():
				// A source that was not read must not look like an empty one.
				unread := &lane[T]{values: make(chan T), err: context.Cause(ctx), done: func() {}}
				close(unread.values)
				a.lanes <- unread
				return
			}
			l := &lane[T]{values: make(chan T, queueDepth), done: func() { <-running }}
			a.lanes <- l
			a.group.Go(func() {
				defer close(l.values)
				l.err = s(ctx, func(v T) error {
					select {
					case l.values <- v:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				})
			})
		}
	})
	return a
}

// next is the next value of the source in hand; io.EOF once that source has given all it has. The caller then goes on
// to the next source.
func (a *ahead[T]) next(ctx context.Context) (T, error) {
	var none T
	select {
	case v, ok := <-a.lane.values:
		if ok {
			return v, nil
		}
		if a.lane.err != nil {
			return none, a.lane.err
		}
		return none, io.EOF
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// nextSource goes on to the next source and reports whether there is one. What the source in hand has not delivered
// is dropped.
func (a *ahead[T]) nextSource() bool {
	a.leave()
	l, ok := <-a.lanes
	a.lane = l
	return ok
}

func (a *ahead[T]) leave() {
	if a.lane == nil {
		return
	}
	for v := range a.lane.values {
		a.drop(v)
	}
	a.lane.done()
	a.lane = nil
}

// stop ends all sources, waits for them and drops what they have not delivered. It may be called more than once.
func (a *ahead[T]) stop() {
	a.cancel()
	for a.nextSource() {
	}
	a.group.Wait()
}
