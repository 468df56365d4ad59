package rootlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

// exitFenced is the exit status of a server that lost its claim.
const exitFenced = 2

// Options are what claiming a root needs. All but Dir, Lease and Wait are required.
type Options struct {
	Store  objstore.Store
	Clock  clock.Clock
	Random random.Source
	Log    hclog.Logger

	Cluster string        // name of the cluster that the server is
	Holder  string        // host and process, for people
	Etcd    []string      // endpoints of the server's etcd, for commands
	Lease   time.Duration // 0 is LeaseDefault; not used on a local root
	Dir     string        // of a local root; empty elsewhere
	Wait    bool          // while another server lives, instead of failing
}

func (o Options) check() (Options, error) {
	if o.Lease == 0 {
		o.Lease = LeaseDefault
	}
	if o.Lease < LeaseMin || o.Lease > LeaseMax {
		return o, fmt.Errorf("a lease of %v on the root is outside %v to %v", o.Lease, LeaseMin, LeaseMax)
	}
	return o, nil
}

// record is what a claim under an id writes.
func (o Options) record(kind Kind, id string) Record {
	return Record{Nonce: random.ID(o.Random), Kind: kind, Cluster: o.Cluster, ID: id, Holder: o.Holder, Etcd: o.Etcd}
}

func (o Options) retry() objstore.Retry { return objstore.Retry{Clock: o.Clock, Random: o.Random} }

// Claim is a root while it is held.
type Claim struct {
	ID string // of the lock
	// Store is the root. On a leased claim it refuses everything from the moment the claim is lost.
	Store *objstore.Scope
}

// LostError says that a server has lost its claim. The process ends with status 2.
type LostError struct {
	Root  string
	ID    string
	Cause error
}

// Code is the error's stable code.
func (e *LostError) Code() string { return "root_lost" }

// ExitCode is the exit status of a process that ends for it.
func (e *LostError) ExitCode() int { return exitFenced }

func (e *LostError) Error() string {
	return fmt.Sprintf("the claim on root %s (id %s) is lost: %v; nothing is lost with it, start the server again", e.Root, e.ID, e.Cause)
}

// Unwrap returns why it was lost.
func (e *LostError) Unwrap() error { return e.Cause }

// Run claims a root, serves it until serve returns or ctx is done, and gives the claim back. When the claim is lost,
// first its store is closed, then the context of serve ends with a *LostError; Run waits for serve and returns that
// error, without giving anything back. A root that somebody else holds is a *HeldError.
func Run(ctx context.Context, o Options, serve func(ctx context.Context, c Claim) error) error {
	o, err := o.check()
	if err != nil {
		return err
	}
	if o.Dir != "" {
		return runLocal(ctx, o, serve)
	}
	r := &run{
		Options: o, serve: serve, answers: make(chan answered, 1), served: make(chan error, 1), fence: func(error) {},
		trimming: make(chan struct{}, 1), beats: objstore.NewScope(o.Store, o.Clock),
		machine: NewMachine(MachineConfig{
			Lease: o.Lease, Wait: o.Wait, NewID: func() string { return random.ID(o.Random) },
		}, o.Clock.Mono()),
	}
	var stop context.CancelFunc
	r.requests, stop = context.WithCancel(context.WithoutCancel(ctx))
	defer r.wait.Wait()
	defer stop()
	return r.loop(ctx)
}

// requestTimeout bounds the requests that nothing else bounds: those of a start and of a clean stop.
const requestTimeout = 10 * time.Second

// answered is an answer on its way back to the machine.
type answered struct {
	seq    int
	answer Answer
}

// run is one leased claim. Only the goroutine of loop uses it.
type run struct {
	Options
	machine *Machine
	serve   func(context.Context, Claim) error
	// beats sends the requests that keep the claim. It is not the scope of what the claim admits, so that a beat does not
	// end with a deadline that it is about to move; but it closes with the claim.
	beats    *objstore.Scope
	scope    *objstore.Scope // of what was admitted; nil before
	requests context.Context
	cancel   context.CancelFunc // of the request in flight
	wait     sync.WaitGroup     // for requests
	answers  chan answered

	fence    func(cause error) // ends the context of serve
	served   chan error
	trimming chan struct{} // holds a token while old beats are being removed
	trimmed  uint64        // beats below are removed; it belongs to whoever put the token there
	watching string        // the lock that was said to be in the way
}

