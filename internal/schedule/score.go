package schedule

import (
	"fmt"
	"math"
	"time"
)

// Class is the first part of the service order. Executors serve class 0 strictly from its head.
type Class int

const (
	// Critical work has waited max_wait, or its table has critical_generations pending. Oldest wait first.
	Critical Class = iota
	// Merge is a table whose score is 1 or more. Score in powers of two, then oldest.
	Merge
	// Maintenance is a due checkpoint, cleanup or compaction. Score in powers of two, then oldest.
	Maintenance
	// Low is what somebody asked for with low priority. Oldest first.
	Low
)

func (c Class) String() string {
	switch c {
	case Critical:
		return "critical"
	case Merge:
		return "merge"
	case Maintenance:
		return "maintenance"
	case Low:
		return "low"
	}
	return fmt.Sprintf("class(%d)", int(c))
}

// Backlog is what may be merged now of a shard, a group or a table. Times are milliseconds since 1970; 0 is unknown.
type Backlog struct {
	Shards   int    // shards with something pending
	Gens     uint64 // pending generations
	Bytes    int64  // pending bytes
	OldestMS int64  // seal time of the oldest pending generation, or an upper bound on it
	ExactMS  int64  // the earliest seal time that is exactly known
}

// add joins another part's backlog into b.
func (b *Backlog) add(o Backlog) {
	b.Shards += o.Shards
	b.Gens += o.Gens
	b.Bytes += o.Bytes
	b.OldestMS = earliest(b.OldestMS, o.OldestMS)
	b.ExactMS = earliest(b.ExactMS, o.ExactMS)
}

// Wait is how long the oldest pending generation has waited at least; 0 when that is unknown or in the future.
func (b Backlog) Wait(nowMS int64) time.Duration { return since(b.OldestMS, nowMS) }

// Score is page 3's merge_score. Only an exactly known age raises it.
func (p Policy) Score(b Backlog, nowMS int64) float64 {
	return p.base(b) * (1 + float64(since(b.ExactMS, nowMS))/float64(p.MaxAge))
}

// base is the score without its age.
func (p Policy) base(b Backlog) float64 {
	return max(float64(b.Gens)/float64(p.MinGenerations), float64(max(b.Bytes, 0))/float64(p.MinBytes))
}

// Classify says whether a backlog is due by itself and in which class; not due is a tail.
func (p Policy) Classify(b Backlog, nowMS int64) (c Class, due bool) {
	switch {
	case b.Gens == 0:
		return Merge, false
	case b.Gens >= uint64(p.CriticalGenerations), b.Wait(nowMS) >= p.MaxWait:
		return Critical, true
	default:
		return Merge, p.Score(b, nowMS) >= 1
	}
}

// nextChange is when the class or the key text of a backlog changes though nothing happens; 0 is never.
func (p Policy) nextChange(b Backlog, nowMS int64) int64 {
	if b.Gens == 0 {
		return 0
	}
	var next int64
	if b.OldestMS > 0 && b.Wait(nowMS) < p.MaxWait {
		next = b.OldestMS + p.MaxWait.Milliseconds()
	}
	if base := p.base(b); base > 0 && b.ExactMS > 0 {
		// The score reaches the next power of two (or 1) when 1 + age/max_age = target/base.
		target := 1.0
		if score := p.Score(b, nowMS); score >= 1 {
			target = math.Exp2(math.Floor(math.Log2(score)) + 1)
		}
		// Rounded down: a millisecond early costs one more look, and late would be late.
		if age := (target/base - 1) * float64(p.MaxAge.Milliseconds()); age < float64(week) {
			next = earliest(next, max(b.ExactMS+int64(age), nowMS+1))
		}
	}
	return next
}

// week bounds how far ahead a change of score is worth planning for, in milliseconds.
const week = int64(7 * 24 * time.Hour / time.Millisecond)

// Orders are decimal text of fixed width, so that byte order is service order. Fourteen digits of milliseconds last
// until the year 5138.
const orderWidth = 14

// orderByWait orders by the oldest wait alone.
func orderByWait(sinceMS int64) string {
	return fmt.Sprintf("%0*d", orderWidth, max(sinceMS, 0))
}

// orderByScore orders by score in powers of two, the highest first, then by the oldest wait.
func orderByScore(score float64, sinceMS int64) string {
	return fmt.Sprintf("%02d-%s", 63-magnitude(score), orderByWait(sinceMS))
}

// magnitude is the score's power of two, 0 for everything up to 1 and at most 63.
func magnitude(score float64) int {
	if !(score > 1) { // also not a number
		return 0
	}
	return min(int(math.Log2(min(score, math.MaxFloat64))), 63)
}

// orderOf is the key text of a unit of a class.
func orderOf(c Class, score float64, sinceMS int64) string {
	if c == Critical || c == Low {
		return orderByWait(sinceMS)
	}
	return orderByScore(score, sinceMS)
}

// earliest is the smaller of two times of which 0 is unknown.
func earliest(a, b int64) int64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// since is the time from ms to now; 0 when ms is unknown or in the future.
func since(ms, nowMS int64) time.Duration {
	if ms == 0 || ms >= nowMS {
		return 0
	}
	return time.Duration(min(nowMS-ms, week*520)) * time.Millisecond
}
