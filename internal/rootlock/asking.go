package rootlock

import (
	"errors"
	"fmt"
	"time"
)

// asked takes an answer on the way to the lock: steps 1 to 4.
func (m *Machine) asked(now time.Duration, request Request, a Answer) []Action {
	if a.Kind == Failed {
		return m.failed(now, request, a.Err)
	}
	m.failures = 0
	switch request {
	case ReadRoot:
		return m.readRoot(now, a)
	case ListBeats:
		return m.listed(now, a)
	case PutClaim:
		return m.acquire(now, m.rival.etag)
	case Acquire:
		m.state = Asking
		if a.Kind == Lost { // to another one, who is found there
			m.id = ""
			return m.send(now, Action{Request: ReadRoot})
		}
		return m.acquired(now, a.ETag)
	}
	return nil
}

// failed asks again later, from the beginning. Whether an acquisition was done after all is read at once: it may be ours.
func (m *Machine) failed(now time.Duration, request Request, err error) []Action {
	m.failures++
	if request == Acquire {
		m.attempts++ // which the reads in between do not make good
	}
	if errors.Is(err, ErrRecord) {
		return m.end(err)
	}
	if m.failures >= failuresMax || m.attempts >= failuresMax {
		return m.end(fmt.Errorf("claiming the root failed %d times, the last time at %q: %w", failuresMax, request, err))
	}
	m.state, m.nextAt = Asking, now+poll(m.config.Lease)
	if request == Acquire {
		m.nextAt = now
	}
	return nil
}

// readRoot decides what root.json means for a server that wants the root.
func (m *Machine) readRoot(now time.Duration, a Answer) []Action {
	switch {
	case a.Root == nil:
		return m.acquire(now, "")
	case a.Root.Kind == Released:
		return m.acquire(now, a.ETag)
	case a.Root.Kind != Standalone:
		return m.end(&HeldError{Record: *a.Root, Reason: "which has no lease: its masters may be anywhere"})
	case a.Root.LeaseMS == 0:
		return m.end(&HeldError{Record: *a.Root, Reason: "which has no lease: it was claimed on the local disk of one machine"})
	case a.Root.ID == m.id && now < m.deadline:
		return m.acquired(now, a.ETag) // the answer to the acquisition was lost
	}
	if a.ETag != m.rival.etag {
		m.rival, m.attempts = rival{record: *a.Root, etag: a.ETag}, 0
	}
	return m.send(now, Action{Request: ListBeats, ID: m.rival.record.ID})
}

// listed compares the beats of the watched lock with those seen before.
func (m *Machine) listed(now time.Duration, a Answer) []Action {
	r := &m.rival
	silence := r.record.Lease() * 3 / 2
	alive := r.looked && r.any && a.Any && a.Last > r.last
	switch {
	case alive && !m.config.Wait:
		return m.end(&HeldError{Record: r.record, Reason: "which is alive"})
	case alive, !r.looked, !r.any && a.Any:
		// Counted from the answer: what it did not show had not landed when the list was made, before now.
		r.silentSince = now
	case m.sentAt-r.silentSince >= silence:
		return m.send(now, Action{Request: PutClaim, ID: r.record.ID})
	}
	r.looked = true
	if a.Any {
		r.any, r.last = true, max(r.last, a.Last)
	}
	m.nextAt = min(now+poll(r.record.Lease()), max(now, r.silentSince+silence))
	return nil
}

// acquire asks for the lock under a fresh id: whatever became of an earlier attempt, its record is not this one's.
func (m *Machine) acquire(now time.Duration, etag string) []Action {
	m.state, m.id, m.deadline = Acquiring, m.config.NewID(), now+m.deadlineAfter()
	return m.send(now, Action{Request: Acquire, ID: m.id, ETag: etag})
}

// acquired begins to prove that the lock is alive.
func (m *Machine) acquired(now time.Duration, etag string) []Action {
	m.state, m.etag, m.nextAt = Proving, etag, now
	return m.Tick(now)
}

func poll(lease time.Duration) time.Duration { return min(lease/6, pollMax) }