func (r *run) loop(ctx context.Context) error {
	done, served := ctx.Done(), r.served
	var result error
	for {
		r.carryOut(ctx, r.machine.Tick(r.Clock.Mono()))
		if r.machine.State() == Ended {
			break
		}
		timer, stopTimer := r.timer()
		select {
		case a := <-r.answers:
			r.carryOut(ctx, r.machine.Answer(r.Clock.Mono(), a.seq, a.answer))
		case <-timer:
			// An answer and the deadline ready together count as the answer.
			select {
			case a := <-r.answers:
				r.carryOut(ctx, r.machine.Answer(r.Clock.Mono(), a.seq, a.answer))
			default:
			}
		case result = <-served:
			served = nil
			r.carryOut(ctx, r.machine.Release(r.Clock.Mono()))
		case <-done:
			done = nil
			if r.scope == nil { // else serve ends, and then the claim
				r.carryOut(ctx, r.machine.Release(r.Clock.Mono()))
				result = context.Cause(ctx)
			}
		}
		stopTimer()
	}
	if r.scope != nil && served != nil {
		result = <-served
	}
	return r.result(result)
}

// result is what Run returns once the machine has ended; served is what serve returned, or the end of ctx before.
func (r *run) result(served error) error {
	err := r.machine.Err()
	if held := (*HeldError)(nil); errors.As(err, &held) {
		held.Root = r.Store.URL()
		return held
	}
	switch {
	case err == nil, errors.Is(err, ErrReleased):
		return served
	case errors.Is(err, ErrDeadline), errors.Is(err, ErrSuperseded):
		return &LostError{Root: r.Store.URL(), ID: r.machine.id, Cause: err}
	case errors.Is(err, ErrRecord):
		return err // which names the root
	}
	return fmt.Errorf("root %s: %w", r.Store.URL(), err)
}

func (r *run) timer() (<-chan time.Time, func()) {
	at, ok := r.machine.Next()
	if !ok {
		return nil, func() {}
	}
	return r.Clock.After(at - r.Clock.Mono())
}

func (r *run) carryOut(ctx context.Context, actions []Action) {
	r.setDeadlines()
	for _, a := range actions {
		switch a.Kind {
		case Send:
			r.send(a)
		case Admit:
			r.admit(ctx, a.ID)
		case Fence:
			r.close(a.Cause)
		case Trim:
			r.trim(a.ID, a.Beat)
		}
	}
	if lock, ok := r.machine.Watching(); ok && r.watching != lock.ID {
		r.watching = lock.ID
		r.Log.Warn("the root is held; watching for signs of life of its holder", "root", r.Store.URL(), "holder", lock.describe(),
			"silence", lock.Lease()*3/2)
	}
}

// setDeadlines lets the scopes refuse what a process would send that has slept past its deadline.
func (r *run) setDeadlines() {
	at, ok := r.machine.Deadline()
	if !ok {
		return
	}
	r.beats.SetDeadline(at)
	if r.scope != nil {
		r.scope.SetDeadline(at)
	}
}

// admit lets serve begin.
func (r *run) admit(ctx context.Context, id string) {
	r.Log.Info("the root is ours", "root", r.Store.URL(), "id", id, "lease", r.Lease)
	r.scope = objstore.NewScope(r.Store, r.Clock)
	r.setDeadlines()
	serving, cancel := context.WithCancelCause(ctx)
	r.fence = cancel
	claim := Claim{ID: id, Store: r.scope}
	go func() { r.served <- r.serve(serving, claim) }() // loop waits for it
}

// close closes what was admitted, then reports the loss.
func (r *run) close(cause error) {
	if r.cancel != nil {
		r.cancel()
	}
	r.beats.Fence(cause)
	if r.scope == nil {
		return
	}
	r.scope.Fence(cause)
	if !errors.Is(cause, ErrReleased) {
		r.Log.Error("the claim on the root is lost; stopping", "root", r.Store.URL(), "id", r.machine.id, "cause", cause)
	}
	r.fence(&LostError{Root: r.Store.URL(), ID: r.machine.id, Cause: cause})
}

// trim removes old beats, never while the last removal is still under way; what that one did not reach comes first.
func (r *run) trim(id string, below uint64) {
	select {
	case r.trimming <- struct{}{}:
	default:
		return
	}
	r.wait.Go(func() {
		defer func() { <-r.trimming }()
		ctx, cancel := context.WithTimeout(r.requests, requestTimeout)
		defer cancel()
		for ; r.trimmed < below; r.trimmed++ {
			if err := r.beats.Delete(ctx, BeatKey(id, r.trimmed)); err != nil {
				return
			}
		}
	})
}

func (r *run) send(a Action) {
	timeout := requestTimeout
	switch a.Request {
	case Look, PutBeat:
		timeout = r.machine.retryAfter()
	case Acquire:
		timeout = r.machine.deadlineAfter()
	}
	ctx, cancel := context.WithTimeout(r.requests, timeout)
	r.cancel = cancel
	r.wait.Go(func() {
		defer cancel()
		answer := r.ask(ctx, a)
		select {
		case r.answers <- answered{a.Seq, answer}:
		case <-r.requests.Done():
		}
	})
}
