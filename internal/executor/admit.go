package executor

import (
	"runtime"
	"time"

	"tidemark/internal/merge"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
)

// Admission: all executions share one budget.
//
//  1. What a unit needs is estimated from its record (merge.Need), before anything is claimed. It never falls when the
//     unit grows. The execution gets that much, and keeps to it.
//  2. A unit is claimed if what it needs is free, and a slot is. So an executor never holds a unit that it cannot start,
//     and what does not fit is left to others.
//  3. A unit that needs more than the whole budget gets the whole budget, alone: it makes more passes.
//  4. Small units would keep a large one waiting for ever. Once it is critical, and so the next to be served, an executor
//     claims nothing else until it fits. First does the one that stands first in the unit's ranking; the next ones follow
//     if the unit is still there after a while.

// roomStep is how long a critical unit waits for the executor before in its ranking to make room for it: as long as most
// executions take.
const roomStep = 5 * time.Second

// need is what a unit needs of this executor's budget.
func (e *Executor) need(u schedule.Unit) int64 {
	need := int64(MemoryMin)
	switch u.Kind {
	case schedule.KindMerge:
		need = merge.Need(merge.Load{Upsert: u.Upsert, Shards: u.Shards, Generations: u.Gens, Bytes: u.Bytes}, runtime.GOMAXPROCS(0))
	case schedule.KindCompact:
		need = merge.CompactNeed(runtime.GOMAXPROCS(0))
	}
	return min(max(need, MemoryMin), e.config.Memory)
}

// granted is what the running executions have of the budget.
func (e *Executor) granted() (granted int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.running {
		granted += x.budget
	}
	return granted
}

// admits says whether a unit's need is free.
func (e *Executor) admits(u schedule.Unit) bool { return e.need(u) <= e.config.Memory-e.granted() }

// fits says whether a unit may be claimed: it was not refused since the queue last changed, what it needs is free, and
// room is not being made for another one. One that cannot be read is for claim to refuse.
func (e *Executor) fits(entry ownership.ReadyKV, room string) bool {
	if e.isRefused(entry.Key) || room != "" && entry.Key != room {
		return false
	}
	unit, err := schedule.ParseUnit(entry.Value)
	return err != nil || e.admits(unit)
}

// makeRoom is the key of the unit for which this executor must claim nothing else now; empty if there is none. If that
// may change by itself, it says when.
func (e *Executor) makeRoom() (key string, later time.Duration) {
	head, rank, waited, ok := e.queue.Head(e.isRefused)
	if !ok {
		return "", 0
	}
	unit, err := schedule.ParseUnit(head.Value)
	if err != nil || e.admits(unit) {
		return "", 0
	}
	if wait := time.Duration(rank)*roomStep - waited; wait > 0 {
		return "", wait
	}
	return head.Key, 0
}

// sooner is the earlier of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
