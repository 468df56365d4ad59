package rootlock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
	"tidemark/internal/random"
)

// lease is that of the servers in the tests: a beat every 10 s, a deadline of 20 s, 45 s of silence.
const lease = 30 * time.Second

// server is a standalone server running against a store.
type server struct {
	t     *testing.T
	name  string
	start time.Time
	stop  context.CancelFunc
	ended chan struct{}

	mu     sync.Mutex // guards the rest
	claim  *Claim
	served time.Duration // when it was admitted
	lost   time.Duration // when serve learnt of its end
	open   error         // what the scope said then
	err    error         // of Run
}

// start starts a server in the current bubble. It is stopped, and waited for, when the test ends.
func start(t *testing.T, o Options, admitted func(*server)) *server {
	t.Helper()
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	if o.Lease == 0 {
		o.Lease = lease
	}
	o.Log, o.Cluster = hclog.NewNullLogger(), "default"
	ctx, stop := context.WithCancel(t.Context())
	s := &server{t: t, name: o.Holder, start: time.Now(), stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		err := Run(ctx, o, func(ctx context.Context, c Claim) error {
			s.mu.Lock()
			s.claim, s.served = &c, time.Since(s.start)
			s.mu.Unlock()
			if admitted != nil {
				admitted(s)
			}
			<-ctx.Done()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lost, s.open = time.Since(s.start), c.Store.Err()
			return nil
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = err
	}()
	t.Cleanup(func() {
		stop()
		<-s.ended
	})
	return s
}

func named(store objstore.Store, holder string, seed uint64) Options {
	return Options{Store: store, Holder: holder, Random: random.Seeded(seed)}
}

// admits says whether the server would admit work at this instant.
func (s *server) admits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claim != nil && s.claim.Store.Err() == nil
}

func (s *server) id() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claim == nil {
		s.t.Fatal("the server was never admitted")
	}
	return s.claim.ID
}

// end waits for the server's end and returns its error.
func (s *server) end() error {
	<-s.ended
	return s.err
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// after lets virtual time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func memory() *objstore.Memory { return objstore.NewMemory(clock.System()) }

func faulty(t *testing.T, s objstore.Store, script string) *faultstore.Store {
	t.Helper()
	f, err := faultstore.Wrap(s, clock.System(), script)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func root(t *testing.T, s objstore.Store) Record {
	t.Helper()
	r, _, err := Read(t.Context(), s)
	if err != nil || r == nil {
		t.Fatalf("no root.json: %v", err)
	}
	return *r
}

// dead leaves the lock of a server that is gone, with as many signs of life.
func dead(t *testing.T, s objstore.Store, beats int) Record {
	t.Helper()
	r := Record{Nonce: "n", Kind: Standalone, Cluster: "default", ID: "dead", Holder: "old", LeaseMS: lease.Milliseconds()}
	if r := s.PutIfAbsent(t.Context(), RootKey, r.Encode()); r.Err != nil {
		t.Fatal(r.Err)
	}
	for n := range beats {
		if r := s.PutIfAbsent(t.Context(), BeatKey("dead", uint64(n)), nil); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return r
}

func TestAFreeRootIsClaimedAndServedForGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := memory()
		s := start(t, named(store, "a", 1), nil)
		after(0)
		if !s.admits() {
			t.Fatal("not admitted at once")
		}
		r := root(t, store)
		if r.Kind != Standalone || r.ID != s.id() || r.Holder != "a" || r.Lease() != lease {
			t.Errorf("%+v", r)
		}
		for range 60 {
			after(time.Minute)
			if !s.admits() {
				t.Fatal("lost")
			}
		}
		beats, err := Beats(t.Context(), store, s.id())
		if err != nil || len(beats) != beatsKept || beats[0] != 351 || beats[9] != 360 {
			t.Errorf("after an hour of a beat every 10 s these are left: %v, %v", beats, err)
		}
	})
}

