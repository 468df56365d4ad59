package ownership

import (
	"fmt"
	"slices"
	"time"
)

// row says what an answer to a request does in a state.
type row struct {
	in      State
	request Request
	answer  AnswerKind
	do      func(*Machine, time.Duration, Answer) []Action
}

const asking = None | Reacquiring

// transitions are all of them; there is exactly one row for every state in which a request can be in flight and every
// way it can end. (Fencing, quarantine and the end of either forget the request in flight.)
var transitions = []row{
	{asking, Acquire, Ours, (*Machine).adopt},
	{asking, Acquire, Rival, (*Machine).refuse},
	{asking, Acquire, NotDone | Gone, (*Machine).again},
	{asking, Acquire, Unanswered, (*Machine).readAcquire},

	{asking, ReadAcquire, Ours, (*Machine).adopt},
	{asking, ReadAcquire, Rival, (*Machine).refuseUnsettled},
	// Nothing stands there now, but the request may still arrive.
	{asking, ReadAcquire, Gone | NotDone | Unanswered, (*Machine).unsettled},

	{Held, Renew, Ours, (*Machine).extend},
	{Held, Renew, Rival | Gone, (*Machine).lose},
	{Held, Renew, NotDone, (*Machine).renewAgain},
	{Held, Renew, Unanswered, (*Machine).renewUnanswered},
	{Held, ReadRenew, Ours, (*Machine).extend},
	{Held, ReadRenew, Rival | Gone, (*Machine).lose},
	{Held, ReadRenew, NotDone | Unanswered, (*Machine).readRenewAgain},

	// An acquisition that was answered after its first deadline is renewed before any work is admitted.
	{asking, Renew, Ours, (*Machine).adopt},
	{asking, Renew, Rival, (*Machine).refuse},
	{asking, Renew, Gone, (*Machine).again},
	{asking, Renew, NotDone | Unanswered, (*Machine).unsettled},

	{asking, Release, Ours | Gone | Rival, (*Machine).released},
	{asking, Release, NotDone, (*Machine).releaseAgain},
	{asking, Release, Unanswered, (*Machine).readRelease},
	{asking, ReadRelease, Ours, (*Machine).releaseAgain},
	{asking, ReadRelease, Gone | Rival, (*Machine).released},
	{asking, ReadRelease, NotDone | Unanswered, (*Machine).unsettled},
}

func (m *Machine) to(s State, reason string) { m.status.State, m.status.Reason = s, reason }

func (m *Machine) send(request Request, token string, now time.Duration) []Action {
	m.seq++
	m.inFlight = request
	if request == Acquire || request == Renew {
		m.sentAt = now
	}
	return []Action{{Kind: Send, Request: request, Seq: m.seq, Token: token}}
}

func (m *Machine) acquire(now time.Duration) []Action {
	m.held = m.token()
	m.deadline = now + m.config.deadlineAfter()
	return m.send(Acquire, m.held, now)
}

// forget makes the current token a former one, which may still stand for a while.
func (m *Machine) forget() {
	m.former = append(m.former, m.held)
	if len(m.former) > formerTokensMax {
		m.former = slices.Delete(m.former, 0, 1)
	}
	m.held = ""
}

// adopt takes an acquisition that succeeded, or its late renewal.
func (m *Machine) adopt(now time.Duration, _ Answer) []Action {
	m.refused = false
	if m.releasing {
		return m.release(now)
	}
	m.deadline = m.sentAt + m.config.deadlineAfter()
	if now >= m.deadline {
		return m.send(Renew, m.held, now)
	}
	if m.everHeld {
		m.status.Reacquisitions++
	}
	m.everHeld = true
	m.to(Held, "held")
	m.acknowledged()
	return []Action{{Kind: Admit, Token: m.held, Deadline: m.deadline}}
}

// refuse is the one place that decides about a rival.
func (m *Machine) refuse(now time.Duration, a Answer) []Action {
	if m.releasing {
		return m.released(now, a)
	}
	m.held = "" // not ours, so never to be remembered
	m.later(Acquire, now+m.config.retryEvery())
	if !m.everHeld {
		m.later(Acquire, now+m.config.startPoll())
	}
	if slices.Contains(m.former, a.Token) {
		m.to(m.status.State, "our own former lease still stands")
		return nil
	}
	m.to(m.status.State, "held by "+a.Holder)
	if !m.refused {
		m.refused, m.refusedAt = true, now
	}
	if !m.config.RivalIsError {
		return nil
	}
	since, patience := m.refusedAt, 2*m.config.TTL
	if !m.everHeld {
		since, patience = m.startedAt, m.config.StartWait
	}
	if now-since < patience {
		return nil
	}
	m.refusal = &RefusedError{Holder: a.Holder, Waited: now - since}
	m.to(Failed, m.refusal.Error())
	return []Action{{Kind: Latch, Cause: m.refusal}}
}

