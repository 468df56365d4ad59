package process

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

func TestTheFirstSignalDrainsAndTheSecondCancels(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	signals, stop := watchSignals(cancel)
	defer stop()
	send := func() {
		t.Helper()
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	send()
	<-signals.Drain
	if ctx.Err() != nil {
		t.Fatal("the first signal cancels")
	}
	send()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), errInterrupted) {
		t.Errorf("cancelled by %v", context.Cause(ctx))
	}
}