func TestACleanStopRemovesTheBeatsAndFreesTheRoot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := memory()
		s := start(t, named(store, "a", 1), nil)
		after(35 * time.Second)
		s.stop()
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		beats, err := Beats(t.Context(), store, s.id())
		if r := root(t, store); r.Kind != Released || r.ID != s.id() || len(beats) != 0 || err != nil {
			t.Errorf("%+v, beats %v, %v", r, beats, err)
		}
		if s.open != nil {
			t.Errorf("the scope was closed before what was served had ended: %v", s.open)
		}
		next := start(t, named(store, "b", 2), nil)
		after(0)
		if !next.admits() {
			t.Error("a released root is not free at once")
		}
	})
}

func TestARootWhoseReleaseFailedIsSimplyASilentOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := memory()
		s := start(t, named(faulty(t, store, "replace-if-match *: unknown, never lands"), "a", 1), nil)
		after(35 * time.Second)
		s.stop()
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		next := start(t, named(store, "b", 2), nil)
		after(44 * time.Second)
		if next.admits() {
			t.Error("admitted before a lease and a half of silence")
		}
		after(2 * time.Second)
		if !next.admits() {
			t.Error("not admitted after a lease and a half of silence")
		}
	})
}

func TestOneFailedBeatDoesNotFenceALiveOwner(t *testing.T) { beatsFail(t, "#3") }

func TestThreeFailedBeatsInARowInsideTheDeadlineDoNotFenceALiveOwner(t *testing.T) {
	beatsFail(t, "#3-5")
}

func beatsFail(t *testing.T, which string) {
	for _, fault := range []string{"fail before send", "refuse", "throttle", "unknown, never lands", "hang, never lands"} {
		bubble(t, func(t *testing.T) {
			store := faulty(t, memory(), "put-if-absent *beat-* "+which+": "+fault)
			s := start(t, named(store, "a", 1), nil)
			for range 600 {
				after(time.Second / 10)
				if !s.admits() {
					t.Fatalf("%s: fenced", fault)
				}
			}
			if unused := store.Unused(); len(unused) > 0 {
				t.Error(unused)
			}
		})
	}
}

func TestSixBeatsAppliedWithLostAnswersDoNotFenceTheOwnerAndASuccessorSeesThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shared := memory()
		// Every beat is sent twice: the first answer is lost, and the second says that it exists.
		script := ""
		for _, n := range []string{"1", "2", "3", "4", "5", "6"} {
			script += "put-if-absent *beat-*000" + n + ".json #1: unknown, applied\n"
		}
		store := faulty(t, shared, script)
		s := start(t, named(store, "a", 1), nil)
		after(5 * time.Second)
		successor := start(t, named(shared, "b", 2), nil)
		for range 90 {
			after(time.Second)
			if !s.admits() {
				t.Fatal("fenced")
			}
		}
		if unused := store.Unused(); len(unused) > 0 {
			t.Error(unused)
		}
		var held *HeldError
		if err := successor.end(); !errors.As(err, &held) || held.Record.ID != s.id() || !strings.Contains(err.Error(), "alive") {
			t.Errorf("the successor ended with %v", err)
		}
	})
}

func TestTheOwnerIsFencedTwoThirdsOfALeaseAfterTheSendOfItsLastAcknowledgedBeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := memory()
		// Answers come a second late; the send is what counts.
		s := start(t, named(faulty(t, store, "put-if-absent *beat-* #1-3: slow 1s\nput-if-absent *beat-*: unknown, never lands"), "a", 1), nil)
		after(time.Minute)
		var lost *LostError
		if err := s.end(); !errors.As(err, &lost) || !errors.Is(err, ErrDeadline) || lost.ExitCode() != 2 || lost.ID != s.id() {
			t.Fatal(err)
		}
		if s.lost != 40*time.Second {
			t.Errorf("fenced at %v, want 40s: 20 s after beat 2, which was sent at 20 s", s.lost)
		}
		if !errors.Is(s.open, objstore.ErrFenced) {
			t.Errorf("when the loss was reported the scope said %v", s.open)
		}
		if r := root(t, store); r.Kind != Standalone || r.ID != s.id() {
			t.Errorf("a fenced owner has released: %+v", r)
		}
		if beats, err := Beats(t.Context(), store, s.id()); len(beats) != 3 || err != nil {
			t.Errorf("beats %v, %v", beats, err)
		}
	})
}