// refuseUnsettled: a rival stands there, but our acquisition was not answered and may land once the rival is gone. Then
// our token stands without us, and must be known as our own.
func (m *Machine) refuseUnsettled(now time.Duration, a Answer) []Action {
	if !m.releasing {
		m.forget()
	}
	return m.refuse(now, a)
}

// again asks later: the acquisition certainly did not happen.
func (m *Machine) again(now time.Duration, a Answer) []Action {
	if m.releasing {
		return m.released(now, a)
	}
	m.held = ""
	m.later(Acquire, now+m.config.retryEvery())
	m.to(m.status.State, reason("acquiring failed", a))
	return nil
}

func (m *Machine) readAcquire(now time.Duration, _ Answer) []Action {
	return m.send(ReadAcquire, m.held, now)
}

// unsettled: nobody knows what stands there.
func (m *Machine) unsettled(now time.Duration, a Answer) []Action {
	if m.releasing {
		m.to(Released, reason("released, unacknowledged: it runs out within a TTL", a))
		return nil
	}
	m.quarantine(now, reason("nobody knows whether the lease was acquired", a))
	return nil
}

func (m *Machine) quarantine(now time.Duration, reason string) {
	m.forget()
	m.inFlight = NoRequest
	m.status.QuarantineEnd = now + m.config.TTL
	m.to(Quarantined, reason)
}

func (m *Machine) renew(now time.Duration) []Action {
	m.renewal = m.held
	if m.config.ConditionalRenewal {
		m.renewal = m.token()
	}
	return m.send(Renew, m.renewal, now)
}

func (m *Machine) extend(now time.Duration, _ Answer) []Action {
	m.held = m.renewal
	m.to(Held, "held")
	m.deadline = m.sentAt + m.config.deadlineAfter()
	m.acknowledged()
	if now >= m.deadline {
		return m.Tick(now)
	}
	return []Action{{Kind: Extend, Deadline: m.deadline}}
}

// acknowledged plans the next renewal from the send of the request that was just acknowledged.
func (m *Machine) acknowledged() {
	m.status.RenewedAt = m.sentAt
	m.later(Renew, m.sentAt+m.config.renewEvery())
}

func (m *Machine) later(request Request, at time.Duration) { m.next, m.nextAt = request, at }

func (m *Machine) renewAgain(now time.Duration, a Answer) []Action {
	m.later(Renew, now+m.config.renewRetry())
	m.to(Held, reason("held, renewal failed", a))
	return nil
}

func (m *Machine) renewUnanswered(now time.Duration, a Answer) []Action {
	if m.config.ConditionalRenewal {
		return m.send(ReadRenew, m.renewal, now)
	}
	return m.renewAgain(now, a)
}

// readRenewAgain reads until the deadline: a conditional renewal is never repeated.
func (m *Machine) readRenewAgain(now time.Duration, _ Answer) []Action {
	m.later(ReadRenew, now+m.config.renewRetry())
	return nil
}

// lose: the lease is known to be gone, so there is nothing to wait out.
func (m *Machine) lose(now time.Duration, a Answer) []Action {
	actions := m.fence(fmt.Errorf("%w: %s", ErrLeaseLost, reason("it stands no longer", a)))
	m.forget()
	m.to(Reacquiring, reason("the lease was lost", a))
	m.later(Acquire, now+m.jitter(m.config.retryEvery()))
	return actions
}

// fence forgets the request in flight and closes what was admitted.
func (m *Machine) fence(cause error) []Action {
	m.inFlight = NoRequest
	return []Action{{Kind: Fence, Cause: cause}}
}

func (m *Machine) released(time.Duration, Answer) []Action {
	m.to(Released, "released")
	return nil
}

func (m *Machine) release(now time.Duration) []Action {
	m.releases++
	return m.send(Release, m.held, now)
}

func (m *Machine) releaseAgain(now time.Duration, a Answer) []Action {
	if m.releases == releasesMax {
		return m.unsettled(now, a)
	}
	m.later(Release, now+m.config.renewRetry())
	return nil
}

func (m *Machine) readRelease(now time.Duration, _ Answer) []Action {
	return m.send(ReadRelease, m.held, now)
}

func reason(what string, a Answer) string {
	switch {
	case a.Err != nil:
		return what + ": " + a.Err.Error()
	case a.Holder != "":
		return what + ": held by " + a.Holder
	}
	return what
}
