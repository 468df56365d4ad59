package shardmanifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
)

func faulty(t *testing.T, inner objstore.Store, script string) *faultstore.Store {
	t.Helper()
	s, err := faultstore.Wrap(inner, clock.System(), script)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// meetingStore holds the first puts of several callers back until all of them have sent theirs.
type meetingStore struct {
	objstore.Store
	arrived *sync.WaitGroup
	first   *sync.Once
}

func (s meetingStore) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	s.first.Do(func() { s.arrived.Done(); s.arrived.Wait() })
	return s.Store.PutIfAbsent(ctx, key, body)
}

var lostAnswers = []string{"unknown, applied", "unknown, lands after 1 ops", "unknown, lands after 3 ops",
	"unknown, lands after 10 ops", "unknown, lands when told", "unknown, never lands"}

func TestOfTwoWritersThatClaimInTheSameInstantWithBothAnswersLostExactlyOneIsNotFenced(t *testing.T) {
	for _, one := range lostAnswers {
		for _, other := range lostAnswers {
			t.Run(one+"; "+other, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { claimTogether(t, one, other) })
			})
		}
	}
}

func claimTogether(t *testing.T, one, other string) {
	inner := objstore.NewMemory(clock.System())
	s := faulty(t, inner,
		fmt.Sprintf("put-if-absent * #1: %s\nput-if-absent * #2: %s\n", one, other))
	var arrived sync.WaitGroup
	arrived.Add(2)
	holds := make([]*Hold, 2)
	var group sync.WaitGroup
	for i := range holds {
		group.Go(func() {
			c := newChain(meetingStore{s, &arrived, new(sync.Once)}, uint64(i+1))
			h, err := c.Claim(t.Context(), ClaimOptions{Label: fmt.Sprint("writer-", i)})
			if err != nil && !errors.Is(err, ErrFenced) {
				t.Errorf("writer %d: %v", i, err)
			}
			holds[i] = h
		})
	}
	group.Wait()
	s.Land()
	var unfenced []int
	for i, h := range holds {
		if h == nil {
			continue
		}
		_, err := h.Seal(t.Context(), file(h, 1))
		if err == nil {
			unfenced = append(unfenced, i)
		} else if !errors.Is(err, ErrFenced) {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	if len(unfenced) != 1 || len(s.Unused()) > 0 {
		t.Fatalf("not fenced: %v; faults that did not happen: %q\n%s", unfenced, s.Unused(), strings.Join(s.Trace(), "\n"))
	}
	if m := mustLatest(t, newChain(inner, 9)); m.SealedThrough != 1 {
		t.Fatalf("%d generations", m.SealedThrough)
	}
}

func TestASealWhoseAnswerWasLostFollowedByATrimIsInOneGenerationOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := objstore.NewMemory(clock.System())
		s := faulty(t, inner, "")
		h := mustClaim(t, newChain(s, 1), "")
		if err := s.Add("put-if-absent *: unknown, applied\nlist *: throttle\nget *: throttle"); err != nil {
			t.Fatal(err)
		}
		g := file(h, 7)
		if _, err := h.Seal(t.Context(), g); !errors.Is(err, ErrInDoubt) || !h.Unsettled() {
			t.Fatalf("nobody can know yet: %v", err)
		}
		if _, err := h.Seal(t.Context(), file(h, 8)); !errors.Is(err, ErrUnsettled) {
			t.Fatalf("another generation was sealed first: %v", err)
		}
		if err := h.Close(t.Context()); !errors.Is(err, ErrUnsettled) {
			t.Fatalf("closed: %v", err)
		}
		if _, err := newChain(inner, 2).Trim(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		s.Clear()
		m, err := h.Seal(t.Context(), g)
		if err != nil || m.SealedThrough != 1 || m.Rows != 7 {
			t.Fatalf("%v; %+v", err, m)
		}
		if m = mustSeal(t, h, 1); m.SealedThrough != 2 || m.Rows != 8 || m.Generations[0].Number != 2 {
			t.Fatalf("the next one: %+v", m)
		}
	})
}

