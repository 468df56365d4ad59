package demand

import "time"

// Age is how long the oldest pending generation of a shard has waited.
type Age struct {
	// Known is false when nothing is known to be pending, or no seal time is kept.
	Known bool
	// Exact says that Wait is the wait itself; else it is a floor: the generation was sealed no later than that.
	Exact bool
	Wait  time.Duration // not negative: a time in the future counts as now
}

// Age computes the age at a time in milliseconds since 1970. Promotion by age may use any known age; a score may use
// only an exact one.
func (r Record) Age(nowMS int64) Age {
	if n, _ := r.Pending(); n == 0 || len(r.SealedTimes) == 0 {
		return Age{}
	}
	// A generation is sealed no later than the ones that follow it, so the earliest time kept bounds the oldest
	// generation's from above even where its own was not kept. Times at or below the merged mark are never kept.
	earliest := r.SealedTimes[0].MS
	exact := r.SealedTimes[0].Gen == r.Merged.Gen+1
	if !exact {
		for _, t := range r.SealedTimes[1:] {
			earliest = min(earliest, t.MS)
		}
	}
	wait := time.Duration(max(0, nowMS-earliest)) * time.Millisecond
	return Age{Known: true, Exact: exact, Wait: wait}
}
