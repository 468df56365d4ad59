package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/executor"
	"tidemark/internal/maintain"
	"tidemark/internal/master"
	"tidemark/internal/merge"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/test/sim/simetcd"
)

const (
	prefix = "/t"
	// quietMax is how long everything may take to become quiet once all faults have healed.
	quietMax = 45 * time.Minute
	// revisionFirst is where etcd stands at first. One that replaces it begins far below, as it would in life, so that no
	// revision of the one is ever taken for one of the other.
	revisionFirst = 1 << 24
	// memoryMax is when the collector runs all the same.
	memoryMax = 1 << 30
	// patienceMax is how long the load may take to end before logs and manifests are repaired.
	patienceMax = 2 * time.Minute
	// superviseEvery is how often it is looked whether a process has to be started again.
	superviseEvery = 100 * time.Millisecond
	// stopMax is how long the processes may take to end.
	stopMax = 10 * time.Minute
	// landMax is how long after everything has healed a request may land that was sent before.
	landMax = 10 * time.Second
)

// errNotQuiet: after all faults have healed, something is still not as it should become.
var errNotQuiet = errors.New("not quiet")

var keys = etcd.Keys{Prefix: prefix}

func itoa(n int) string { return strconv.Itoa(n) }

// Options of one run.
type Options struct {
	Off    map[string]bool // ids of faults that are left out
	Log    bool            // the system's own log goes into the trace
	Events bool            // every event goes into the trace
	// Mutant is a deliberate bug; see mutant.go.
	Mutant string
}

// Result of one run.
type Result struct {
	Seed     uint64
	Failures []error
	Trace    string
	Hash     uint64 // of the trace
	Faults   []string
	Events   int
	Virtual  time.Duration
	Commits  int
	Rows     int
}

// sim is one run.
type sim struct {
	world   *world
	options Options
	memory  *objstore.Memory
	etcd    *simetcd.Server
	checker *checker

	repairs *repairs

	rivalRoot *objstore.Memory // the root of standalone servers
	lastWork  time.Duration    // when one of them worked last

	stop    atomic.Bool // the load has to stop
	created map[string]bool
	dropped map[string]bool
	lives   uint64        // of etcd, after the first
	morning time.Duration // when what was switched off starts again

	all   []*process // every life of every process
	roles []*role
}

// role is what one life after the other of a process does.
type role struct {
	name    string
	main    func(p *process) error
	once    bool // a life that ends is not followed by another
	lives   int
	now     *process
	restart time.Duration // when the next life begins, 0 if none is due
}

// Run runs one seed. It must not run in parallel with another.
func Run(t *testing.T, seed uint64, o Options) (result Result) {
	// The collector would take turns with the goroutines, so it only runs in between.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryMax))
	synctest.Test(t, func(t *testing.T) {
		reseed(seed)
		defer calm()()
		defer simetcd.EnterBubble()()
		s := newSim(seed, o)
		s.run()
		result = s.result()
	})
	return result
}

func newSim(seed uint64, o Options) *sim {
	start := time.Now()
	w := &world{
		seed: seed, start: start, plan: planOf(seed), trace: &trace{start: start}, counts: map[string]int{}, kick: make(chan struct{}, 1),
	}
	w.plan.off, w.verbose, w.mutant = o.Off, o.Events, o.Mutant
	s := &sim{
		world: w, options: o, memory: objstore.NewMemory(clock.System()), checker: newChecker(w),
		created: map[string]bool{}, dropped: map[string]bool{}, repairs: &repairs{damages: map[string]*damage{}},
		rivalRoot: objstore.NewMemory(clock.System()),
	}
	s.etcd = simetcd.NewServer(1, revisionFirst, func(d time.Duration, f func()) { w.submit("a lease ends", d, f) })
	s.etcd.Observe(func(events []*mvccpb.Event, _ int64) { s.checker.revision(events) })
	return s
}

