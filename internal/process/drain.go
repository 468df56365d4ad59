package process

import (
	"context"
	"errors"
)

// ErrDrained is the cause of a context that ends because the operator asked for the end.
var ErrDrained = errors.New("asked to stop")

// UntilDrained returns a context that also ends, with ErrDrained, when drain is closed. The caller calls stop when it
// needs the context no more.
func UntilDrained(ctx context.Context, drain <-chan struct{}) (until context.Context, stop func()) {
	until, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-drain:
			cancel(ErrDrained)
		case <-until.Done():
		}
	}()
	return until, func() {
		cancel(nil)
		<-done
	}
}
