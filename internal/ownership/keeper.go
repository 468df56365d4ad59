package ownership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/random"
)

// Holder keeps a lease for a Keeper. Every method makes one attempt, honours its context, and answers for the lease
// under exactly that token.
type Holder interface {
	// Acquire asks for the lease. Ours, Rival, NotDone or Unanswered.
	Acquire(ctx context.Context, token string) Answer
	// Renew extends it. Ours, Rival, Gone, NotDone or Unanswered.
	Renew(ctx context.Context, token string) Answer
	// Read says what stands there now. Ours, Rival, Gone or Unanswered.
	Read(ctx context.Context, token string) Answer
	// Release gives it back. Ours when done, else Gone, Rival, NotDone or Unanswered.
	Release(ctx context.Context, token string) Answer
}

// Grant is a lease while it is held.
type Grant struct {
	Lease clientv3.LeaseID // of a Session; everything leased is put under it
	Token string           // random, of this tenure alone
	// Context ends, with the cause of the fence, after everything registered with OnFence has returned.
	Context context.Context

	deadline *atomic.Int64 // monotonic nanoseconds
	clock    clock.Clock
}

// Deadline is the monotonic time at which the holder will fence itself unless a renewal moves it.
func (g Grant) Deadline() time.Duration { return time.Duration(g.deadline.Load()) }

