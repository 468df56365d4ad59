package scan

import (
	"slices"

	"tidemark/internal/demand"
	"tidemark/internal/shardmanifest"
)

// rememberedGensMax bounds what is remembered of one shard between scans. A shard with more pending is busy, and its
// manifest is read again by every scan: one request.
const rememberedGensMax = 64

// facts is what a scan needs of a manifest, and what it remembers instead of the manifest until the next scan.
type facts struct {
	version uint64
	retired bool
	sealed  demand.Mark
	trimmed demand.Mark
	gens    []gen // listed generations, ascending
	thin    bool  // gens are left out
}

// gen is a generation as far as demand is concerned.
type gen struct {
	mark     demand.Mark
	sealedMS int64
}

// factsOf digests a manifest.
func factsOf(m *shardmanifest.Manifest) facts {
	f := facts{
		version: m.Version,
		retired: m.State == shardmanifest.StateRetired,
		trimmed: demand.Mark{Gen: m.TrimmedThrough, Epoch: m.TrimmedEpoch, Bytes: m.TrimmedBytes, Rows: m.TrimmedRows},
		gens:    make([]gen, 0, len(m.Generations)),
	}
	f.sealed = f.trimmed
	for _, g := range m.Generations {
		f.sealed = demand.Mark{Gen: g.Number, Epoch: g.Epoch, Bytes: g.CumBytes, Rows: g.CumRows}
		f.gens = append(f.gens, gen{mark: f.sealed, sealedMS: g.SealedMS})
	}
	return f
}

// mark is the mark of a generation; false if the manifest is older than the generation, or does not list it any more.
func (f *facts) mark(number uint64) (demand.Mark, bool) {
	switch {
	case number == 0:
		return demand.Mark{}, true
	case number == f.trimmed.Gen:
		return f.trimmed, true
	case number == f.sealed.Gen:
		return f.sealed, true
	}
	i, ok := slices.BinarySearchFunc(f.gens, number, func(g gen, n uint64) int {
		return int(int64(g.mark.Gen) - int64(n))
	})
	if !ok {
		return demand.Mark{}, false
	}
	return f.gens[i].mark, true
}

// event is what storage shows of the shard at a merged mark that mark has found.
func (f *facts) event(tableID string, incarnation int64, merged demand.Mark, nowMS int64) demand.Event {
	sealed := f.sealed
	ev := demand.Event{
		TableID: tableID, Incarnation: incarnation, Source: demand.Scan, AtMS: nowMS, Sealed: &sealed, Merged: &merged,
	}
	pending := f.pending(merged.Gen)
	if len(pending) > rememberedGensMax {
		// A record keeps the lowest 63 above the merged mark and the newest.
		pending = append(slices.Clone(pending[:rememberedGensMax-1]), pending[len(pending)-1])
	}
	for _, g := range pending {
		ev.SealedTimes = append(ev.SealedTimes, demand.SealTime{Gen: g.mark.Gen, MS: g.sealedMS})
	}
	return ev
}

// pending is the listed generations above a merged mark.
func (f *facts) pending(merged uint64) []gen {
	i, _ := slices.BinarySearchFunc(f.gens, merged+1, func(g gen, n uint64) int {
		return int(int64(g.mark.Gen) - int64(n))
	})
	return f.gens[i:]
}

// remembered is the facts without what no later scan asks for, because marks only rise. Where even that is too much they
// are thin: good for telling a change, and nothing else.
func (f *facts) remembered(merged uint64) facts {
	slim := *f
	rest := f.pending(max(merged, 1) - 1)
	if len(rest) > rememberedGensMax {
		slim.gens, slim.thin = nil, true
	} else {
		slim.gens = slices.Clone(rest)
	}
	return slim
}
