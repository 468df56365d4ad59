package demand

import (
	"cmp"
	"slices"
)

// The join, step by step:
//
//  1. An event of an older incarnation changes nothing; one of a newer incarnation starts an empty record. Two table
//     ids under one incarnation cannot be; if they ever are, the greater id counts as the newer.
//  2. Each mark becomes the greater of the stored and the reported one, absent being less than any.
//  3. Seal times are united, the earliest winning for a generation.
//  4. Of those above the merged mark the lowest 63 and the highest are kept.
//
// Steps 1 to 3 are maxima and minima, hence independent of order and of repetition. Step 4 is too as long as no more
// than 64 times are known at once, and always keeps the times that are needed next.

const (
	// lowestTimesMax bounds the seal times kept from the merged mark upwards: this many single merges in a row leave
	// the age of the oldest pending generation known, with no help from the executor.
	lowestTimesMax = 63
	// timesMax adds the newest, from which an age of anything in between can be bounded.
	timesMax = lowestTimesMax + 1
)

// Event is what one source reports about one shard. A nil mark says nothing about that mark.
type Event struct {
	TableID     string
	Incarnation int64
	Sealed      *Mark
	Merged      *Mark
	// SealedTimes are seal times of any generations, in any order. One without a time is left out.
	SealedTimes []SealTime
	Source      Source
	AtMS        int64 // by the source's clock, milliseconds since 1970; shown to people only
}

// Join folds an event into a record and says whether that changed it. If not, the record is returned as it was.
func Join(r Record, ev Event) (joined Record, changed bool) {
	switch cmp.Or(cmp.Compare(ev.Incarnation, r.Incarnation), cmp.Compare(ev.TableID, r.TableID)) {
	case -1:
		return r, false
	case 1:
		joined = Record{TableID: ev.TableID, Incarnation: ev.Incarnation}
	default:
		joined = r
	}
	joined.Sealed = greater(joined.Sealed, ev.Sealed)
	joined.Merged = greater(joined.Merged, ev.Merged)
	joined.SealedTimes = joinTimes(joined.SealedTimes, ev.SealedTimes, joined.Merged)
	if r.V != 0 && joined.Equal(r) {
		return r, false
	}
	joined.V, joined.Source, joined.UpdatedMS = Format, ev.Source, ev.AtMS
	return joined, true
}

// greater returns the greater mark; a nil one is less than any. Marks are not changed after they were reported.
func greater(a, b *Mark) *Mark {
	if a == nil || b != nil && b.Compare(*a) > 0 {
		return b
	}
	return a
}

// joinTimes unites stored times, which are normal, with reported ones, which need not be.
func joinTimes(stored, reported []SealTime, merged *Mark) []SealTime {
	reported = normalTimes(reported)
	if len(reported) == 0 {
		return keptTimes(stored, merged)
	}
	united := make([]SealTime, 0, len(stored)+len(reported))
	for len(stored) > 0 && len(reported) > 0 {
		a, b := stored[0], reported[0]
		switch {
		case a.Gen < b.Gen:
			united, stored = append(united, a), stored[1:]
		case a.Gen > b.Gen:
			united, reported = append(united, b), reported[1:]
		default:
			united = append(united, SealTime{a.Gen, min(a.MS, b.MS)})
			stored, reported = stored[1:], reported[1:]
		}
	}
	united = append(append(united, stored...), reported...)
	return keptTimes(united, merged)
}

// normalTimes sorts by generation, keeps the earliest time of each and leaves out what is no time. The argument stays
// as it was.
func normalTimes(times []SealTime) []SealTime {
	normal := true
	for i, t := range times {
		if t.Gen == 0 || t.MS <= 0 || i > 0 && t.Gen <= times[i-1].Gen {
			normal = false
			break
		}
	}
	if normal {
		return times
	}
	sorted := make([]SealTime, 0, len(times))
	for _, t := range times {
		if t.Gen > 0 && t.MS > 0 {
			sorted = append(sorted, t)
		}
	}
	slices.SortFunc(sorted, func(a, b SealTime) int {
		return cmp.Or(cmp.Compare(a.Gen, b.Gen), cmp.Compare(a.MS, b.MS))
	})
	return slices.CompactFunc(sorted, func(a, b SealTime) bool { return a.Gen == b.Gen })
}

// keptTimes is what a record keeps of normal times: above the merged mark the lowest 63 and the newest.
func keptTimes(times []SealTime, merged *Mark) []SealTime {
	if merged != nil {
		first, found := slices.BinarySearchFunc(times, merged.Gen, func(t SealTime, gen uint64) int {
			return cmp.Compare(t.Gen, gen)
		})
		if found {
			first++
		}
		times = times[first:]
	}
	if len(times) == 0 {
		return nil
	}
	if len(times) > timesMax {
		kept := make([]SealTime, 0, timesMax)
		kept = append(kept, times[:lowestTimesMax]...)
		times = append(kept, times[len(times)-1])
	}
	return times
}