// Err is nil while the lease is held. It compares the clock with the deadline too, so a process that wakes up after a
// long stop learns of it before any timer runs.
func (g Grant) Err() error {
	if g.Context == nil {
		return ErrNotHeld
	}
	if err := context.Cause(g.Context); err != nil {
		return fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	if now := g.clock.Mono(); now >= g.Deadline() {
		return fmt.Errorf("%w: %w", ErrNotHeld, ErrDeadline)
	}
	return nil
}

// Keeper drives a Machine against a Holder. Its methods are safe for concurrent use.
type Keeper struct {
	holder Holder
	config Config
	clock  clock.Clock
	random random.Source
	log    hclog.Logger

	mu       sync.Mutex // guards the following
	status   Status     // as published, after its effects
	refusal  error
	grant    Grant
	fences   []func(cause error)
	extended []func(deadline time.Duration)
	changed  chan struct{} // closed and replaced at every publication
}

// NewKeeper makes a keeper for a checked configuration.
func NewKeeper(holder Holder, config Config, c clock.Clock, r random.Source, log hclog.Logger) (*Keeper, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	return &Keeper{
		holder: holder, config: config, clock: c, random: r, log: log,
		status: Status{State: None, Reason: "not started"}, changed: make(chan struct{}),
	}, nil
}

// OnFence registers what must be closed when the lease is lost or given back. It is called from the keeper's own
// goroutine before anybody learns of the loss, so it must be quick and must not call the keeper.
func (k *Keeper) OnFence(close func(cause error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fences = append(k.fences, close)
}

// OnDeadline registers who must know of every new deadline: scopes compare each request with it. It is called like
// OnFence, at admission before the grant is visible.
func (k *Keeper) OnDeadline(set func(deadline time.Duration)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.extended = append(k.extended, set)
}

// Status is the lease for people.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// Current is the grant if the lease is held now.
func (k *Keeper) Current() (Grant, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.status.State != Held {
		return Grant{}, false
	}
	return k.grant, k.grant.Err() == nil
}

// Wait returns the grant as soon as the lease is held. It fails with the refusal once a rival has the lease for good,
// with ErrReleased once it was given back, and with the context.
func (k *Keeper) Wait(ctx context.Context) (Grant, error) {
	for {
		k.mu.Lock()
		status, grant, refusal, changed := k.status, k.grant, k.refusal, k.changed
		k.mu.Unlock()
		switch {
		case status.State == Held && grant.Err() == nil:
			return grant, nil
		case status.State == Failed:
			return Grant{}, refusal
		case status.State == Released:
			return Grant{}, ErrReleased
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Grant{}, context.Cause(ctx)
		}
	}
}

// answered is an answer on its way back to the machine.
type answered struct {
	seq    int
	answer Answer
}

// Run keeps the lease until ctx is done; then it fences, gives the lease back, and returns nil. It returns the refusal
// when a rival has the lease for good. It is called once.
func (k *Keeper) Run(ctx context.Context) error {
	machine := NewMachine(k.config, k.clock.Mono(),
		func() string { return random.ID(k.random) },
		func(d time.Duration) time.Duration { return random.Jitter(k.random, d) })
	requests, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &run{Keeper: k, machine: machine, requests: requests, answers: make(chan answered)}
	defer r.wait.Wait()
	defer stop()

	done := ctx.Done()
	for {
		r.carryOut(machine.Tick(k.clock.Mono()))
		switch machine.Status().State {
		case Failed:
			return machine.Refusal()
		case Released:
			return nil
		}
		timer, stopTimer := r.timer()
		select {
		case a := <-r.answers:
			r.carryOut(machine.Answer(k.clock.Mono(), a.seq, a.answer))
		case <-timer:
			// A renewal and the deadline ready together count as the renewal.
			select {
			case a := <-r.answers:
				r.carryOut(machine.Answer(k.clock.Mono(), a.seq, a.answer))
			default:
			}
		case <-done:
			done = nil
			r.carryOut(machine.Release(k.clock.Mono()))
		}
		stopTimer()
	}
}

// run is one Run: what its goroutine alone uses.
type run struct {
	*Keeper
	machine  *Machine
	requests context.Context // of all requests
	cancel   context.CancelFunc
	answers  chan answered
	wait     sync.WaitGroup // requests in flight
	previous chan struct{}  // closed when the request before has returned
	end      context.CancelCauseFunc
}

func (r *run) timer() (<-chan time.Time, func()) {
	at, ok := r.machine.Next()
	if !ok {
		return nil, func() {}
	}
	return r.clock.After(max(0, at-r.clock.Mono()))
}

// carryOut does what the machine asks, in its order, and then publishes where that led.
func (r *run) carryOut(actions []Action) {
	for _, a := range actions {
		switch a.Kind {
		case Send:
			r.send(a)
		case Fence:
			r.fence(a.Cause)
		case Admit:
			r.admit(a)
		case Extend:
			r.grant.deadline.Store(int64(a.Deadline))
			r.tell(a.Deadline)
		case Latch:
			r.log.Error("lease refused for good", "cause", a.Cause)
		}
	}
	r.publish()
}

func (r *run) send(a Action) {
	ctx, cancel := context.WithTimeout(r.requests, r.config.RequestTimeout)
	previous, returned := r.previous, make(chan struct{})
	r.cancel, r.previous = cancel, returned
	r.wait.Go(func() {
		defer cancel()
		if previous != nil {
			<-previous // it was cancelled, unless it has returned
		}
		answer := r.ask(ctx, a)
		close(returned)
		select {
		case r.answers <- answered{a.Seq, answer}:
		case <-r.requests.Done():
		}
	})
}

func (r *run) ask(ctx context.Context, a Action) Answer {
	switch a.Request {
	case Acquire:
		return r.holder.Acquire(ctx, a.Token)
	case Renew:
		return r.holder.Renew(ctx, a.Token)
	case Release:
		return r.holder.Release(ctx, a.Token)
	default:
		return r.holder.Read(ctx, a.Token)
	}
}

// fence closes what depends on the lease, then ends the grant. The loss is published after that.
func (r *run) fence(cause error) {
	r.cancel() // the request in flight, whose answer is no longer wanted
	r.mu.Lock()
	fences := r.fences
	r.mu.Unlock()
	for _, close := range fences {
		close(cause)
	}
	r.end(cause)
	if errors.Is(cause, ErrReleased) {
		r.log.Debug("lease given back")
		return
	}
	r.log.Warn("lease no longer held", "cause", cause)
}

func (r *run) admit(a Action) {
	ctx, end := context.WithCancelCause(context.Background())
	r.end = end
	grant := Grant{
		Lease: LeaseOf(a.Token), Token: a.Token, Context: ctx, clock: r.clock, deadline: new(atomic.Int64),
	}
	grant.deadline.Store(int64(a.Deadline))
	r.tell(a.Deadline)
	r.mu.Lock()
	r.grant = grant
	r.mu.Unlock()
	r.log.Info("lease held", "lease", fmt.Sprintf("%x", int64(grant.Lease)))
}

func (r *run) tell(deadline time.Duration) {
	r.mu.Lock()
	extended := r.extended
	r.mu.Unlock()
	for _, set := range extended {
		set(deadline)
	}
}

func (r *run) publish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == r.machine.Status() {
		return
	}
	r.status, r.refusal = r.machine.Status(), r.machine.Refusal()
	close(r.changed)
	r.changed = make(chan struct{})
}