func TestTheScopeRefusesFromTheDeadlineOnWhateverElseTheOwnerIsDoing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stalled := newStallClock()
		o := named(memory(), "a", 1)
		o.Clock = stalled
		s := start(t, o, nil)
		after(5 * time.Second)
		stalled.stall() // SIGSTOP: no timer fires, monotonic time passes
		after(14 * time.Second)
		if !s.admits() {
			t.Error("closed before the deadline")
		}
		after(time.Second)
		if s.admits() {
			t.Error("open at the deadline")
		}
		stalled.wake()
		if err := s.end(); !errors.Is(err, ErrDeadline) {
			t.Error(err)
		}
	})
}

func TestTheOwnerIsFencedAtOnceWhenItSeesAClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := memory()
		s := start(t, named(store, "a", 1), nil)
		after(15 * time.Second)
		if r := store.PutIfAbsent(t.Context(), claimKey(s.id()), nil); r.Err != nil {
			t.Fatal(r.Err)
		}
		err := s.end()
		var lost *LostError
		if !errors.As(err, &lost) || !errors.Is(err, ErrSuperseded) || s.lost != 20*time.Second || !errors.Is(s.open, objstore.ErrFenced) {
			t.Errorf("%v at %v, scope %v", err, s.lost, s.open)
		}
		if beats, _ := Beats(t.Context(), store, s.id()); len(beats) != 2 {
			t.Errorf("beats go on after the fence: %v", beats)
		}
	})
}

func TestAHungFirstBeatFencesBeforeASuccessorCanClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shared := memory()
		first := start(t, named(faulty(t, shared, "put-if-absent *beat-*: hang, lands when told"), "a", 1), nil)
		synctest.Wait()
		lock := root(t, shared)
		second := start(t, named(shared, "b", 2), nil)
		err := first.end()
		if !errors.Is(err, ErrDeadline) || time.Since(first.start) != 20*time.Second || first.claim != nil {
			t.Errorf("the first ended with %v after %v, admitted %v", err, time.Since(first.start), first.claim != nil)
		}
		if _, err := shared.Head(t.Context(), claimKey(lock.ID)); !errors.Is(err, objstore.ErrNotFound) {
			t.Error("claimed before the fence")
		}
		after(30 * time.Second)
		if !second.admits() || time.Since(second.start) != 50*time.Second {
			t.Error("the second was not admitted")
		}
	})
}

func TestAClaimDuringTheFirstBeatKeepsTheHolderFromServing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shared := memory()
		s := start(t, named(faulty(t, shared, "put-if-absent *beat-* #1: slow 2s"), "a", 1), nil)
		after(time.Second)
		if r := shared.PutIfAbsent(t.Context(), claimKey(root(t, shared).ID), nil); r.Err != nil {
			t.Fatal(r.Err)
		}
		if err := s.end(); !errors.Is(err, ErrSuperseded) || s.claim != nil {
			t.Errorf("%v, admitted %v", err, s.claim != nil)
		}
	})
}

func TestAStoppedSuccessorsLeftoverClaimBlocksNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shared := memory()
		dead(t, shared, 3)
		// The first successor dies between its claim and its replace.
		store := faulty(t, shared, "replace-if-match *: hang, never lands")
		first := start(t, named(store, "a", 1), nil)
		after(46 * time.Second)
		first.stop()
		first.end()
		if _, err := shared.Head(t.Context(), claimKey("dead")); err != nil {
			t.Fatal("there is no leftover claim", err)
		}
		second := start(t, named(shared, "b", 2), nil)
		after(45 * time.Second)
		if !second.admits() {
			t.Error("a leftover claim blocks the next successor")
		}
	})
}

