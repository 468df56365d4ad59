package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/clock"
)

func TestSleepEndsWithTheTimeOrTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		if err := c.Sleep(t.Context(), time.Hour); err != nil || c.Mono() != time.Hour {
			t.Errorf("%v at %v", err, c.Mono())
		}
		because := errors.New("because")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(because) })
		if err := c.Sleep(ctx, time.Hour); !errors.Is(err, because) || c.Mono() != time.Hour+time.Minute {
			t.Errorf("%v at %v", err, c.Mono())
		}
		if err := c.Sleep(ctx, 0); !errors.Is(err, because) {
			t.Errorf("an ended context must be noticed without waiting: %v", err)
		}
		if err := c.Sleep(t.Context(), -1); err != nil {
			t.Error(err)
		}
	})
}

func TestAStoppedTimerNeverFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		fired, stop := c.After(time.Second)
		stop()
		stop()
		time.Sleep(time.Minute)
		select {
		case <-fired:
			t.Error("it fired")
		default:
		}
	})
}