func (s *sim) storeOf(p *process) objstore.Store {
	store := &processStore{p: p, inner: s.memory, seen: s.checker.landed, sent: s.sent}
	if s.options.Mutant == "" {
		return store
	}
	return &mutantStore{Store: store, p: p, mutant: s.options.Mutant}
}

func (s *sim) dial(p *process) (*clientv3.Client, error) {
	var via simetcd.Transport = wire{p, s.etcd}
	if s.options.Mutant != "" {
		via = mutantWire{wire{p, s.etcd}, s.options.Mutant}
	}
	return simetcd.Dial(s.etcd, via)
}

// sent checks what a process sends at the moment it does. It is called by the process's goroutines.
func (s *sim) sent(p *process, op, key string, body []byte) {
	if !executes(p) {
		return
	}
	s.checker.sent(p, s.etcd, op, key, body)
}

// stopped says whether a load must end.
func (s *sim) stopped(p *process) bool { return s.stop.Load() || p.ctx.Err() != nil }

func (s *sim) log(p *process) hclog.Logger {
	if !s.options.Log {
		return hclog.NewNullLogger()
	}
	return hclog.New(&hclog.LoggerOptions{Name: p.name, Level: hclog.Debug, DisableTime: true, Output: logWriter{s.world.trace}})
}

type logWriter struct{ t *trace }

func (l logWriter) Write(b []byte) (int, error) {
	l.t.say("log", "%s", b[:len(b)-1])
	return len(b), nil
}

// run is the whole history.
func (s *sim) run() {
	w, plan := s.world, s.world.plan
	s.add("admin", true, s.adminMain)
	for i := range plan.masters {
		s.add("master-"+itoa(i+1), false, s.masterMain)
	}
	for i := range plan.executors {
		s.add("exec-"+itoa(i+1), false, s.executorMain)
	}
	for i := range plan.writers {
		s.add("writer-"+itoa(i+1), true, s.writerMain(i))
	}
	s.add("janitor", true, s.janitorMain)
	s.add("operator", false, s.operatorMain)
	if plan.foreign {
		s.add(foreignName, true, s.foreignMain)
	}
	for i := range plan.rivals {
		s.add("server-"+itoa(i+1), false, s.rivalMain)
	}
	for _, i := range plan.incidents {
		if !plan.off[i.id] {
			w.submit(i.id, i.at, func() { s.happen(i) })
		}
	}
	if plan.night > 0 {
		w.submit("night falls", plan.night, s.nightFalls)
	}
	w.submit("the load stops", plan.load, func() { s.stop.Store(true) })
	w.submit("everything heals", plan.heals, s.heal)
	landed := plan.heals + 2*landMax

	var looked, supervised, planned time.Duration
	repaired := false
	w.run(func() bool {
		now := w.now()
		if w.failed() {
			return true
		}
		if now-supervised > superviseEvery {
			supervised = now
			s.supervise()
		}
		if now < landed || now-looked < time.Second {
			return false
		}
		looked = now
		if !s.loadEnded() {
			if now > landed+patienceMax {
				s.restoreRecords() // the load may wait for a table that nobody can read
			}
			return false
		}
		pending := s.pending(plan.heals)
		switch {
		case pending == "" && (repaired || !s.broken()):
			return true
		case pending == "":
			repaired, landed = true, now
		case now > landed+quietMax:
			w.fail("%w after %s: %s", errNotQuiet, quietMax, pending)
			return true
		}
		if repaired && now-planned > 2*repairEvery {
			planned = now
			s.planRepairs()
		}
		return false
	})
	s.end()
	if !w.failed() {
		s.checker.final()
	}
}

// broken says whether there is something that only a person can repair.
func (s *sim) broken() bool {
	if len(s.repairs.damages) > 0 {
		return true
	}
	for _, t := range s.checker.tables {
		for shard := range s.checker.failures[t.name] {
			if s.stuck(t, shard) {
				return true
			}
		}
	}
	return false
}

