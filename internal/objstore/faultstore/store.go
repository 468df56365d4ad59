package faultstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
)

// ErrInjected is in the chain of every error that a rule has caused.
var ErrInjected = errors.New("injected fault")

// Store is a store with faults. It is safe for concurrent use.
type Store struct {
	inner objstore.Store
	clock clock.Clock

	mu      sync.Mutex // guards all below; the inner store is never called with it held
	rules   []*rule
	flights []*flight // in the order they were sent
	trace   []string
}

// flight is a request whose sender has been told nothing and which the store has not seen yet.
type flight struct {
	afterOps int // more operations to end before it lands; 0 means when told
	land     func()
}

// traceMax bounds the transcript; older lines are dropped. A long simulation keeps the lines before its failure.
const traceMax = 10_000

// Wrap returns a store that behaves as s except where the script says otherwise. A bad script is an error that names
// every bad line.
func Wrap(s objstore.Store, c clock.Clock, script string) (*Store, error) {
	f := &Store{inner: s, clock: c}
	return f, f.Add(script)
}

var _ objstore.Store = (*Store)(nil)

// Add adds the rules of another script behind those there are. Their counts start now.
func (s *Store) Add(script string) error {
	rules, err := parse(script)
	if err != nil {
		return fmt.Errorf("fault script: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, rules...)
	return nil
}

// Clear forgets all rules. Requests in flight stay in flight.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// Land carries out every request that is still in flight, in the order they were sent, and returns their number.
func (s *Store) Land() int {
	s.mu.Lock()
	flights := s.flights
	s.flights = nil
	s.mu.Unlock()
	for _, f := range flights {
		f.land()
	}
	return len(flights)
}

// Unused returns the rules that have not decided any operation, as written, so that a test can tell that its faults
// have really happened.
func (s *Store) Unused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var unused []string
	for _, r := range s.rules {
		if r.fired == 0 {
			unused = append(unused, r.text)
		}
	}
	return unused
}

// Trace returns the operations so far, the oldest first, one line each: "put-if-absent a/b: applied". A late landing is
// a line of its own, "landed: put-if-absent a/b: refused".
func (s *Store) Trace() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.trace...)
}

// URL returns the URL of the inner store.
func (s *Store) URL() string { return s.inner.URL() }

// pick returns the fault that the script has for an operation that starts now.
func (s *Store) pick(op, key string) (f fault, line int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		if r.op != opAny && r.op != op || !match(r.pattern, key) {
			continue
		}
		r.seen++
		if line == 0 && r.from <= r.seen && r.seen <= r.to {
			r.fired++
			f, line = r.fault, r.line
		}
	}
	return f, line
}

// note adds a line to the transcript.
func (s *Store) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.trace) == traceMax {
		s.trace = append(s.trace[:0], s.trace[traceMax/2:]...)
	}
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

// ended counts an operation that has ended, and lands the flights for which it was the last to wait for.
func (s *Store) ended() {
	s.mu.Lock()
	var due []*flight
	kept := s.flights[:0]
	for _, f := range s.flights {
		if f.afterOps == 1 {
			due = append(due, f)
			continue
		}
		if f.afterOps > 1 {
			f.afterOps--
		}
		kept = append(kept, f)
	}
	s.flights = kept
	s.mu.Unlock()
	for _, f := range due {
		f.land()
	}
}

// lost is the error of an operation that a rule has decided.
func lost(op, key string, code objstore.Code, line int, what string) error {
	return &objstore.Error{Op: op, Key: key, Code: code, Err: fmt.Errorf("%s (%w, line %d)", what, ErrInjected, line)}
}

// verdict is what an operation with an outcome ends in, besides what the inner store returns.
type verdict struct {
	outcome objstore.Outcome
	err     error
}

// run carries out one operation as the script wants it. do performs it on the inner store and returns its end for the
// transcript; it may be called later, with a context of its own, when the caller has long gone.
func (s *Store) run(ctx context.Context, op, key string, do func(context.Context) verdict) verdict {
	f, line := s.pick(op, key)
	if f.kind == 0 {
		return s.end(op, key, do(ctx))
	}
	if err := objstore.Admitted(ctx); err != nil {
		return s.end(op, key, do(ctx)) // the inner store refuses it
	}
	switch f.kind {
	case failBeforeSend:
		return s.end(op, key, verdict{objstore.Refused, lost(op, key, objstore.CodeUnavailable, line, "connection refused")})
	case refuse:
		return s.end(op, key, verdict{objstore.Refused, lost(op, key, objstore.CodeDenied, line, "access denied")})
	case throttle:
		return s.end(op, key, verdict{objstore.Unknown, lost(op, key, objstore.CodeThrottled, line, "503 Slow Down")})
	case slow:
		if err := s.clock.Sleep(ctx, f.delay); err != nil {
			return s.end(op, key, verdict{objstore.Unknown, &objstore.Error{Op: op, Key: key, Code: objstore.CodeCancelled, Err: err}})
		}
		return s.end(op, key, do(ctx))
	case hang:
		s.send(f, op, key, do)
		<-ctx.Done()
		v := verdict{objstore.Unknown, &objstore.Error{Op: op, Key: key, Code: objstore.CodeCancelled, Err: context.Cause(ctx)}}
		s.note("%s %s: hung, then %s", op, key, v)
		return v
	default:
		v := s.end(op, key, verdict{objstore.Unknown, lost(op, key, objstore.CodeUnavailable, line, "the answer was lost")})
		s.send(f, op, key, do)
		return v
	}
}

func (s *Store) end(op, key string, v verdict) verdict {
	s.note("%s %s: %s", op, key, v)
	s.ended()
	return v
}

// send puts a request in flight, or carries it out, or loses it. From here on it is no longer its sender's: neither the
// sender's context nor its fence can stop it.
func (s *Store) send(f fault, op, key string, do func(context.Context) verdict) {
	land := func() {
		s.note("landed: %s %s: %s", op, key, do(context.Background()))
	}
	switch f.landing {
	case applied:
		land()
	case landsAfter, landsWhenTold:
		s.mu.Lock()
		s.flights = append(s.flights, &flight{afterOps: f.ops, land: land})
		s.mu.Unlock()
	}
}

func (v verdict) String() string {
	switch {
	case v.outcome == objstore.Refused && v.err != nil, v.outcome == objstore.Unknown:
		return fmt.Sprintf("%s (%s)", v.outcome, objstore.CodeOf(v.err))
	case v.outcome != 0:
		return v.outcome.String()
	case v.err != nil:
		return string(objstore.CodeOf(v.err))
	}
	return "ok"
}
