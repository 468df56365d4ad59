// Package clock is the only source of time in Tidemark. Everything that waits or reads a time takes a Clock, so
// that a simulation can skew, pause and advance every process on its own.
//
// Wall time (Now) orders service and is shown to people; it decides nothing. Ownership, fences and deadlines use
// monotonic time (Mono), and no two processes' clocks are ever compared.
package clock

import (
	"context"
	"time"
)

// Clock is one process's view of time. Implementations are safe for concurrent use.
type Clock interface {
	// Now is the wall clock. It may step in either direction and may differ from other processes by any amount.
	Now() time.Time
	// Mono is the time since an arbitrary fixed point of this process. It never steps and never goes back.
	Mono() time.Duration
	// Sleep waits for d, or until ctx is done and then returns context.Cause(ctx).
	Sleep(ctx context.Context, d time.Duration) error
	// After delivers one value on the channel once d has passed. Calling stop releases the timer; it may be
	// called more than once.
	After(d time.Duration) (c <-chan time.Time, stop func())
}

// System is the machine's clock. Inside a testing/synctest bubble it is the bubble's virtual clock.
func System() Clock { return system{start: time.Now()} }

type system struct{ start time.Time }

func (s system) Now() time.Time { return time.Now() }

func (s system) Mono() time.Duration { return time.Since(s.start) }

func (s system) Sleep(ctx context.Context, d time.Duration) error { return Sleep(ctx, s, d) }

func (s system) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// Sleep waits on any clock's After; implementations of Clock use it for their Sleep method.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if d <= 0 {
		return nil
	}
	fired, stop := c.After(d)
	defer stop()
	select {
	case <-fired:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
