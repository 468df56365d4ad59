package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
	"tidemark/internal/random"
	"tidemark/internal/table"
)

var faults = []string{
	"fail before send", "refuse", "throttle", "unknown, applied", "unknown, lands after 1 ops", "unknown, lands after 3 ops",
	"unknown, lands after 10 ops", "unknown, lands when told", "unknown, never lands", "hang, applied", "hang, never lands",
}

func faulty(t *testing.T, inner objstore.Store, script string) *faultstore.Store {
	t.Helper()
	s, err := faultstore.Wrap(inner, clock.System(), script)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// patience is how long the caller waits for one call, on the clock of the bubble.
const patience = time.Minute

// story is what happened to one writer, as its caller saw it.
type story struct {
	acknowledged []int64 // ids
	unsealed     []int64 // handed back as such
	unknown      []int64 // never acknowledged and never handed back, or in doubt
}

// TestWhateverFailsWhereverEveryAcknowledgedRowIsThereOnceAndNoOtherByHalf runs claim, append, seal, append, seal. For
// each fault and each store operation it happens at, the writer goes on, or dies at that very operation. Then a fresh
// writer continues, what was delayed lands, and the rows of the shard are compared with what the first writer was told.
func TestWhateverFailsWhereverEveryAcknowledgedRowIsThereOnceAndNoOtherByHalf(t *testing.T) {
	for _, fault := range faults {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s dies=%t", fault, dies), func(t *testing.T) {
				points := 0
				for at, more := 1, true; more; at++ {
					synctest.Test(t, func(t *testing.T) { more = faultAt(t, fault, at, dies) })
					points = at
				}
				if points < 15 {
					t.Errorf("only %d operations were tried", points)
				}
			})
		}
	}
}

func faultAt(t *testing.T, fault string, at int, dies bool) bool {
	inner := objstore.NewMemory(clock.System())
	tbl := createTable(t, inner, "events", eventsSchema, table.CreateOptions{})
	rule := fmt.Sprintf("any * #%d: %s", at, fault)
	script := rule
	if dies {
		script += fmt.Sprintf("\nany * #%d+: fail before send", at+1)
	}
	s := faulty(t, inner, script)
	told := appendAndSealTwice(t, Deps{Store: s, Random: random.Seeded(1)})
	happened := !slices.Contains(s.Unused(), rule)

	second := mustClaim(t, Config{Label: "second"}, Deps{Store: inner, Random: random.Seeded(2)})
	mustAppend(t, second, ids(t, 1000, 1))
	mustSeal(t, second)
	s.Land()
	mustAppend(t, second, ids(t, 2000, 1))
	mustSeal(t, second)

	count := map[int64]int{}
	m := latest(t, inner, tbl, "rollout-0")
	for i, generation := range read(t, inner, tbl, "rollout-0") {
		if g := m.Generations[i]; g.Number != uint64(i+1) {
			t.Errorf("generation %d stands at %d", g.Number, i+1)
		}
		for row := range strings.Lines(generation) {
			var id int64
			if _, err := fmt.Sscanf(row, `{"id":%d,`, &id); err != nil {
				t.Fatal(row, err)
			}
			count[id]++
		}
	}
	problem := ""
	for _, id := range append(slices.Clone(told.acknowledged), 1000, 2000) {
		if count[id] != 1 {
			problem = fmt.Sprintf("acknowledged row %d is there %d times", id, count[id])
		}
	}
	for _, id := range told.unsealed {
		if count[id] != 0 {
			problem = fmt.Sprintf("row %d was handed back as unsealed and is there %d times", id, count[id])
		}
	}
	for _, id := range told.unknown {
		if count[id] > 1 || count[id] != count[id-id%100] {
			problem = fmt.Sprintf("row %d, whose seal was never acknowledged, is there %d times, the first of its record %d times", id, count[id], count[id-id%100])
		}
	}
	if problem != "" {
		t.Errorf("%s at operation %d, dies %t: %s\n%s", fault, at, dies, problem, strings.Join(s.Trace(), "\n"))
	}
	return happened
}

// appendAndSealTwice appends the records 100..102 and 200..202, each sealed on its own, trying each step a few times as a
// careful caller would.
func appendAndSealTwice(t *testing.T, d Deps) story {
	var w *Writer
	for range 3 {
		var err error
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		w, err = ClaimWith(ctx, Config{Table: "events", Shard: "rollout-0", Label: "first"}, d)
		cancel()
		if err == nil {
			break
		}
	}
	var told story
	if w == nil {
		return told
	}
	var waiting []int64
	for _, first := range []int64{100, 200} {
		mustAppend(t, w, ids(t, int(first), 3))
		waiting = append(waiting, first, first+1, first+2)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			_, err := w.Seal(ctx)
			cancel()
			if err == nil {
				told.acknowledged, waiting = append(told.acknowledged, waiting...), nil
				break
			}
			var fenced *FencedError
			if errors.As(err, &fenced) {
				t.Fatalf("nobody else was there: %v", err)
			}
		}
	}
	unsealed, inDoubt, err := w.Abandon()
	if err != nil {
		t.Fatal(err)
	}
	told.unsealed, told.unknown = idsOf(unsealed), idsOf(inDoubt)
	if len(told.unsealed)+len(told.unknown) != len(waiting) {
		t.Fatalf("%v are waiting; handed back %v and, in doubt, %v", waiting, told.unsealed, told.unknown)
	}
	return told
}