// pending says what is not quiet yet. What is broken may stand still until it is repaired, and etcd says that it does.
func (s *sim) pending(healed time.Duration) string {
	pending := s.checker.pending(func(t *tableState, shard string) bool { return !s.repairs.begun && s.concerned(t, shard) })
	if pending == "" && !s.repairs.begun {
		pending = s.unnoticed()
	}
	if pending == "" {
		pending = s.idle(healed)
	}
	return pending
}

// end stops every process and waits for it.
func (s *sim) end() {
	w := s.world
	s.stop.Store(true)
	s.heal()
	s.roles = nil
	for _, p := range s.all {
		p.cancel(context.Canceled)
	}
	deadline := w.now() + stopMax
	w.run(func() bool {
		for _, p := range s.all {
			select {
			case <-p.ended:
			default:
				if w.now() > deadline {
					w.fail("%s does not end", p.name)
					return true
				}
				return false
			}
		}
		return true
	})
	for _, p := range s.all {
		p.kill()
	}
	s.etcd.Close()
	// What is still under way ends at nobody.
	synctest.Wait()
}

func (s *sim) result() Result {
	w := s.world
	r := Result{Seed: w.seed, Failures: w.failures, Trace: w.trace.String(), Hash: w.trace.hash, Events: w.happened, Virtual: w.now(), Faults: w.plan.fired}
	for _, t := range s.checker.tables {
		r.Commits += int(t.version)
	}
	r.Rows = len(s.checker.books.acked)
	return r
}

// add makes a role and begins its first life.
func (s *sim) add(name string, once bool, main func(p *process) error) {
	r := &role{name: name, main: main, once: once}
	s.roles = append(s.roles, r)
	s.begin(r)
}

func (s *sim) begin(r *role) {
	r.lives++
	r.restart = 0
	skew := skewOf(s.world.draw(r.name + " clock")) // it is the machine's, so every life has the same
	r.now = s.world.spawn(r.name, r.lives, skew, r.main)
	s.all = append(s.all, r.now)
}

// supervise restarts what has ended, after a while.
func (s *sim) supervise() {
	for _, r := range s.roles {
		ended := false
		select {
		case <-r.now.ended:
			ended = !r.once || r.now.isDead()
		case <-r.now.dead:
			ended = true
		default:
		}
		switch {
		case !ended:
		case r.restart == 0 && s.morning > s.world.now():
			r.restart = s.morning
			s.world.submit(r.name+" restarts", r.restart-s.world.now(), func() {})
		case r.restart == 0:
			r.restart = s.world.now() + between(s.world.draw(fmt.Sprintf("%s restart %d", r.name, r.lives)), 200*time.Millisecond, 30*time.Second)
			s.world.submit(r.name+" restarts", r.restart-s.world.now(), func() {})
		case s.world.now() >= r.restart:
			s.world.trace.say(r.name, "starts again")
			s.begin(r)
		}
	}
}

func (s *sim) loadEnded() bool {
	for _, r := range s.roles {
		if r.once {
			if r.now.isDead() {
				return false
			}
			select {
			case <-r.now.ended:
			default:
				return false
			}
		}
	}
	return true
}

