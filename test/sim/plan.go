package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// plan is everything that a seed has decided beforehand.
type plan struct {
	masters, executors, writers int
	tables                      []tablePlan
	load                        time.Duration // how long writers write
	pause                       time.Duration // mean time between a writer's seals
	rates                       rates
	incidents                   []incident
	clashes, widens             bool // writers disagree on the types of new columns
	foreign                     bool // an engine of another make writes and vacuums append tables
	rivals                      int  // standalone servers on a root of their own
	slots                       int
	night                       time.Duration // when everything is switched off for an hour; 0 never
	nightFor                    time.Duration

	heals  time.Duration   // when all faults end
	off    map[string]bool // ids of faults that are left out
	healed bool
	fired  []string // ids of request faults that happened; only the world's goroutine
}

// tablePlan is one table of the load.
type tablePlan struct {
	name     string
	upsert   bool
	sequence bool
	buckets  int
	shards   int           // of an append table
	dropAt   time.Duration // 0 never
	policy   map[string]string
	// checkpoints is delta.checkpointInterval.
	checkpoints int
	logHours    int // delta.logRetentionDuration
}

// rates are chances in 10,000 of what may become of a request.
type rates struct {
	lost, late, never, refused int // of changes
	read                       int // of reads that fail
	stall                      int // of requests that take long to arrive
	etcd                       int // scales all of them for etcd, in hundredths
	slow                       time.Duration
	lateMax                    time.Duration // how late a request may land
}

// incident is a fault of a process or of etcd.
type incident struct {
	id   string
	at   time.Duration
	kind string        // crash, stop, pause, amid, sleep, cut store, cut etcd, wipe, compact, break, full, damage …
	who  int           // index of the process, modulo
	last time.Duration // how long
}

func (i incident) String() string { return fmt.Sprintf("%s %s %s", stamp(i.at), i.kind, i.last) }

// between draws a duration, the shorter the likelier.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	f := r.Float64()
	return low + time.Duration(f*f*float64(high-low))
}

// sealsMax bounds how many seals the writers of a seed make together on average.
const sealsMax = 100

func planOf(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	p := &plan{
		masters: 1 + r.IntN(2), executors: 1 + r.IntN(3), writers: 2 + r.IntN(3), slots: 1 + r.IntN(4),
		load: between(r, 20*time.Second, 150*time.Second), pause: between(r, 500*time.Millisecond, 6*time.Second),
		off: map[string]bool{},
	}
	// Busier histories cost more and find no more than two of half the length.
	p.pause = max(p.pause, p.load*time.Duration(p.writers)/sealsMax)
	for i := range 1 + r.IntN(3) {
		t := tablePlan{
			name: fmt.Sprintf("t%d", i), upsert: r.IntN(2) == 0, sequence: r.IntN(2) == 0, buckets: 1 + r.IntN(3), shards: 1 + r.IntN(3),
			checkpoints: []int{3, 10, 100}[r.IntN(3)], logHours: []int{1, 24 * 30}[r.IntN(2)],
			policy: map[string]string{
				"tidemark.policy.min_generations": fmt.Sprint(1 + r.IntN(4)),
				"tidemark.policy.max_age":         fmt.Sprintf("%ds", 2+r.IntN(20)),
				"tidemark.policy.max_wait":        fmt.Sprintf("%ds", 5+r.IntN(30)),
				// Small backlogs are cut too, so that several executors merge one table at once.
				"tidemark.policy.unit_generations": fmt.Sprint(1 + r.IntN(8)),
				"tidemark.policy.compact_files":    fmt.Sprint(1 + (seed+uint64(i))%6),
			},
		}
		if r.IntN(4) == 0 {
			t.dropAt = p.load/4 + time.Duration(r.Int64N(int64(p.load/2)))
		}
		p.tables = append(p.tables, t)
	}
	p.rates = ratesOf(r)
	if r.IntN(8) == 0 {
		p.night, p.nightFor = p.load/3+time.Duration(r.Int64N(int64(p.load/3))), between(r, 61*time.Minute, 3*time.Hour)
		p.load += p.nightFor
		// What a process sends in the evening may arrive in the morning.
		p.rates.lateMax = p.nightFor + time.Minute
	}
	p.incidents = incidentsOf(r, p.load)
	p.extras(rand.New(rand.NewPCG(seed, 0xe87a)))
	p.heals = p.load + 5*time.Second
	return p
}