func idsOf(records []arrow.Record) []int64 {
	var all []int64
	for _, r := range records {
		all = append(all, r.Column(0).(*array.Int64).Int64Values()...)
	}
	return all
}

func TestASealWhoseAnswerWasLostFollowedByATrimSealsTheRowsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := objstore.NewMemory(clock.System())
		tbl := createTable(t, inner, "events", eventsSchema, table.CreateOptions{})
		s := faulty(t, inner, "")
		w := mustClaim(t, Config{}, Deps{Store: s})
		mustAppend(t, w, ids(t, 1, 3))
		if err := s.Add("put-if-absent */manifest/*: unknown, applied\nlist */manifest/*: throttle\nget */manifest/*: throttle"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Seal(t.Context()); !errors.Is(err, ErrInDoubt) {
			t.Fatalf("nobody can know yet: %v", err)
		}
		mustAppend(t, w, ids(t, 4, 2))
		trimTo(t, inner, tbl, "rollout-0", 1)
		s.Clear()
		sealed := mustSeal(t, w)
		if sealed.Generation != 2 || sealed.Rows != 2 || sealed.Settled != 1 {
			t.Fatalf("%+v", sealed)
		}
		m := latest(t, inner, tbl, "rollout-0")
		if m.Rows != 5 || m.SealedThrough != 2 || m.TrimmedRows != 3 {
			t.Fatalf("%+v", m)
		}
	})
}

func TestAStalledWriterWhoseSealLandsBelowTheBoundaryIsToldThatItIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := objstore.NewMemory(clock.System())
		tbl := createTable(t, inner, "events", eventsSchema, table.CreateOptions{})
		s := faulty(t, inner, "")
		stalled := mustClaim(t, Config{Label: "stalled"}, Deps{Store: s})
		mustAppend(t, stalled, ids(t, 1, 3))
		if err := s.Add("put-if-absent */manifest/*: unknown, lands when told"); err != nil {
			t.Fatal(err)
		}
		if _, err := stalled.Seal(t.Context()); !errors.Is(err, ErrInDoubt) {
			t.Fatal(err)
		}
		live := mustClaim(t, Config{Label: "live"}, Deps{Store: inner})
		for i := range 30 {
			mustAppend(t, live, ids(t, 100+i, 1))
			mustSeal(t, live)
		}
		trimTo(t, inner, tbl, "rollout-0", 20)
		if deleted := cleanChain(t, inner, tbl, "rollout-0"); deleted == 0 {
			t.Fatal("nothing was deleted")
		}
		if s.Land() == 0 {
			t.Fatal("nothing was in flight")
		}
		s.Clear()
		var fenced *FencedError
		if _, err := stalled.Seal(t.Context()); !errors.As(err, &fenced) || countRows(fenced.Unsealed) != 3 || len(fenced.InDoubt) != 0 {
			t.Fatalf("%v", err)
		}
		mustAppend(t, live, ids(t, 500, 1))
		if sealed := mustSeal(t, live); sealed.Generation != 31 {
			t.Fatalf("%+v", sealed)
		}
	})
}

func TestRowsOfASealThatNobodyCanTellAboutComeBackAsInDoubtAndNeverAsUnsealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := objstore.NewMemory(clock.System())
		tbl := createTable(t, inner, "events", eventsSchema, table.CreateOptions{})
		s := faulty(t, inner, "")
		w := mustClaim(t, Config{}, Deps{Store: s})
		mustAppend(t, w, ids(t, 1, 3))
		if err := s.Add("put-if-absent */manifest/*: unknown, applied\nlist */manifest/*: throttle\nget */manifest/*: throttle"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Seal(t.Context()); !errors.Is(err, ErrInDoubt) {
			t.Fatal(err)
		}
		mustAppend(t, w, ids(t, 4, 2))
		trimTo(t, inner, tbl, "rollout-0", 1)
		for range 18 {
			mustClaim(t, Config{Label: "next"}, Deps{Store: inner})
		}
		cleanChain(t, inner, tbl, "rollout-0")
		s.Clear()
		var fenced *FencedError
		if _, err := w.Seal(t.Context()); !errors.As(err, &fenced) {
			t.Fatal(err)
		}
		if unsealed, inDoubt := idsOf(fenced.Unsealed), idsOf(fenced.InDoubt); !slices.Equal(inDoubt, []int64{1, 2, 3}) || !slices.Equal(unsealed, []int64{4, 5}) {
			t.Fatalf("unsealed %v, in doubt %v", unsealed, inDoubt)
		}
	})
}