func TestTwoRacingSuccessorsYieldExactlyOneOwner(t *testing.T) {
	for _, stagger := range []time.Duration{0, time.Millisecond, 3 * time.Second} {
		bubble(t, func(t *testing.T) {
			shared := memory()
			dead(t, shared, 3)
			a := start(t, named(shared, "a", 1), nil)
			time.Sleep(stagger)
			b := start(t, named(shared, "b", 2), nil)
			after(2 * time.Minute)
			if a.admits() == b.admits() {
				t.Fatalf("a admits %v, b admits %v", a.admits(), b.admits())
			}
			winner, loser := a, b
			if b.admits() {
				winner, loser = b, a
			}
			var held *HeldError
			if err := loser.end(); !errors.As(err, &held) || held.Record.ID != winner.id() {
				t.Errorf("the loser ended with %v", err)
			}
		})
	}
}

func TestReleaseAndTakeoverNeverBothApply(t *testing.T) {
	// The owner's release is under way when a successor, who believes it silent, replaces the record, and the other way
	// around. Both replace the same version.
	for _, landing := range []string{"unknown, lands when told", "slow 3s", "unknown, applied"} {
		bubble(t, func(t *testing.T) {
			shared := memory()
			owner := faulty(t, shared, "replace-if-match *: "+landing)
			s := start(t, named(owner, "a", 1), nil)
			after(5 * time.Second)
			_, version, err := Read(t.Context(), shared)
			if err != nil {
				t.Fatal(err)
			}
			s.stop()
			time.Sleep(time.Second)
			taken := shared.ReplaceIfMatch(t.Context(), RootKey, Record{Nonce: "b", Kind: Standalone, ID: "b", LeaseMS: lease.Milliseconds()}.Encode(), version)
			if err := s.end(); err != nil {
				t.Error(err)
			}
			owner.Land()
			r := root(t, shared)
			if want := map[bool]Kind{true: Standalone, false: Released}[taken.Err == nil]; r.Kind != want {
				t.Errorf("%s: the takeover said %v, and the record is %+v", landing, taken.Outcome, r)
			}
		})
	}
}

func TestTheFirstBeatRestartsTheSilenceAndALaterOneMeansAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shared := memory()
		dead(t, shared, 0)
		s := start(t, named(shared, "a", 1), nil)
		time.Sleep(31 * time.Second)
		shared.PutIfAbsent(t.Context(), BeatKey("dead", 0), nil)
		after(44 * time.Second) // the silence from the beginning ended at 45 s
		if s.admits() {
			t.Fatal("the first beat did not restart the silence")
		}
		shared.PutIfAbsent(t.Context(), BeatKey("dead", 1), nil)
		var held *HeldError
		if err := s.end(); !errors.As(err, &held) || held.Record.ID != "dead" {
			t.Error(err)
		}
		for _, want := range []string{"old", "tidemark root unlock --root mem:// --id dead"} {
			if !strings.Contains(held.Error(), want) {
				t.Errorf("the refusal does not say %q: %v", want, held)
			}
		}
	})
}

func TestAServerThatWaitsTakesOverWhenTheHolderFallsSilentOrLeaves(t *testing.T) {
	for _, leave := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			shared := memory()
			store := faulty(t, shared, "")
			owner := start(t, named(store, "a", 1), nil)
			after(time.Second)
			o := named(shared, "b", 2)
			o.Wait = true
			waiting := start(t, o, nil)
			after(10 * time.Minute)
			if !owner.admits() || waiting.admits() {
				t.Fatal("a live owner was taken over from")
			}
			if leave {
				owner.stop()
				after(pollMax)
			} else {
				if err := store.Add("any *: hang, never lands"); err != nil {
					t.Fatal(err)
				}
				after(70 * time.Second)
			}
			if owner.admits() || !waiting.admits() {
				t.Errorf("leave %v: the owner admits %v, the successor %v", leave, owner.admits(), waiting.admits())
			}
		})
	}
}

