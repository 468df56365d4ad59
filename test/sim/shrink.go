package sim

import (
	"maps"
	"slices"
	"testing"
)

// shrinkRunsMax and shrinkEventsMax bound how many runs a shrink takes, and how many events together.
const (
	shrinkRunsMax   = 60
	shrinkEventsMax = 2_000_000
)

// Shrink leaves out as many of a failing seed's faults as it can while the seed still fails, halves first, then single
// ones, and returns the last failing run.
func Shrink(t *testing.T, failing Result, o Options) Result {
	off := maps.Clone(o.Off)
	if off == nil {
		off = map[string]bool{}
	}
	runs, events := 0, 0
	fails := func(without []string) bool {
		if runs == shrinkRunsMax || events > shrinkEventsMax {
			return false
		}
		runs++
		try := o
		try.Off = maps.Clone(off)
		for _, id := range without {
			try.Off[id] = true
		}
		r := Run(t, failing.Seed, try)
		events += r.Events
		if len(r.Failures) == 0 {
			return false
		}
		off, failing = try.Off, r
		return true
	}
	for size := len(failing.Faults); size > 0; size /= 2 {
		// The faults of a run that has some left out may be others than before.
		for _, part := range slices.Collect(slices.Chunk(slices.Clone(failing.Faults), size)) {
			fails(part)
		}
	}
	return failing
}
