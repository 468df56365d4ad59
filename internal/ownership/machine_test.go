package ownership

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestEveryAnswerToEveryRequestHasExactlyOneTransition(t *testing.T) {
	inFlight := map[State][]Request{
		None:        {Acquire, ReadAcquire, Renew, Release, ReadRelease},
		Reacquiring: {Acquire, ReadAcquire, Renew, Release, ReadRelease},
		Held:        {Renew, ReadRenew},
	}
	for state, requests := range inFlight {
		for _, request := range requests {
			for _, answer := range []AnswerKind{Ours, Rival, Gone, NotDone, Unanswered} {
				rows := 0
				for _, r := range transitions {
					if r.in&state != 0 && r.request == request && r.answer&answer != 0 {
						rows++
					}
				}
				if rows != 1 {
					t.Errorf("%v, %v answered %b: %d rows", state, request, answer, rows)
				}
			}
		}
	}
}

// Found by specs/lease.pml: a rival read back after an unanswered acquisition does not settle that acquisition.
func TestAnAcquisitionThatLandsOnceItsRivalIsGoneIsNoRival(t *testing.T) {
	config := DefaultConfig(3 * time.Second)
	config.RivalIsError = true
	tokens := 0
	m := NewMachine(config, 0,
		func() string { tokens++; return fmt.Sprint("token-", tokens) },
		func(d time.Duration) time.Duration { return d })
	m.Tick(0)
	m.Answer(0, m.seq, Answer{Kind: Unanswered})
	m.Answer(0, m.seq, Answer{Kind: Rival, Token: "theirs"})

	var now time.Duration
	for now < config.StartWait+2*config.TTL { // beyond any patience with a rival
		now = m.nextAt
		m.Tick(now)
		m.Answer(now, m.seq, Answer{Kind: Rival, Token: "token-1"})
		if s := m.Status(); s.State != None || s.Reason != "our own former lease still stands" {
			t.Fatalf("%v at %v: %s: our own late acquisition was taken for a rival", s.State, now, s.Reason)
		}
	}
}

// Whatever is answered and however time passes: work is admitted only under a deadline in the future that runs from
// the send of an acknowledged request; it is fenced before it is admitted again, before the deadline is overstepped by
// a tick, and once only; quarantine lasts a TTL; and nothing is sent while a request is in flight or in quarantine.
func TestAMachineKeepsItsWordUnderEveryHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := DefaultConfig(3 * time.Second)
		config.RivalIsError = rapid.Bool().Draw(t, "rival is error")
		config.ConditionalRenewal = rapid.Bool().Draw(t, "conditional renewal")
		tokens := 0
		now := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "start"))
		m := NewMachine(config, now,
			func() string { tokens++; return fmt.Sprint("token-", tokens) },
			func(d time.Duration) time.Duration { return d / 2 })

		admitted, inFlight := false, 0
		var deadline, quarantinedAt time.Duration
		sent := map[time.Duration]bool{}
		check := func(actions []Action) {
			for _, a := range actions {
				switch a.Kind {
				case Send:
					if inFlight != 0 || m.Status().State&(Quarantined|Failed|Released) != 0 {
						t.Fatalf("%v sent with %d in flight in %+v", a.Request, inFlight, m.Status())
					}
					inFlight = a.Seq
					sent[now] = true
				case Admit, Extend:
					if (a.Kind == Admit) == admitted || a.Deadline <= now || !sent[a.Deadline-config.deadlineAfter()] {
						t.Fatalf("%+v at %v, admitted before: %v", a, now, admitted)
					}
					admitted, deadline = true, a.Deadline
				case Fence:
					if !admitted || a.Cause == nil {
						t.Fatalf("fenced for %v though nothing was admitted", a.Cause)
					}
					admitted, inFlight = false, 0
				case Latch:
					if !config.RivalIsError || m.Status().State != Failed {
						t.Fatalf("latched in %+v", m.Status())
					}
				}
			}
			if held := m.Status().State == Held; held != admitted {
				t.Fatalf("held %v, admitted %v", held, admitted)
			}
			if m.Status().State == Quarantined {
				inFlight = 0
				if quarantinedAt == 0 {
					quarantinedAt = now
				}
				if m.Status().QuarantineEnd != quarantinedAt+config.TTL {
					t.Fatalf("quarantined at %v until %v", quarantinedAt, m.Status().QuarantineEnd)
				}
			} else {
				quarantinedAt = 0
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				check(m.Release(now))
			case 1, 2, 3, 4:
				if at, ok := m.Next(); ok {
					now = max(now, at) + time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "late"))
				}
				check(m.Tick(now))
				if admitted && now >= deadline {
					t.Fatalf("still admitted at %v, deadline %v", now, deadline)
				}
			default:
				if inFlight == 0 {
					continue
				}
				now += time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "took"))
				seq := inFlight
				inFlight = 0
				kind := rapid.SampledFrom([]AnswerKind{Ours, Ours, Ours, Rival, Gone, NotDone, Unanswered}).Draw(t, "answer")
				check(m.Answer(now, seq, Answer{Kind: kind, Holder: "x", Token: "x"}))
			}
		}
	})
}
