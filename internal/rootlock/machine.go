package rootlock

import (
	"errors"
	"fmt"
	"time"
)

// The life of a leased claim, in numbered steps. L is a lease: the holder's own for its deadlines, the one in the record
// for whoever waits.
//
//  1. Read root.json. None, or a released one: go to 4. A cluster's, or one without a lease: refused.
//  2. Watch the beats of the lock. An empty list starts the silence, and the first beat restarts it, since a lock is
//     written before its first beat lands. A later beat means alive: refused, or go on watching if told to wait. Every
//     look reads root.json too; another version starts over.
//  3. A look that was sent L + L/2 after the silence began, and saw nothing new: put the claim. It elects nobody.
//  4. Replace root.json by our own record, if it is still the version that was read in 1; create it if there was none.
//     This alone decides. The first deadline runs from this request's send, 2/3 L.
//  5. Look for a claim on our own lock, give the first beat, look again. Only then is work admitted; all of it races the
//     first deadline.
//  6. Every L/3 look for a claim, then give a beat. What failed is sent again L/12 after it was sent. An acknowledged
//     beat moves the deadline to 2/3 L after its first send; one that exists already is an earlier request of our own.
//  7. A claim is seen, or the deadline passes: fence, and end without releasing.
//  8. A clean stop fences, removes the beats, and replaces the record by a released one if it is still ours.
//
// Why a successor never serves beside its predecessor, although no two clocks are compared: let the list that began the
// silence be answered at t. A beat that it did not show, and neither did the last list at t + 3/2 L, was sent before the
// deadline of the newest beat shown, so before t + 2/3 L. Whenever it is acknowledged it moves the deadline to at most
// t + 4/3 L. The claim is for owners whose monotonic clock stood still meanwhile, in a suspended machine.

// State is where a machine is.
type State uint8

// The states of a machine.
const (
	Asking     State = iota + 1 // steps 1 to 3: somebody else may hold it
	Acquiring                   // step 4
	Proving                     // step 5
	Held                        // step 6: work is admitted
	GivingBack                  // step 8
	Ended
)

// Request is what a machine asks its driver to send.
type Request uint8

// The requests of a machine.
const (
	NoRequest   Request = iota
	ReadRoot            // Answer: Root and ETag, Root nil for none
	ListBeats           // of lock ID. Answer: Any, and Last if so
	PutClaim            // on lock ID. Done also if one is there
	Acquire             // root.json for lock ID, from version ETag, or from none. Answer: ETag
	Look                // for a claim on lock ID. Answer: Any
	PutBeat             // Beat of lock ID. Done also if it is there
	RemoveBeats         // all of lock ID
	GiveBack            // replace root.json, at version ETag, by a released record
)

var requestNames = [...]string{"none", "read root", "list beats", "put claim", "acquire", "look", "put beat", "remove beats", "give back"}

func (r Request) String() string { return requestNames[r] }

// Answer is how a request ended.
type Answer struct {
	Kind AnswerKind
	Err  error // why, unless Done

	Root *Record
	ETag string
	Any  bool
	Last uint64
}

// AnswerKind is the end of a request.
type AnswerKind uint8

// The ends of a request. A condition that did not hold is Lost; whatever else kept a request from being done, or its
// answer from being known, is Failed.
const (
	Done AnswerKind = iota + 1
	Lost
	Failed
)

// ActionKind is what a driver must do.
type ActionKind uint8

// The actions of a machine, which a driver carries out in the order given.
const (
	// Send a request; its answer comes back with the same Seq.
	Send ActionKind = iota + 1
	// Admit work under lock ID.
	Admit
	// Fence for Cause: close the scope of what was admitted, then report the loss. The answer to a request in flight is
	// no longer wanted.
	Fence
	// Trim: remove the beats of lock ID below number Beat.
	Trim
)

// Action is one thing a driver must do.
type Action struct {
	Kind    ActionKind
	Request Request
	Seq     int
	ID      string
	ETag    string
	Beat    uint64
	Cause   error
}

// MachineConfig is what a machine needs to know.
type MachineConfig struct {
	Lease time.Duration
	Wait  bool          // while the holder is alive, instead of being refused
	NewID func() string // draws ids of locks
}

const (
	// pollMax is the longest pause between two looks at somebody else's lock.
	pollMax = 5 * time.Second
	// failuresMax is how often in a row a starting server's requests may fail. Reads retry in the client as well.
	failuresMax = 5
	// beatsKept is how many beats are left behind. A watcher that pages through them slowly still finds the newest.
	beatsKept = 10
)

var (
	// ErrDeadline: no beat was acknowledged in time.
	ErrDeadline = errors.New("no sign of life was acknowledged in time")
	// ErrSuperseded: another server claims the root, because it saw no sign of life.
	ErrSuperseded = errors.New("another server has seen no sign of life and claims the root")
	// ErrReleased: the claim was given back.
	ErrReleased = errors.New("the claim was given back")
)