func TestAStalledSealThatLandsBelowTheBoundaryCountsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := objstore.NewMemory(clock.System())
		s := faulty(t, inner, "")
		stalled := mustClaim(t, newChain(s, 1), "stalled")
		if err := s.Add("put-if-absent *: unknown, lands when told"); err != nil {
			t.Fatal(err)
		}
		g := file(stalled, 5)
		if _, err := stalled.Seal(t.Context(), g); !errors.Is(err, ErrInDoubt) {
			t.Fatalf("nobody can know yet: %v", err)
		}
		cleaner := newChain(inner, 2)
		for i := range 40 {
			h := mustClaim(t, newChain(inner, uint64(10+i)), "")
			mustSeal(t, h, 1)
		}
		if _, err := cleaner.Trim(t.Context(), 40); err != nil {
			t.Fatal(err)
		}
		garbage, err := cleaner.Garbage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := cleaner.Clean(t.Context(), garbage); err != nil {
			t.Fatal(err)
		}
		if s.Land() == 0 {
			t.Fatal("nothing was in flight")
		}
		if _, _, err := inner.Get(t.Context(), stalled.Chain().manifestKey(2)); err != nil {
			t.Fatalf("the late put did not succeed: %v", err)
		}
		s.Clear()
		// More than sixteen claims later and with everything trimmed, nothing tells whether generation 1 was this one.
		var fenced *FencedError
		if _, err := stalled.Seal(t.Context(), g); !errors.As(err, &fenced) || !fenced.InDoubt {
			t.Fatalf("the stalled writer: %v", err)
		}
		if m := mustLatest(t, cleaner); m.SealedThrough != 40 || m.Rows != 40 {
			t.Fatalf("%d generations with %d rows", m.SealedThrough, m.Rows)
		}
	})
}

// TestWhateverFailsWhereverEveryAcknowledgedGenerationIsThereOnce runs claim, seal, seal. For each fault and each
// operation it happens at, the writer goes on, or dies at that very operation; then a fresh writer continues, what was
// delayed lands, and the chain is compared with what the first writer was told.
func TestWhateverFailsWhereverEveryAcknowledgedGenerationIsThereOnce(t *testing.T) {
	faults := append([]string{"fail before send", "refuse", "throttle", "hang, applied", "hang, never lands"}, lostAnswers...)
	for _, fault := range faults {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s dies=%t", fault, dies), func(t *testing.T) {
				for at := 1; ; at++ {
					more := true
					synctest.Test(t, func(t *testing.T) { more = faultAt(t, fault, at, dies) })
					if !more {
						break
					}
				}
			})
		}
	}
}

// faultAt reports whether there was an operation at that index.
func faultAt(t *testing.T, fault string, at int, dies bool) bool {
	script := fmt.Sprintf("any * #%d: %s\n", at, fault)
	if dies {
		script += fmt.Sprintf("any * #%d+: fail before send\n", at+1)
	}
	inner := objstore.NewMemory(clock.System())
	s := faulty(t, inner, script)
	told := sealTwice(t, newChain(s, 1))
	happened := !slices.Contains(s.Unused(), strings.TrimSpace(strings.Split(script, "\n")[0]))

	second := mustClaim(t, newChain(inner, 2), "second")
	mustSeal(t, second, 100)
	s.Land()
	mustSeal(t, second, 100)

	m := mustLatest(t, newChain(inner, 3))
	count := map[string]int{}
	var rows int64
	for _, g := range m.Generations {
		count[g.Path]++
		rows += g.Rows
	}
	if rows != m.Rows || count[""] > 0 {
		t.Errorf("%s at %d: %d rows in generations, %d in the manifest", fault, at, rows, m.Rows)
	}
	for path, settled := range told {
		if settled == "sealed" && count[path] != 1 || settled == "unsealed" && count[path] != 0 || count[path] > 1 {
			t.Errorf("%s at operation %d, dies %t: generation %s was %s and is there %d times\n%s",
				fault, at, dies, path, settled, count[path], strings.Join(s.Trace(), "\n"))
		}
	}
	return happened
}

// sealTwice claims and seals two generations, trying each step three times, and returns what it was told of each file.
func sealTwice(t *testing.T, c *Chain) map[string]string {
	told := map[string]string{}
	var h *Hold
	var err error
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		h, err = c.Claim(ctx, ClaimOptions{Label: "first"})
		cancel()
		if err == nil {
			break
		}
	}
	for range 2 {
		if h == nil {
			break
		}
		g := file(h, 1)
		told[g.Path] = "unsealed"
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := h.Seal(ctx, g)
			cancel()
			if err == nil {
				told[g.Path] = "sealed"
				break
			}
			if h.Unsettled() {
				told[g.Path] = "in doubt"
			} else {
				told[g.Path] = "unsealed"
			}
		}
		if h.Unsettled() {
			break
		}
	}
	return told
}
