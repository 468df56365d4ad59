package rootlock

import (
	"context"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
)

// A process that is stopped, by SIGSTOP or by a machine that hangs, runs no code while time goes on: its timers fire and
// its requests go out, and come back, when it wakes.

// stallClock is the clock of such a process.
type stallClock struct {
	clock.Clock
	mu    sync.Mutex // guards awake
	awake chan struct{}
}

func newStallClock() *stallClock {
	awake := make(chan struct{})
	close(awake)
	return &stallClock{Clock: clock.System(), awake: awake}
}

// running is closed while the process runs.
func (c *stallClock) running() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.awake
}

func (c *stallClock) stall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.awake:
		c.awake = make(chan struct{})
	default:
	}
}

func (c *stallClock) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.awake:
	default:
		close(c.awake)
	}
}

func (c *stallClock) After(d time.Duration) (<-chan time.Time, func()) {
	fired, stop := c.Clock.After(d)
	woken, quit := make(chan time.Time, 1), make(chan struct{})
	var once sync.Once
	go func() {
		select {
		case at := <-fired:
			select {
			case <-c.running():
				woken <- at
			case <-quit:
			}
		case <-quit:
		}
	}()
	return woken, func() {
		stop()
		once.Do(func() { close(quit) })
	}
}

func (c *stallClock) Sleep(ctx context.Context, d time.Duration) error { return clock.Sleep(ctx, c, d) }

// stallStore is the store as such a process reaches it.
type stallStore struct {
	objstore.Store
	clock *stallClock
}

// pass waits until the process runs, before and after a request.
func (s *stallStore) pass() func() {
	<-s.clock.running()
	return func() { <-s.clock.running() }
}

func (s *stallStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	defer s.pass()()
	return s.Store.Get(ctx, key)
}

func (s *stallStore) Head(ctx context.Context, key string) (objstore.Info, error) {
	defer s.pass()()
	return s.Store.Head(ctx, key)
}

func (s *stallStore) List(ctx context.Context, r objstore.ListRequest) (objstore.Page, error) {
	defer s.pass()()
	return s.Store.List(ctx, r)
}

func (s *stallStore) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	defer s.pass()()
	return s.Store.PutIfAbsent(ctx, key, body)
}

func (s *stallStore) ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) objstore.Result {
	defer s.pass()()
	return s.Store.ReplaceIfMatch(ctx, key, body, etag)
}

func (s *stallStore) Delete(ctx context.Context, key string) error {
	defer s.pass()()
	return s.Store.Delete(ctx, key)
}
