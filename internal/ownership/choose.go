package ownership

import (
	"time"

	"github.com/zeebo/xxh3"
)

// Choosing a unit without a contest for it:
//
//  1. The candidates are the free units that fit: of the critical class the first, of another the first few of the first
//     class that has any.
//  2. Rendezvous hashing ranks all live executors for every unit. The one of rank 0 reaches for it at once, and every
//     further rank a step later, so a unit whose favourites are busy does not wait for them.
//  3. Of the candidates whose time has come take the one for which the executor's rank is the best, then the first.
//
// Without the ranks every idle executor reaches for every unit that appears, and all but one in vain: each attempt is a
// txn in etcd's log.
const (
	// CriticalClass is the class that is claimed strictly from its head.
	CriticalClass = 0
	// At least spreadMin first entries of a class are candidates, and spreadEach for every executor: with four, all but
	// one executor in fifty are the favourite of one of them. More serves less in order.
	spreadMin, spreadEach = 16, 4
	// A step is as long as a claim and the news of it take: one round trip to etcd and one event. It follows what claims
	// have taken, within these bounds. rankMax bounds the wait at 50 ms however many executors there are, which is
	// little beside a merge.
	rankStepMin = 2 * time.Millisecond
	rankStepMax = 5 * time.Millisecond
	rankMax     = 10
	// stepShare is how much of the newest claim the step takes in.
	stepShare = 8
)

// Claimed tells the queue how long a claim took, of a unit of its choice, whether it succeeded or not. One that hung counts
// as a slow one.
func (q *ReadyQueue) Claimed(took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claim += (min(took, 4*rankStepMax) - q.claim) / stepShare
}

// step is how much longer each rank waits than the one before. q.mu is held.
func (q *ReadyQueue) step() time.Duration { return min(max(q.claim, rankStepMin), rankStepMax) }

// candidate is a unit, when it was first seen on the monotonic clock, and the executor's rank for it.
type candidate struct {
	ReadyKV
	seen time.Duration
	rank int
}

// Choose is the unit that an executor should claim now. If there is none, it may be worth asking again after a while,
// though nothing changes; 0 is no such time. A unit that the executor just failed to claim is left out by its fits.
func (q *ReadyQueue) Choose(fits func(ReadyKV) bool) (unit ReadyKV, ok bool, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return choose(q.candidates(fits), q.clock.Mono(), q.step())
}

// Head is the unit of the critical class that is to be served next, whether it fits or not: the executor's rank for it, and
// how long it has been seen waiting there. Units that skip names are left out.
func (q *ReadyQueue) Head(skip func(key string) bool) (unit ReadyKV, rank int, waited time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, key := range q.order {
		u := q.units[key]
		if u.Class != CriticalClass {
			break
		}
		if q.held[u.Table]&u.Turns == 0 && !skip(key) {
			return u.ReadyKV, u.rank, q.clock.Mono() - u.seen, true
		}
	}
	return ReadyKV{}, 0, 0, false
}

// rankAll ranks every unit anew, because executors came or went. q.mu is held.
func (q *ReadyQueue) rankAll() {
	for key, c := range q.units {
		c.rank = rankOf(key, q.executors, q.executor)
		q.units[key] = c
	}
}

// candidates are those of step 1. q.mu is held.
func (q *ReadyQueue) candidates(fits func(ReadyKV) bool) []candidate {
	var first []candidate
	spread := max(spreadMin, spreadEach*len(q.executors))
	for _, key := range q.order {
		u := q.units[key]
		if len(first) > 0 && u.Class != first[0].Class {
			break
		}
		if q.held[u.Table]&u.Turns != 0 || !fits(u.ReadyKV) {
			continue
		}
		first = append(first, u)
		if u.Class == CriticalClass || len(first) == spread {
			break
		}
	}
	return first
}

// choose is steps 2 and 3.
func choose(first []candidate, now, step time.Duration) (unit ReadyKV, ok bool, after time.Duration) {
	best := rankMax + 1
	for _, c := range first {
		if wait := c.seen + time.Duration(c.rank)*step - now; wait > 0 {
			if after == 0 || wait < after {
				after = wait
			}
			continue
		}
		if c.rank < best {
			unit, ok, best = c.ReadyKV, true, c.rank
		}
	}
	if ok {
		return unit, true, 0
	}
	return ReadyKV{}, false, after
}

// rankOf is how many others have the better claim to a unit, at most rankMax.
func rankOf(key string, executors map[string]int64, executor string) int {
	rank, own := 0, affinity(executor, key)
	for other := range executors {
		if other != executor && affinity(other, key) > own {
			if rank++; rank == rankMax {
				break
			}
		}
	}
	return rank
}

// affinity is the rendezvous hash: whoever has the greatest comes first.
func affinity(who, what string) uint64 { return xxh3.HashString(who + "\x00" + what) }