// happen is one incident.
func (s *sim) happen(i incident) {
	w := s.world
	if w.plan.healed {
		return
	}
	w.plan.fired = append(w.plan.fired, i.id)
	p := s.roles[i.who%len(s.roles)].now
	switch i.kind {
	case "wipe":
		w.trace.say("etcd", "loses everything")
		s.checker.wipe()
		s.lives++
		s.etcd.Wipe(1+s.lives, revisionFirst>>s.lives)
		return
	case "compact":
		w.trace.say("etcd", "is compacted")
		_ = s.etcd.Compact(0) // already compacted there
		return
	case "break":
		w.trace.say("etcd", "breaks all watches")
		s.etcd.Break()
		return
	case "full":
		w.trace.say("etcd", "is out of space for %s", i.last)
		s.etcd.Fill(true)
		w.submit(i.id+" ends", i.last, func() { s.etcd.Fill(false) })
		return
	}
	if strings.HasPrefix(i.kind, "damage") {
		s.damage(i)
		return
	}
	if i.kind == "sleep" || i.kind == "amid" {
		p = s.role("exec-" + itoa(1+i.who%w.plan.executors))
	}
	if !p.alive() {
		return
	}
	switch i.kind {
	case "crash":
		p.crash()
	case "stop":
		if !s.roles[i.who%len(s.roles)].once {
			w.trace.say(p.name, "is told to stop")
			p.cancel(context.Canceled)
		}
	case "amid":
		p.amid = i.last
	case "pause", "sleep":
		p.pause(i.last)
	case "cut store":
		p.cutFrom(toStore, i.last)
	case "cut etcd":
		p.cutFrom(toEtcd, i.last)
	}
}

// role is the life of a role that there is.
func (s *sim) role(name string) *process {
	return s.roles[slices.IndexFunc(s.roles, func(r *role) bool { return r.name == name })].now
}

// nightFalls switches everything off.
func (s *sim) nightFalls() {
	s.world.trace.say("world", "everything is switched off for %s", s.world.plan.nightFor)
	s.morning = s.world.now() + s.world.plan.nightFor
	for _, r := range s.roles {
		if r.now.alive() {
			r.now.kill()
		}
	}
}

// heal ends all faults.
func (s *sim) heal() {
	s.world.trace.say("world", "all faults heal")
	s.world.plan.healed = true
	s.etcd.Fill(false)
	for _, p := range s.all {
		p.heal()
	}
}

func (s *sim) masterMain(p *process) error {
	client, err := s.dial(p)
	if err != nil {
		return err
	}
	defer client.Close()
	m, err := master.New(master.Config{
		ID: p.name, Cluster: "sim", Slots: s.world.plan.slots, Keys: keys, Client: client, Store: s.storeOf(p), Clock: p.clock, Random: p.random, Log: s.log(p),
	})
	if err != nil {
		return err
	}
	return m.Run(p.ctx)
}

func (s *sim) executorMain(p *process) error {
	client, err := s.dial(p)
	if err != nil {
		return err
	}
	defer client.Close()
	slots := 1 + s.world.draw(p.name+" slots").IntN(2)
	e, err := executor.New(executor.Config{ID: p.name, Slots: slots, Memory: int64(slots) * executor.MemoryMin}, executor.Deps{
		Client: client, Keys: keys, Store: s.storeOf(p), Clock: p.clock, Random: p.random, Mem: memory.DefaultAllocator, Log: s.log(p),
		Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	return e.Run(p.ctx, nil)
}

// janitorMain cleans up, compacts and writes checkpoints without a turn, whenever it likes, as an executor does that has lost its
// turns and does not know it yet.
func (s *sim) janitorMain(p *process) error {
	r := rand.New(s.world.draw(fmt.Sprintf("%s life %d", p.name, p.life)))
	d := maintain.Deps{Store: s.storeOf(p), Clock: p.clock, Random: p.random, Log: s.log(p)}
	for !s.stopped(p) {
		if p.clock.Sleep(p.ctx, between(r, time.Second, 40*time.Second)) != nil {
			return nil
		}
		t := s.world.plan.tables[r.IntN(len(s.world.plan.tables))]
		switch r.IntN(4) {
		case 0:
			_, _ = maintain.Checkpoint(p.ctx, d, t.name)
		case 1:
			_, _ = merge.Compact(p.ctx, merge.Deps{
				Store: d.Store, Clock: d.Clock, Random: d.Random, Mem: memory.DefaultAllocator, Log: d.Log,
			}, merge.CompactRequest{Table: t.name, Execution: random.ID(p.random), Budget: executor.MemoryMin})
		default:
			_, _ = maintain.Cleanup(p.ctx, d, t.name)
		}
	}
	return nil
}
