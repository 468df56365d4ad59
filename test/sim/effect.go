package sim

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"
)

// world is the simulated outside of all processes: it decides what happens next.
type world struct {
	seed   uint64
	start  time.Time
	plan   *plan
	trace  *trace
	mutant string // a deliberate bug; see mutant.go
	// verbose puts every event into the trace.
	verbose bool

	mu       sync.Mutex // guards the following
	arrivals []*event   // submitted since the last look, in any order
	queue    events
	next     uint64 // breaks ties of the queue
	counts   map[string]int
	kick     chan struct{} // holds one token when arrivals may not be empty
	happened int
	steps    uint64

	failures []error // what the checker found
}

// event is something that will happen at a time.
type event struct {
	at   time.Duration // since the start
	name string        // stable between runs, orders what was submitted at once
	run  func()
	seq  uint64
}

type events []*event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].seq, e[j].seq)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(*event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// now is the virtual time since the start.
func (w *world) now() time.Duration { return time.Since(w.start) }

// submit makes run happen after a delay. It may be called by any goroutine.
func (w *world) submit(name string, delay time.Duration, run func()) {
	w.mu.Lock()
	w.arrivals = append(w.arrivals, &event{at: w.now() + delay, name: name, run: run})
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// admit takes what was submitted into the queue, in the order of names.
func (w *world) admit() (head *event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.arrivals, func(a, b *event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.name, b.name)) })
	for _, e := range w.arrivals {
		w.next++
		e.seq = w.next
		heap.Push(&w.queue, e)
	}
	w.arrivals = w.arrivals[:0]
	if len(w.queue) == 0 {
		return nil
	}
	return w.queue[0]
}

// eventsMax bounds a history: ten times the longest one seen.
const eventsMax = 500_000

// run lets one event after the other happen, each when all goroutines are idle, until done says so.
func (w *world) run(done func() bool) {
	for {
		synctest.Wait()
		w.steps++
		reseed(w.seed + w.steps)
		if done() {
			return
		}
		head := w.admit()
		if head == nil || head.at > w.now() {
			w.wait(head)
			continue
		}
		w.mu.Lock()
		heap.Pop(&w.queue)
		w.happened++
		w.mu.Unlock()
		if w.happened == eventsMax {
			w.fail("%w: no end after %d events", errNotQuiet, eventsMax)
		}
		if w.verbose {
			w.trace.say("event", "%s", head.name)
		}
		head.run()
	}
}

func (w *world) wait(head *event) {
	wait := time.Second // so that done is asked
	if head != nil {
		wait = min(wait, head.at-w.now())
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.kick:
	}
}

// fail notes what must not be.
func (w *world) fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	w.mu.Lock()
	w.failures = append(w.failures, err)
	w.mu.Unlock()
	w.trace.say("checker", "VIOLATION %v", err)
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.failures) > 0
}

// draw is randomness that depends on the seed and on names only.
func (w *world) draw(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// nth counts the uses of a name.
func (w *world) nth(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[name]++
	return w.counts[name]
}

// target is where a request goes.
type target int

const (
	toStore target = iota
	toEtcd
)

// end is how a request ends for its sender.
type end int

const (
	answered end = iota // it was applied, and this is its answer
	refused             // the other side turned it away: it was not applied
	lost                // nobody knows
	gone                // the sender's context ended, or the sender: nobody knows
	unsent              // the sender is no more: it was never sent
)

// perform is one request of a process: it parks until the world has let it arrive and its answer come back. apply runs
// at most once, when the request arrives, perhaps after perform has returned.
func (p *process) perform(ctx context.Context, to target, what string, mutates bool, apply func()) end {
	w := p.world
	if err := p.awake(ctx); err != nil {
		return unsent
	}
	name := fmt.Sprintf("%s %s", p.name, what)
	n := w.nth(name)
	id := fmt.Sprintf("%s #%d", name, n)
	f := w.plan.fate(w.draw(id), id, to, mutates)
	r := &request{process: p, to: to, what: what, id: id, mutates: mutates, fate: f, apply: apply, done: make(chan end, 1)}
	w.submit(id, f.out, r.arrive)
	select {
	case e := <-r.done:
		return e
	case <-ctx.Done():
	case <-p.dead:
	}
	r.mu.Lock()
	r.left = true
	r.mu.Unlock()
	// A deadline that passes during a pause is noticed after it.
	_ = p.awake(context.Background()) // a crash is as gone
	return gone
}

// request is a request under way.
type request struct {
	process *process
	to      target
	what    string
	id      string
	mutates bool
	fate    fate
	apply   func()
	done    chan end

	mu   sync.Mutex // guards left
	left bool       // the sender waits no more
}

func (r *request) abandoned() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// arrive is the request's arrival at the other side.
func (r *request) arrive() {
	w, p := r.process.world, r.process
	if until, cut := p.cutOff(r.to); cut {
		// What is new waits for the connection; what the sender gives up meanwhile never leaves.
		if r.abandoned() {
			return
		}
		w.submit(r.id, until-w.now()+r.fate.out, r.arrive)
		return
	}
	if r.abandoned() && (!r.mutates || !r.fate.landsAlone) {
		return
	}
	if p.amid > 0 && r.to == toStore && r.mutates && !w.plan.healed {
		p.pause(p.amid) // the answer comes after it
		p.amid = 0
	}
	if r.fate.kind != fateAnswered || r.fate.stalled {
		w.plan.fired = append(w.plan.fired, r.id)
	}
	switch r.fate.kind {
	case fateRefused:
		w.trace.fault(p, "%s → turned away", r.what)
		r.answer(refused)
	case fateNever:
		w.trace.fault(p, "%s → unknown (never arrives)", r.what)
		r.answer(lost)
	case fateLate:
		// However late, it lands before everything has to become quiet.
		late := min(r.fate.late, w.plan.heals+r.fate.late%landMax-w.now())
		w.trace.fault(p, "%s → unknown (lands at %s)", r.what, stamp(w.now()+late))
		w.submit(r.id, late, func() {
			r.apply()
			w.trace.say(p.name, "%s landed late", r.what)
		})
		r.answer(lost)
	case fateLost:
		r.apply()
		w.trace.fault(p, "%s → unknown (applied)", r.what)
		r.answer(lost)
	default:
		r.apply()
		if r.abandoned() {
			w.trace.say(p.name, "%s landed although its sender had given up", r.what)
			return
		}
		r.answer(answered)
	}
}

// answer is the answer's way back.
func (r *request) answer(e end) {
	w, p := r.process.world, r.process
	back := r.fate.back
	if until, paused := p.pausedUntil(); paused {
		back = max(back, until-w.now()+time.Millisecond)
	}
	if until, cut := p.cutOff(r.to); cut && back > 0 {
		back = max(back, until-w.now())
	}
	if back == 0 {
		r.done <- e
		return
	}
	w.submit(r.id, back, func() {
		if _, paused := p.pausedUntil(); paused {
			r.answer(e)
			return
		}
		r.done <- e
	})
}
