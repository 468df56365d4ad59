package rootlock

import "time"

// kept takes an answer of the owner's cycle, look and beat: steps 5 and 6.
func (m *Machine) kept(now time.Duration, request Request, a Answer) []Action {
	if a.Kind != Done {
		m.nextAt = max(now, m.sentAt+m.retryAfter())
		return m.Tick(now)
	}
	switch request {
	case Look:
		return m.looked(now, a.Any)
	case PutBeat:
		return m.acknowledged(now)
	}
	return nil
}

// looked goes on once nobody claims the root: to admit work if that was the last proof, else to the beat.
func (m *Machine) looked(now time.Duration, claimed bool) []Action {
	switch {
	case claimed:
		return m.lose(ErrSuperseded)
	case now >= m.deadline:
		return m.Tick(now)
	case m.state == Proving && m.proved:
		m.state = Held
		return append([]Action{{Kind: Admit, ID: m.id}}, m.extend(now)...)
	}
	if !m.beatSent {
		m.beatSent, m.beatAt = true, now
	}
	return m.send(now, Action{Request: PutBeat, ID: m.id, Beat: m.beat})
}

// acknowledged counts a beat from its first send.
func (m *Machine) acknowledged(now time.Duration) []Action {
	var actions []Action
	m.beat++
	m.beatSent = false
	if m.beat > beatsKept {
		actions = append(actions, Action{Kind: Trim, ID: m.id, Beat: m.beat - beatsKept})
	}
	if m.state == Proving {
		m.proved, m.nextAt = true, now
		return append(actions, m.Tick(now)...)
	}
	return append(actions, m.extend(now)...)
}

// extend moves the deadline to that of the beat just acknowledged, and plans the next.
func (m *Machine) extend(now time.Duration) []Action {
	m.deadline, m.nextAt = m.beatAt+m.deadlineAfter(), m.beatAt+m.beatEvery()
	return m.Tick(now)
}