// extras decides what came to the plans later. It has randomness of its own, so that the rest stays as it was.
func (p *plan) extras(r *rand.Rand) {
	p.clashes, p.widens = r.IntN(10) == 0, r.IntN(4) == 0
	if r.IntN(5) == 0 {
		kinds := []string{"damage generation", "damage generation", "damage manifest", "damage base", "damage log"}
		for n := range 1 + r.IntN(3) {
			p.incidents = append(p.incidents, incident{
				id: fmt.Sprintf("damage %d", n), at: 5*time.Second + time.Duration(r.Int64N(int64(p.load))), kind: kinds[r.IntN(len(kinds))], who: r.IntN(64),
			})
		}
	}
	if r.IntN(6) == 0 {
		p.rivals = 2
	}
	if p.foreign = r.IntN(5) == 0; p.foreign {
		// An execution may commit for half of the retention; one sleeps for longer than that, while others vacuum.
		if r.IntN(6) == 0 && p.night == 0 {
			sleep := incident{id: "sleep", at: 5*time.Second + time.Duration(r.Int64N(int64(p.load))), kind: "sleep", who: r.IntN(64), last: between(r, foreignRetention/2, 3*foreignRetention/2)}
			p.incidents = append(p.incidents, sleep)
			p.load = max(p.load, sleep.at+sleep.last+20*time.Second)
			p.pause = max(p.pause, p.load*time.Duration(p.writers)/sealsMax)
		}
	}
	if r.IntN(3) == 0 {
		for n := range 1 + r.IntN(3) {
			p.incidents = append(p.incidents, incident{
				id: fmt.Sprintf("amid %d", n), at: 2*time.Second + time.Duration(r.Int64N(int64(p.load))), kind: "amid", who: r.IntN(64), last: between(r, time.Second, 70*time.Second),
			})
		}
	}
	slices.SortStableFunc(p.incidents, func(a, b incident) int { return int(a.at - b.at) })
}

// ratesOf draws which kinds of faults this seed has at all, and how many.
func ratesOf(r *rand.Rand) rates {
	some := func(most int) int {
		if r.IntN(2) == 0 {
			return 0
		}
		return 1 + r.IntN(most)
	}
	return rates{
		lost: some(500), late: some(500), never: some(300), refused: some(200), read: some(200), stall: some(60),
		etcd: []int{0, 20, 100}[r.IntN(3)], slow: between(r, time.Second, 100*time.Second), lateMax: 100 * time.Second,
	}
}

func incidentsOf(r *rand.Rand, load time.Duration) (all []incident) {
	kinds := []string{"crash", "crash", "crash", "stop", "pause", "pause", "cut store", "cut etcd", "wipe", "compact", "break", "full"}
	if r.IntN(4) == 0 {
		kinds = []string{kinds[r.IntN(len(kinds))], kinds[r.IntN(len(kinds))]} // a storm of two kinds
	}
	kinds = slices.DeleteFunc(kinds, func(string) bool { return r.IntN(3) == 0 })
	if len(kinds) == 0 {
		return nil
	}
	for n := range r.IntN(14) {
		all = append(all, incident{
			id: fmt.Sprintf("incident %d", n), at: 2*time.Second + time.Duration(r.Int64N(int64(load))), kind: kinds[r.IntN(len(kinds))],
			who: r.IntN(64), last: between(r, time.Second, 70*time.Second),
		})
	}
	slices.SortFunc(all, func(a, b incident) int { return int(a.at - b.at) })
	return all
}

// fateKind is how a request ends.
type fateKind int

const (
	fateAnswered fateKind = iota
	fateLost              // applied, the answer is lost
	fateLate              // applied later, no answer
	fateNever             // never applied, no answer
	fateRefused           // turned away
)

// fate is what becomes of one request.
type fate struct {
	kind       fateKind
	out, back  time.Duration // until it arrives, until its answer does
	late       time.Duration
	stalled    bool // out is longer than usual
	landsAlone bool // it arrives although its sender has given up
}

func (p *plan) latency(r *rand.Rand) time.Duration {
	d := 200*time.Microsecond + time.Duration(r.Int64N(int64(4*time.Millisecond)))
	if p.healed {
		return d
	}
	if r.IntN(50) == 0 {
		d += time.Duration(r.Int64N(int64(500 * time.Millisecond)))
	}
	return d
}

// fate decides on a request. Every draw is made whatever the others are, so that leaving one fault out leaves the rest.
func (p *plan) fate(r *rand.Rand, id string, to target, mutates bool) fate {
	f := fate{out: p.latency(r)}
	f.landsAlone = r.IntN(2) == 0
	separate, back := r.IntN(4) == 0, p.latency(r)
	roll, scale := r.IntN(10_000), 100
	stalled, stall := r.IntN(10_000) < p.rates.stall, time.Duration(r.Int64N(int64(p.rates.slow)+1))
	f.late = between(r, 10*time.Millisecond, 100*time.Second)
	if r.IntN(4) == 0 {
		f.late = time.Duration(r.Int64N(int64(p.rates.lateMax)))
	}
	if mutates && separate {
		f.back = back
	}
	if p.healed || p.off[id] {
		return f
	}
	if to == toEtcd {
		scale = p.rates.etcd
	}
	kind := fateAnswered
	below := 0
	is := func(rate int) bool { below += rate * scale / 100; return roll < below }
	switch {
	case !mutates:
		if is(p.rates.read) {
			kind = fateNever
		}
	case is(p.rates.lost):
		kind = fateLost
	case is(p.rates.late):
		kind = fateLate
	case is(p.rates.never):
		kind = fateNever
	case is(p.rates.refused) && to == toStore:
		kind = fateRefused
	}
	if stalled && to == toStore {
		f.out += stall
		f.stalled = true
	}
	f.kind = kind
	return f
}
