package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/random"
)

// errCrashed is the cause of the end of a crashed process's context.
var errCrashed = errors.New("sim: the process has crashed")

// process is one life of something that can fail on its own.
type process struct {
	world  *world
	name   string // stable, such as exec-1; the life's number is in id
	life   int
	random random.Source
	clock  *processClock
	ctx    context.Context
	cancel context.CancelCauseFunc
	dead   chan struct{} // closed by a crash
	ended  chan struct{} // closed when its main function has returned
	amid   time.Duration // it pauses for so long when it next changes something in the store; only the world's goroutine

	mu         sync.Mutex    // guards the following
	paused     time.Duration // until then; 0 is not at all
	since      time.Duration // the pause began
	missed     time.Duration // all pauses before
	wake       chan struct{} // closed at the end of the pause
	held       []func()      // timers that fired during the pause
	cut        [2]time.Duration
	broken     []func(error)   // breaks its streams
	executions map[string]bool // whose commits it has sent
	claim      string          // of the standalone root, the latest
}

func (w *world) spawn(name string, life int, skew time.Duration, main func(p *process) error) *process {
	p := &process{
		world: w, name: name, life: life, dead: make(chan struct{}), ended: make(chan struct{}), executions: map[string]bool{},
		random: random.Seeded(w.draw(fmt.Sprintf("%s life %d", name, life)).Uint64()),
	}
	p.clock = &processClock{process: p, skew: skew, start: w.now(), stops: w.mutant == mutantNoFence && executes(p)}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	go func() {
		defer close(p.ended)
		err := main(p)
		if p.ctx.Err() == nil && err != nil {
			w.trace.say(p.name, "ends: %v", err)
		}
	}()
	return p
}

// crash ends the process as a power cut does: from now on it sends nothing. What it had sent may still arrive.
func (p *process) crash() {
	if !p.isDead() {
		p.world.trace.say(p.name, "crashes")
		p.kill()
	}
}

// kill is crash without a word.
func (p *process) kill() {
	if p.isDead() {
		return
	}
	close(p.dead)
	p.resume()
	p.cancel(errCrashed)
}

func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// alive says whether the process's main function runs.
func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return !p.isDead()
	}
}

// pause stops the process as SIGSTOP does, for a time.
func (p *process) pause(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != 0 {
		return
	}
	p.world.trace.say(p.name, "pauses for %s", d)
	p.since, p.paused, p.wake = p.world.now(), p.world.now()+d, make(chan struct{})
	p.world.submit(p.name+" resumes", d, p.resume)
}

func (p *process) resume() {
	p.mu.Lock()
	if p.paused == 0 {
		p.mu.Unlock()
		return
	}
	held := p.held
	p.missed += p.world.now() - p.since
	p.paused, p.held = 0, nil
	close(p.wake)
	p.mu.Unlock()
	for _, fire := range held {
		fire()
	}
}

func (p *process) pausedUntil() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused, p.paused != 0
}

// awake waits for the end of a pause; the error says that the process, or the context, is no more.
func (p *process) awake(ctx context.Context) error {
	for {
		p.mu.Lock()
		paused, wake := p.paused != 0, p.wake
		p.mu.Unlock()
		if p.isDead() {
			return errCrashed
		}
		if !paused {
			return ctx.Err()
		}
		select {
		case <-wake:
		case <-p.dead:
		}
	}
}

// cutFrom cuts the process off for a time.
func (p *process) cutFrom(to target, d time.Duration) {
	p.mu.Lock()
	p.cut[to] = p.world.now() + d
	broken := p.broken
	if to == toEtcd {
		p.broken = nil
	} else {
		broken = nil
	}
	p.mu.Unlock()
	p.world.trace.say(p.name, "is cut off from %s for %s", [...]string{"the store", "etcd"}[to], d)
	for _, fail := range broken {
		p.world.submit(p.name+" connection lost", 5*time.Second, func() { fail(errLost) })
	}
}

func (p *process) cutOff(to target) (until time.Duration, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut[to], p.cut[to] > p.world.now()
}

// heal ends pauses and cuts.
func (p *process) heal() {
	p.mu.Lock()
	p.cut = [2]time.Duration{}
	p.mu.Unlock()
	p.resume()
}

// processClock is a process's own clock: its wall clock is wrong, and its timers stand still while it is paused.
type processClock struct {
	process *process
	skew    time.Duration
	start   time.Duration
	// stops is a bug (mutant.go): the monotonic clock does not see pauses.
	stops bool
}

var _ clock.Clock = (*processClock)(nil)

func (c *processClock) Now() time.Time { return time.Now().Add(c.skew) }

func (c *processClock) Mono() time.Duration {
	mono := c.process.world.now() - c.start
	if c.stops {
		c.process.mu.Lock()
		defer c.process.mu.Unlock()
		mono -= c.process.missed
	}
	return mono
}

func (c *processClock) Sleep(ctx context.Context, d time.Duration) error {
	return clock.Sleep(ctx, c, d)
}

func (c *processClock) After(d time.Duration) (<-chan time.Time, func()) {
	fired := make(chan time.Time, 1)
	p := c.process
	fire := func() { fired <- c.Now() }
	timer := time.AfterFunc(d, func() {
		p.mu.Lock()
		if p.paused != 0 {
			p.held = append(p.held, fire)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		fire()
	})
	return fired, func() { timer.Stop() }
}

// skewOf draws how wrong a process's clock is: most are right to a second, some wrong by up to an hour.
func skewOf(r *rand.Rand) time.Duration {
	switch r.IntN(6) {
	case 0:
		return time.Duration(r.Int64N(int64(2*time.Hour))) - time.Hour
	case 1: // a wrong time zone, which is where an hour matters
		return time.Hour - time.Duration(r.Int64N(int64(time.Minute)))
	}
	return time.Duration(r.Int64N(int64(2*time.Second))) - time.Second
}
