package schedule

import (
	"cmp"
	"math"
	"slices"
)

// Decide plans one table:
//
//  1. Every shard is judged on its own; those that count are added up per group. (assess; linear in the shards)
//  2. The groups that are free and count make the table's backlog, score and class, or a tail.
//  3. Due maintenance becomes a unit on the log. After max_consecutive_merges it takes the merges' place in the order.
//  4. A due backlog is cut into units, at most max_parallelism together with those running.
//
// It has no side effect, and equal inputs give equal plans.
func Decide(in Input) Plan {
	a := assess(&in)
	p := Plan{Backlog: a.free, ScanSoon: a.unknown > 0, NextMS: a.next}
	for g := range p.Decisions {
		p.Decisions[g] = Decision{Groups: 1 << g, Code: a.groups[min(g, GroupCount-1)].code, Unit: -1}
	}
	for g := range a.groups {
		p.Decisions[g].UntilMS = a.groups[g].until
	}
	p.Score = in.Policy.Score(a.free, in.NowMS)
	p.Class, p.Due = in.Policy.Classify(a.free, in.NowMS)
	if in.Request != nil {
		p.Served = a.free.Gens == 0 && a.unknown == 0 && a.waiting == 0
	}
	if in.Paused {
		for g := range p.Decisions {
			p.Decisions[g] = Decision{Groups: 1 << g, Code: CodePaused, Unit: -1}
		}
		p.NextMS = 0
		return p
	}
	p.wakeAt(in.Policy.nextChange(a.free, in.NowMS))
	reason := p.dueBecause(&in, a.free)
	yields := p.planLog(&in, reason)
	switch {
	case a.free.Gens == 0:
	case !p.Due:
		p.mark(a.countable, CodeTail, in.Policy.nextChange(a.free, in.NowMS))
	case yields:
		p.mark(a.countable, CodeYields, 0)
	default:
		p.planMerges(&in, a, reason)
	}
	return p
}

// dueBecause applies a manual request to the verdict of the policy and names the reason.
func (p *Plan) dueBecause(in *Input, b Backlog) Code {
	if !p.Due && in.Request != nil && b.Gens > 0 {
		p.Due, p.Class = true, Merge
		if in.Request.Priority == "low" {
			p.Class = Low
		}
		return CodeRequested
	}
	switch {
	case p.Class == Merge:
		return CodeScore
	case b.Gens >= uint64(in.Policy.CriticalGenerations):
		return CodeGens
	}
	return CodeWaited
}

// planLog decides about the log and says whether the table's merges must let its maintenance go first.
func (p *Plan) planLog(in *Input, mergeReason Code) (yields bool) {
	d := &p.Decisions[GroupCount]
	d.Code = CodeCaughtUp
	if in.Log.Execution != "" {
		d.Code = CodeRunning
		return false
	}
	open := p.openUpkeep(in)
	if len(open) == 0 {
		return false
	}
	due := mostDue(open)
	score := due.Score
	unit := Unit{
		V: 1, Kind: due.Kind, Table: in.Table, TableID: in.TableID, Incarnation: in.Incarnation, Groups: Log, Class: Maintenance,
		SinceMS: settled(due.SinceMS, in, Log), Reason: CodeUpkeep, Note: due.Note,
	}
	waited := since(unit.SinceMS, in.NowMS)
	if due.Critical || waited >= in.Policy.MaxWait {
		unit.Class = Critical
	} else {
		p.wakeAt(unit.SinceMS + in.Policy.MaxWait.Milliseconds())
	}
	yields = p.Due && in.MergesInRow >= int(in.Policy.MaxConsecutiveMerges)
	if yields && p.Class <= unit.Class {
		// The table's next turn is its maintenance's, in the place that its merge would have had.
		unit.SinceMS = earliest(unit.SinceMS, p.Backlog.OldestMS)
		unit.Class, unit.Reason, score = p.Class, mergeReason, max(score, p.Score)
	}
	unit.Score, unit.Order = rounded(score), orderOf(unit.Class, score, unit.SinceMS)
	d.Code, d.Unit = unit.Reason, len(p.Units)
	p.Units = append(p.Units, unit)
	return yields
}