// Machine is the state of one server's claim. It does no I/O and reads no clock: times are monotonic and come in. It is
// not safe for concurrent use.
type Machine struct {
	config MachineConfig
	state  State
	err    error // of Ended; nil after a clean stop

	inFlight Request
	seq      int
	sentAt   time.Duration // of the request in flight
	nextAt   time.Duration // of the next request, when none is in flight
	failures int           // in a row, while Asking or Acquiring
	attempts int           // to acquire what stands there that have failed

	rival rival // the lock that is watched

	id       string // of our own lock; empty before step 4
	etag     string // of our record
	deadline time.Duration
	beat     uint64        // the next, or the one that is being given
	beatSent bool          // at least once
	beatAt   time.Duration // its first send
	proved   bool          // the first beat is acknowledged
}

// rival is somebody else's lock, as far as it was seen.
type rival struct {
	record      Record
	etag        string
	looked      bool // its beats were listed
	any         bool // it has given beats
	last        uint64
	silentSince time.Duration
}

// NewMachine makes a machine that reads root.json at its first step.
func NewMachine(c MachineConfig, now time.Duration) *Machine {
	return &Machine{config: c, state: Asking, nextAt: now}
}

// State is where the machine is.
func (m *Machine) State() State { return m.state }

// Err is why the machine has ended; nil after a clean stop.
func (m *Machine) Err() error { return m.err }

// Deadline is when the claim ends unless a beat is acknowledged; false while there is none.
func (m *Machine) Deadline() (at time.Duration, ok bool) {
	return m.deadline, m.state == Acquiring || m.state == Proving || m.state == Held
}

// Watching is the lock that keeps this server waiting; false if none does.
func (m *Machine) Watching() (Record, bool) {
	return m.rival.record, m.state == Asking && m.rival.looked
}

// Next is when Tick wants to be called if nothing happens before; false when never.
func (m *Machine) Next() (at time.Duration, ok bool) {
	switch {
	case m.state == Ended:
		return 0, false
	case m.state == Proving || m.state == Held:
		if m.inFlight != NoRequest {
			return m.deadline, true
		}
		return min(m.deadline, m.nextAt), true
	}
	return m.nextAt, m.inFlight == NoRequest
}

// Tick lets time pass. A driver that has an answer as well gives the answer first.
func (m *Machine) Tick(now time.Duration) []Action {
	if (m.state == Proving || m.state == Held) && now >= m.deadline {
		return m.lose(fmt.Errorf("%w: the last was sent more than %v ago", ErrDeadline, m.deadlineAfter()))
	}
	if m.inFlight != NoRequest || now < m.nextAt {
		return nil
	}
	switch m.state {
	case Asking:
		return m.send(now, Action{Request: ReadRoot})
	case Proving, Held:
		return m.send(now, Action{Request: Look, ID: m.id})
	}
	return nil
}

// Release gives the claim back, for good.
func (m *Machine) Release(now time.Duration) []Action {
	switch m.state {
	case Proving, Held:
		m.state, m.inFlight = GivingBack, NoRequest
		return append([]Action{{Kind: Fence, Cause: ErrReleased}}, m.send(now, Action{Request: RemoveBeats, ID: m.id})...)
	case Asking, Acquiring:
		// A record that may still be written is a silent one.
		return m.end(ErrReleased)
	}
	return nil
}

// Answer takes the answer to the request that was sent with seq. An answer that is no longer wanted changes nothing.
func (m *Machine) Answer(now time.Duration, seq int, a Answer) []Action {
	if seq != m.seq || m.inFlight == NoRequest {
		return nil
	}
	request := m.inFlight
	m.inFlight = NoRequest
	switch m.state {
	case Asking, Acquiring:
		return m.asked(now, request, a)
	case Proving, Held:
		return m.kept(now, request, a)
	case GivingBack:
		if request == RemoveBeats {
			return m.send(now, Action{Request: GiveBack, ID: m.id, ETag: m.etag})
		}
		return m.end(nil)
	}
	return nil
}

func (m *Machine) send(now time.Duration, a Action) []Action {
	m.seq++
	m.inFlight, m.sentAt = a.Request, now
	a.Kind, a.Seq = Send, m.seq
	return []Action{a}
}

func (m *Machine) end(err error) []Action {
	m.state, m.err, m.inFlight = Ended, err, NoRequest
	return nil
}

// lose fences and ends without releasing.
func (m *Machine) lose(cause error) []Action {
	m.end(cause)
	return []Action{{Kind: Fence, Cause: cause}}
}

func (m *Machine) deadlineAfter() time.Duration { return m.config.Lease * 2 / 3 }
func (m *Machine) beatEvery() time.Duration     { return m.config.Lease / 3 }
func (m *Machine) retryAfter() time.Duration    { return m.config.Lease / 12 }