func TestWhatMayNotBeTakenOverIsRefusedAtOnceAndLeftAlone(t *testing.T) {
	for body, want := range map[string]string{
		`{"format":2,"kind":"standalone","id":"x","lease_ms":30000}`:  "newer version",
		`{"format":1,"kind":"cluster","cluster":"prod","id":"x"}`:     `cluster "prod" (id x)`,
		`{"format":1,"nonce":"n","cluster":"prod","id":"x"}`:          "tidemark root unlock --root mem:// --id x",
		`{"format":1,"kind":"standalone","id":"x","holder":"h"}`:      "no lease",
		`{"format":1,"kind":"committee","id":"x"}`:                    "does not know",
		`{"format":1,"kind":"cluster","id":"x","lease_ms":30000}`:     "only a standalone server may have one",
		`{"format":1,"kind":"cluster","id":"../x"}`:                   "is not one",
		`{"format":1,"kind":"cluster"}`:                               "no id",
		`nonsense`:                                                    "damaged",
		`{"format":1,"kind":"standalone","id":"x","lease_ms":1999}`:   "2s to 10m0s",
		`{"format":1,"kind":"standalone","id":"x","lease_ms":600001}`: "2s to 10m0s",
	} {
		bubble(t, func(t *testing.T) {
			store := memory()
			if r := store.PutIfAbsent(t.Context(), RootKey, []byte(body)); r.Err != nil {
				t.Fatal(r.Err)
			}
			o := named(store, "a", 1)
			o.Wait = true
			s := start(t, o, nil)
			err := s.end()
			if err == nil || !strings.Contains(err.Error(), want) || time.Since(s.start) != 0 {
				t.Errorf("%s: %v after %v", body, err, time.Since(s.start))
			}
			if got, _, _ := store.Get(t.Context(), RootKey); string(got) != body {
				t.Errorf("%s became %s", body, got)
			}
		})
	}
}

func TestAServerThatCannotReadOrWriteTheLockEndsInsteadOfTryingForEver(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, script := range []string{"put-if-absent *root.json: refuse\nreplace-if-match *: refuse", "get *root.json: throttle"} {
			bubble(t, func(t *testing.T) {
				shared := memory()
				if silent {
					dead(t, shared, 1)
				}
				store := faulty(t, shared, script)
				o := named(store, "a", 1)
				o.Wait = true
				s := start(t, o, nil)
				after(2 * time.Minute)
				select {
				case <-s.ended:
				default:
					t.Fatal("it still tries")
				}
				if err := s.end(); err == nil || !strings.Contains(err.Error(), "claiming the root failed 5 times") {
					t.Error(err)
				}
				if n := len(store.Trace()); n > 50 {
					t.Errorf("it took %d requests", n)
				}
			})
		}
	}
}

func TestALeaseOutsideItsBoundsIsNotEvenTried(t *testing.T) {
	for _, d := range []time.Duration{LeaseMin - 1, LeaseMax + 1} {
		o := named(memory(), "a", 1)
		o.Lease, o.Clock = d, clock.System()
		if err := Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), "outside 2s to 10m0s") {
			t.Errorf("%v: %v", d, err)
		}
	}
}

func TestAServerThatIsStoppedWhileItWaitsLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := memory()
		dead(t, store, 1)
		s := start(t, named(store, "a", 1), nil)
		after(20 * time.Second)
		s.stop()
		if err := s.end(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if r := root(t, store); r.ID != "dead" {
			t.Errorf("%+v", r)
		}
	})
}

func TestABeatThatExistsAlreadyCountsFromItsFirstSend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// Beat 1 is applied at 10 s; 12.5 s and 15 s fail, and at 17.5 s it exists. Beat 2 never arrives.
		store := faulty(t, memory(), `
put-if-absent *beat-*01.json #1: unknown, applied
put-if-absent *beat-*01.json #2-3: fail before send
put-if-absent *beat-*02.json: unknown, never lands`)
		s := start(t, named(store, "a", 1), nil)
		if err := s.end(); !errors.Is(err, ErrDeadline) || s.lost != 30*time.Second {
			t.Errorf("%v at %v, want 30s: 20 s after the first send", err, s.lost)
		}
		if unused := store.Unused(); len(unused) > 0 {
			t.Error(unused)
		}
	})
}
