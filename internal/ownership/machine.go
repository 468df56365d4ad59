package ownership

import (
	"fmt"
	"time"
)

// ActionKind is what a machine asks its driver to do.
type ActionKind uint8

// The actions of a machine, which a driver carries out in the order given.
const (
	// Send a request under Token; its answer comes back with the same Seq.
	Send ActionKind = iota + 1
	// Fence for Cause: close everything that depends on the lease, then report the loss. A request in flight is
	// cancelled, its answer no longer wanted.
	Fence
	// Admit work under Token until Deadline.
	Admit
	// Extend the deadline of what was admitted to Deadline.
	Extend
	// Latch: a rival has it for good. Log it, once.
	Latch
)

// Action is one thing a driver must do.
type Action struct {
	Kind     ActionKind
	Request  Request
	Seq      int
	Token    string
	Deadline time.Duration
	Cause    error
}

// Machine is the state of one lease. It does no I/O and reads no clock: times are monotonic and come in. It is not safe
// for concurrent use.
type Machine struct {
	config Config
	token  func() string                     // draws fresh tokens
	jitter func(time.Duration) time.Duration // spreads what everybody would do at once
	status Status

	held      string // token under which the lease is or may be ours; empty when nothing is
	renewal   string // token of a conditional renewal in flight
	former    []string
	inFlight  Request
	next      Request // what to send at nextAt, when nothing is in flight
	seq       int
	sentAt    time.Duration // of the request in flight, or of the one that is read back
	deadline  time.Duration // while held, or while an acquisition is in flight
	nextAt    time.Duration
	startedAt time.Duration
	refusedAt time.Duration // of the first of an unbroken row of refusals
	refused   bool
	everHeld  bool
	releasing bool
	releases  int // requests to release sent
	refusal   error
}

// NewMachine makes a machine that asks for the lease at its first step.
func NewMachine(config Config, now time.Duration, token func() string, jitter func(time.Duration) time.Duration) *Machine {
	return &Machine{
		config: config, token: token, jitter: jitter,
		status: Status{State: None, Reason: "not asked yet"}, next: Acquire, nextAt: now, startedAt: now,
	}
}

// Status is the machine's state for people.
func (m *Machine) Status() Status { return m.status }

// Refusal is the error of a Failed machine.
func (m *Machine) Refusal() error { return m.refusal }

// Next is when Tick wants to be called if nothing happens before; false when never.
func (m *Machine) Next() (at time.Duration, ok bool) {
	switch m.status.State {
	case Held:
		if m.inFlight != NoRequest {
			return m.deadline, true
		}
		return min(m.deadline, m.nextAt), true
	case Quarantined:
		return m.status.QuarantineEnd, true
	case None, Reacquiring:
		return m.nextAt, m.inFlight == NoRequest
	}
	return 0, false
}

// Tick lets time pass. A driver that has an answer as well gives the answer first: a renewal and the deadline ready
// together count as the renewal.
func (m *Machine) Tick(now time.Duration) []Action {
	switch m.status.State {
	case Held:
		if now >= m.deadline {
			actions := m.fence(fmt.Errorf("%w: none acknowledged for %v", ErrDeadline, now-m.status.RenewedAt))
			m.quarantine(now, "no renewal was acknowledged in time")
			return actions
		}
		return m.due(now)
	case Quarantined:
		if now >= m.status.QuarantineEnd {
			m.to(Reacquiring, "quarantine is over")
			m.status.QuarantineEnd = 0
			return m.acquire(now)
		}
	case None, Reacquiring:
		return m.due(now)
	}
	return nil
}

// due sends what is due.
func (m *Machine) due(now time.Duration) []Action {
	if m.inFlight != NoRequest || now < m.nextAt {
		return nil
	}
	switch m.next {
	case Acquire:
		return m.acquire(now)
	case Renew:
		return m.renew(now)
	case ReadRenew:
		return m.send(ReadRenew, m.renewal, now)
	default:
		return m.release(now)
	}
}

// Release gives the lease back, for good.
func (m *Machine) Release(now time.Duration) []Action {
	if m.releasing {
		return nil
	}
	m.releasing = true
	switch m.status.State {
	case Held:
		actions := m.fence(ErrReleased)
		m.to(Reacquiring, "releasing")
		return append(actions, m.release(now)...)
	case None, Reacquiring:
		// An acquisition in flight is given back when it is answered.
		if m.inFlight == NoRequest {
			m.to(Released, "released")
		}
	case Quarantined:
		// What may still stand runs out by itself.
		m.to(Released, "released while quarantined")
	}
	return nil
}

// Answer takes the answer to the request that was sent with seq. An answer that is no longer wanted changes nothing.
func (m *Machine) Answer(now time.Duration, seq int, answer Answer) []Action {
	if seq != m.seq || m.inFlight == NoRequest {
		return nil
	}
	request := m.inFlight
	m.inFlight = NoRequest
	for _, r := range transitions {
		if r.in&m.status.State != 0 && r.request == request && r.answer&answer.Kind != 0 {
			return r.do(m, now, answer)
		}
	}
	return nil
}