// openUpkeep is the maintenance that is due and that nothing holds back. Each kind backs off by itself, and waits by itself
// for storage to be read again after it was done.
func (p *Plan) openUpkeep(in *Input) (open []Due) {
	d, last := &p.Decisions[GroupCount], in.Log.Last
	for _, due := range in.Due {
		code, until := Code(""), int64(0)
		if last != nil {
			blockedUntil, blocked := last.upkeepBlock(due.Kind, in.Log.SeenMS, in.NowMS)
			heldUntil := last.upkeepHeldUntil(due.Kind, in.Log.SeenMS)
			switch {
			case blocked:
				code, until = CodeGroupWait, blockedUntil
			case in.NowMS < heldUntil && in.DueMS <= in.Log.SeenMS:
				code, until = CodeReleased, heldUntil
			}
		}
		if code == "" {
			open = append(open, due)
			continue
		}
		p.wakeAt(until)
		if weight(code) > weight(d.Code) {
			d.Code, d.UntilMS = code, until
		}
	}
	return open
}

// mostDue picks the maintenance that the log's one ready unit is for: what is critical first, then what takes seconds
// before a compaction, which may take minutes, then by score, then by kind so that the choice is the same everywhere.
func mostDue(all []Due) Due {
	return slices.MinFunc(all, func(a, b Due) int {
		return cmp.Or(
			-compareBool(a.Critical, b.Critical),
			compareBool(a.Kind == KindCompact, b.Kind == KindCompact),
			-cmp.Compare(a.Score, b.Score),
			cmp.Compare(a.Kind, b.Kind))
	})
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// planMerges turns a due backlog into units and gives each covered group its reason.
func (p *Plan) planMerges(in *Input, a *assessment, reason Code) {
	cuts, ok := cut(in, a)
	if !ok {
		p.mark(a.countable, CodeParallel, 0)
	}
	for _, groups := range cuts {
		var b Backlog
		for _, g := range groups.List() {
			if a.countable.Has(g) {
				b.add(a.groups[g].backlog)
			}
		}
		unit := Unit{
			V: 1, Kind: KindMerge, Table: in.Table, TableID: in.TableID, Incarnation: in.Incarnation, Groups: groups, Class: p.Class,
			Score: rounded(p.Score), SinceMS: settled(b.OldestMS, in, groups),
			Bytes: b.Bytes, Gens: b.Gens, Shards: b.Shards, Upsert: in.Upsert, Reason: reason,
		}
		if reason == CodeRequested {
			unit.By = in.Request.By
		}
		unit.Order = orderOf(unit.Class, p.Score, unit.SinceMS)
		for _, g := range groups.List() {
			p.Decisions[g].Unit = len(p.Units)
		}
		p.mark(groups&a.countable, reason, 0)
		p.Units = append(p.Units, unit)
	}
}

// mark gives every group of a set the same reason.
func (p *Plan) mark(groups Groups, code Code, untilMS int64) {
	for _, g := range groups.List() {
		p.Decisions[g].Code, p.Decisions[g].UntilMS = code, untilMS
	}
}

func (p *Plan) wakeAt(ms int64) { p.NextMS = earliest(p.NextMS, ms) }

// settled is a unit's beginning of wait. Where that is unknown or in the future it is now, and stays so for as long as
// the unit is queued, so that its key does not change with every pass.
func settled(oldestMS int64, in *Input, groups Groups) int64 {
	if oldestMS > 0 && oldestMS < in.NowMS {
		return oldestMS
	}
	ms := in.NowMS
	for _, u := range in.Ready {
		if u.Groups&groups != 0 && u.SinceMS > 0 {
			ms = min(ms, u.SinceMS)
		}
	}
	return ms
}

// rounded keeps a score's JSON short; three digits are for people, the order needs none.
func rounded(score float64) float64 {
	if math.IsNaN(score) || math.IsInf(score, 0) {
		return 0
	}
	return math.Round(score*1000) / 1000
}
