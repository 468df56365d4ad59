package rootlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// histories of random answers, events and pauses; the number of one is its seed.
const histories = 4000

// rulebook checks what a machine does, whatever it is told.
type rulebook struct {
	t       *testing.T
	rand    *rand.Rand
	m       *Machine
	now     time.Duration
	inWork  *Action       // the request whose answer is awaited
	sentAt  time.Duration // its send
	admits  int
	claims  int
	fenced  bool
	looked  bool          // no claim was there when last looked, and no beat was sent since
	beat    uint64        // the last one sent
	beatAt  time.Duration // its first send
	acked   time.Duration // the first send of the last acknowledged one
	acquire time.Duration // the send of the acquisition
	proven  int           // steps of the proof: look, beat, look
	mayTake bool          // root.json was nobody's when last read

	// What stands on storage: another server's lock in several versions, with its beats, or none.
	version int
	kind    Kind              // empty is none
	beats   map[string]uint64 // by lock
	// What of it was shown: which beats of which version, since when nothing new, and until when.
	shown      uint64
	shownOf    string
	quiet      time.Duration // the answer that showed something new last
	quietUntil time.Duration // the send of the last list
}

func (r *rulebook) carryOut(actions []Action) {
	for _, a := range actions {
		switch a.Kind {
		case Send:
			r.sent(a)
		case Admit:
			r.admits++
			if r.admits > 1 || r.fenced || r.proven != 3 || r.now >= r.acquire+20*time.Second {
				r.t.Errorf("admitted %d times, fenced %v, after %d steps of the proof, %v after the lock was written", r.admits, r.fenced, r.proven, r.now-r.acquire)
			}
		case Fence:
			r.fenced = true
		case Trim:
			if a.Beat+beatsKept != r.beat+1 {
				r.t.Errorf("beats below %d are removed after beat %d", a.Beat, r.beat)
			}
		}
	}
	if at, ok := r.m.Deadline(); ok && r.m.State() == Held && at != r.acked+20*time.Second {
		r.t.Errorf("the deadline is %v, and the last acknowledged beat was first sent at %v", at, r.acked)
	}
	if r.m.State() == Held && r.now >= r.acked+20*time.Second {
		r.t.Errorf("held at %v, 20 s and more after %v", r.now, r.acked)
	}
}

func (r *rulebook) sent(a Action) {
	r.inWork, r.sentAt = &a, r.now
	if r.fenced && a.Request != RemoveBeats && a.Request != GiveBack {
		r.t.Errorf("%v after the fence", a.Request)
	}
	switch a.Request {
	case PutBeat:
		if !r.looked {
			r.t.Error("a beat without a look for a claim before it")
		}
		r.looked = false
		if a.Beat != r.beat || r.beatAt < r.acquire {
			r.beat, r.beatAt = a.Beat, r.now
		}
	case PutClaim:
		if r.shownOf != a.ID || r.quietUntil-r.quiet < 45*time.Second {
			r.t.Errorf("claimed %s after %v of silence", a.ID, r.quietUntil-r.quiet)
		}
		r.mayTake = true
		r.claims++
	case Acquire:
		if !r.mayTake {
			r.t.Error("acquires what somebody holds")
		}
		r.acquire, r.beatAt, r.mayTake = r.now, -1, false
	}
}

// answer draws an answer to the request in work.
func (r *rulebook) answer() {
	a, request := Answer{Kind: Done}, *r.inWork
	r.inWork = nil
	if r.rand.IntN(5) == 0 {
		a = Answer{Kind: Failed, Err: errors.New("lost")}
	} else {
		switch request.Request {
		case ReadRoot:
			if r.mayTake = r.kind != Standalone; r.kind != "" {
				a.ETag = fmt.Sprint(r.version)
				a.Root = &Record{Kind: r.kind, ID: r.lock(), LeaseMS: lease.Milliseconds()}
			}
		case ListBeats:
			a.Last, a.Any = r.beats[request.ID]
			if r.shownOf != request.ID || r.shown != a.Last {
				r.shownOf, r.shown, r.quiet = request.ID, a.Last, r.now
			}
			r.quietUntil = r.sentAt
		case Look:
			a.Any = r.rand.IntN(31) == 0
			r.looked = !a.Any
			if r.admits == 0 && !a.Any && r.proven != 1 {
				r.proven++
			}
		case Acquire:
			a.ETag = "own"
			if r.rand.IntN(4) == 0 {
				a = Answer{Kind: Lost}
			}
			r.proven = 0
		case PutBeat:
			r.acked = r.beatAt
			r.proven = max(r.proven, 2)
		}
	}
	r.carryOut(r.m.Answer(r.now, request.Seq, a))
}

// lock is the id of the lock that stands.
func (r *rulebook) lock() string { return fmt.Sprint("rival", r.version) }

// happen lets something happen to what stands on storage.
func (r *rulebook) happen() {
	switch r.rand.IntN(80) {
	case 0:
		r.version++
		r.kind = []Kind{"", Released, Standalone, Standalone}[r.rand.IntN(4)]
	case 1:
		r.beats[r.lock()]++
	}
}

func TestWhateverAMachineIsToldItKeepsTheRules(t *testing.T) {
	held, claimed := 0, 0
	for seed := range uint64(histories) {
		id := 0
		r := &rulebook{t: t, rand: rand.New(rand.NewPCG(seed, 1)), beatAt: -1, version: 1, beats: map[string]uint64{}, kind: []Kind{"", Standalone}[seed%2]}
		r.m = NewMachine(MachineConfig{Lease: lease, Wait: true, NewID: func() string { id++; return fmt.Sprint("own", id) }}, 0)
		for range 300 {
			if r.m.State() == Ended {
				break
			}
			switch {
			case r.inWork != nil && r.rand.IntN(4) != 0:
				r.answer()
			case r.rand.IntN(200) == 0:
				r.carryOut(r.m.Release(r.now))
			default:
				r.happen()
				r.now += time.Duration(1+r.rand.IntN(12)) * time.Second / 4
				r.carryOut(r.m.Tick(r.now))
			}
			if t.Failed() {
				t.Fatalf("history %d", seed)
			}
		}
		held, claimed = held+r.admits, claimed+r.claims
	}
	t.Logf("%d histories: %d claims, %d times held", histories, claimed, held)
	if held < histories/4 || claimed < histories/20 {
		t.Errorf("%d histories with only %d claims, only %d times held", histories, claimed, held)
	}
}
