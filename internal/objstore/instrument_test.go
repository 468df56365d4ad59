package objstore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/storetest"
)

func TestOperationsAreCountedByKindAndOutcome(t *testing.T) {
	ctx := t.Context()
	reg := prometheus.NewRegistry()
	for range 2 { // two stores, one registry
		faults := wrap(t, objstore.NewMemory(clock.System()), "put-if-absent k #3: throttle\nget k #2: throttle")
		s, err := objstore.Instrument(faults, reg)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.PutIfAbsent(ctx, "k", nil)
		}
		for range 2 {
			_, _, _ = s.Get(ctx, "k")
		}
		_, _ = s.Head(ctx, "gone")
		for _, complete := range []bool{true, false} {
			u, err := s.Create(ctx, "up")
			if err != nil {
				t.Fatal(err)
			}
			if complete {
				_, _ = u.Complete(ctx)
			}
			_ = u.Abort(ctx) // after the completion it sends nothing
		}
	}
	want := []string{
		"abort ok 2", "complete ok 2", "create ok 4", "get ok 2", "get throttled 2", "head not_found 2",
		"put-if-absent applied 2", "put-if-absent refused 2", "put-if-absent unknown 2",
	}
	if got := counters(t, reg, "tidemark_objstore_operations_total"); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// counters returns the values of a counter as "label label value", sorted.
func counters(t *testing.T, reg *prometheus.Registry, name string) []string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			// Labels are sorted by name: op first.
			got = append(got, fmt.Sprintf("%s %s %v", m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue(), m.GetCounter().GetValue()))
		}
	}
	slices.Sort(got)
	return got
}

func TestAnInstrumentedStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store {
		s, err := objstore.Instrument(objstore.NewMemory(clock.System()), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
