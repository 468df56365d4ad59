package rootlock

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/objstore/faultstore"
	"tidemark/internal/random"
)

var replay = flag.Uint64("schedule", 0, "run only the random schedule of this seed")

const (
	schedules = 300
	// What happens in a schedule happens within this many leases, and may end as much later.
	scheduleLeases = 8
	scheduleLease  = 3 * time.Second
	never          = 100 * scheduleLease
	// sampleEvery is how often it is asked who admits work, besides whenever somebody begins to.
	sampleEvery = scheduleLease / 300
)

// An owner and two successors are stopped and woken at random, some of them end cleanly, and their beats, and whatever else they put, land late or
// seem to fail. At no instant may two of them admit work, and in the end, when all is well again, one must.
func TestRandomSchedulesNeverAdmitTwoOwnersAtAnyInstant(t *testing.T) {
	if *replay != 0 {
		schedule(t, *replay)
		return
	}
	base := random.New().Uint64()
	t.Logf("%d schedules from seed %d; replay one with -args -schedule=SEED", schedules, base)
	owners := 0
	for i := range uint64(schedules) {
		owners += schedule(t, base+i)
		if t.Failed() {
			t.Fatalf("schedule %d failed: go test ./internal/rootlock -run RandomSchedules -args -schedule=%d", i, base+i)
		}
	}
	t.Logf("%d owners were admitted", owners)
	if owners < schedules*3/2 {
		t.Errorf("only %d owners in %d schedules: hardly anybody was taken over from", owners, schedules)
	}
}

// schedule plays one schedule and returns how many owners were admitted.
func schedule(t *testing.T, seed uint64) (owners int) {
	bubble(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 1))
		shared := memory()
		var actors []*actor
		var log []string
		var admitted servers
		check := func() {
			if now := admitted.admitting(); len(now) > 1 {
				t.Errorf("seed %d: %v admit work at once\n%s", seed, now, strings.Join(log, "\n"))
			}
		}
		admit := func(s *server) {
			admitted.add(s)
			check()
		}
		for i, name := range []string{"owner", "successor 1", "successor 2"} {
			c := newStallClock()
			a := &actor{clock: c, faults: faulty(t, shared, faultScript(r))}
			a.options = named(&stallStore{a.faults, c}, name, seed+uint64(i))
			a.options.Clock, a.options.Lease, a.options.Wait = c, scheduleLease, true
			if i > 0 {
				a.startAt = within(r, 2)
			}
			for range 1 + r.IntN(4) {
				stall := within(r, scheduleLeases)
				a.stalls = append(a.stalls, [2]time.Duration{stall, stall + within(r, 3)})
			}
			if a.stopAt = never; r.IntN(3) == 0 {
				a.stopAt = a.startAt + within(r, scheduleLeases)
			}
			for range r.IntN(6) {
				a.lands = append(a.lands, within(r, scheduleLeases))
			}
			actors = append(actors, a)
			log = append(log, fmt.Sprintf("%s starts at %v, stops at %v, stalls %v, late requests land at %v", name, a.startAt, a.stopAt, a.stalls, a.lands))
		}
		began := time.Now()
		for now := time.Duration(0); now < 12*scheduleLease; now = time.Since(began) {
			for _, a := range actors {
				a.act(t, now, admit)
			}
			check()
			after(sampleEvery)
		}
		// All is well again: nobody is stopped, and the store answers.
		for _, a := range actors {
			a.clock.wake()
			a.faults.Clear()
			a.faults.Land()
		}
		o := named(shared, "last", seed+9)
		o.Lease, o.Wait = scheduleLease, true
		actors = append(actors, &actor{server: start(t, o, admit)})
		for range 4 * scheduleLease / sampleEvery {
			check()
			after(sampleEvery)
		}
		if now := admitted.admitting(); len(now) != 1 {
			t.Errorf("seed %d: %v admit work in the end\n%s", seed, now, strings.Join(log, "\n"))
		}
		owners = len(admitted.all)
		for _, a := range actors {
			a.server.stop()
		}
		synctest.Wait()
	})
	return owners
}

// servers are those that were admitted so far.
type servers struct {
	mu  sync.Mutex // guards all
	all []*server
}

func (s *servers) add(one *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, one)
}

// admitting names those that admit work at this instant.
func (s *servers) admitting() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if one.admits() {
			names = append(names, one.name)
		}
	}
	return names
}

// actor is one server of a schedule.
type actor struct {
	clock   *stallClock
	faults  *faultstore.Store
	options Options
	startAt time.Duration
	stopAt  time.Duration // a clean stop
	stalls  [][2]time.Duration
	lands   []time.Duration
	server  *server
}

// act does what is due at a moment of the schedule.
func (a *actor) act(t *testing.T, now time.Duration, admitted func(*server)) {
	if a.server == nil && now >= a.startAt {
		a.server = start(t, a.options, admitted)
	}
	if a.server != nil && now >= a.stopAt {
		a.server.stop()
	}
	stopped := false
	for _, s := range a.stalls {
		stopped = stopped || s[0] <= now && now < s[1]
	}
	if stopped {
		a.clock.stall()
	} else {
		a.clock.wake()
	}
	for len(a.lands) > 0 && a.lands[0] <= now {
		a.faults.Land()
		a.lands = a.lands[1:]
	}
}

// within draws a moment within so many leases.
func within(r *rand.Rand, leases float64) time.Duration {
	return time.Duration(r.Float64() * leases * float64(scheduleLease))
}

// faultScript draws what happens to a server's requests.
func faultScript(r *rand.Rand) string {
	faults := []string{
		"unknown, lands when told", "unknown, lands after 1 ops", "unknown, lands after 3 ops", "unknown, lands after 10 ops",
		"unknown, applied", "unknown, never lands", "hang, lands when told", "hang, applied", "throttle", "fail before send", "slow 400ms",
	}
	var script strings.Builder
	for range r.IntN(5) {
		first := 1 + r.IntN(20)
		fmt.Fprintf(&script, "put-if-absent *beat-* #%d-%d: %s\n", first, first+r.IntN(6), faults[r.IntN(len(faults))])
	}
	if r.IntN(3) == 0 {
		fmt.Fprintf(&script, "put-if-absent *root.json #1: %s\n", faults[r.IntN(len(faults))])
	}
	if r.IntN(3) == 0 {
		fmt.Fprintf(&script, "replace-if-match * #1: %s\n", faults[r.IntN(len(faults))])
	}
	if r.IntN(3) == 0 {
		fmt.Fprintf(&script, "put-if-absent *superseded* #1: %s\n", faults[r.IntN(len(faults))])
	}
	return script.String()
}
