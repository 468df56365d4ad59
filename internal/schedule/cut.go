package schedule

import (
	"cmp"
	"math"
	"slices"

	"tidemark/internal/turnset"
)

// cut shares a due backlog out over units. A small backlog is one unit over every free group that has shards, so that what
// is sealed on them meanwhile is merged in the same commit; a group without shards would only cost its turn and its
// outcome, a third of all that a fleet of small tables writes to etcd. A big one becomes several units over disjoint groups of about equal weight,
// never more than max_parallelism together with the executions that run already.
//
// Cuts that are in the queue stay for as long as they do, so that executors see few changing keys: a group that has
// something new joins the lightest of them, and all are cut anew only when the backlog is worth more units or the table
// is allowed fewer. A new cut loses no place: the wait of a unit is that of its oldest generation.
func cut(in *Input, a *assessment) (units []Groups, ok bool) {
	capacity := int(in.Policy.MaxParallelism) - a.running
	if capacity <= 0 {
		return nil, false
	}
	want := max(1, min(in.Policy.unitsFor(a.free), capacity, a.countable.Len()))
	kept, covered := present(in, a)
	rest := a.countable &^ covered
	switch {
	case rest == 0 && want <= len(kept) && len(kept) <= capacity:
		return kept, true
	case want == 1 && len(kept) <= 1:
		return []Groups{a.available & a.populated}, true
	case want <= len(kept) && len(kept) <= capacity:
		return balance(in, a, rest, kept), true
	}
	return balance(in, a, a.countable, make([]Groups, want)), true
}

// unitsFor is how many units a backlog is worth.
func (p Policy) unitsFor(b Backlog) int {
	return int(min(math.Ceil(p.share(b)), GroupCount))
}

// share is a backlog in units.
func (p Policy) share(b Backlog) float64 {
	return max(float64(b.Bytes)/float64(p.UnitBytes), float64(b.Gens)/float64(p.UnitGenerations))
}

// present is the merge units in the queue that can stay: disjoint, over free groups only, each with something to do.
func present(in *Input, a *assessment) (kept []Groups, covered Groups) {
	for _, u := range in.Ready {
		if u.Kind != KindMerge || u.Groups&^a.available != 0 || u.Groups&covered != 0 || u.Groups&a.countable == 0 {
			continue
		}
		kept, covered = append(kept, u.Groups), covered|u.Groups
	}
	slices.Sort(kept)
	return kept, covered
}

// balance puts the heaviest group into the lightest unit, again and again. It changes units and returns it.
func balance(in *Input, a *assessment, groups Groups, units []Groups) []Groups {
	weight := func(set Groups) (w float64) {
		for _, g := range set.List() {
			w += in.Policy.share(a.groups[g].backlog)
		}
		return w
	}
	order := groups.List()
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(weight(turnset.Of(j)), weight(turnset.Of(i)))
	})
	for _, g := range order {
		lightest := 0
		for i := range units {
			if weight(units[i]) < weight(units[lightest]) {
				lightest = i
			}
		}
		units[lightest] |= turnset.Of(g)
	}
	return units
}
