package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
)

func racingCreators(t *testing.T, s objstore.Store) {
	RaceCreators(t, s, 5, 8)
}

// RaceCreators lets so many creators loose on one key, for so many rounds, and checks that each round has one winner
// whose bytes are read.
func RaceCreators(t *testing.T, s objstore.Store, rounds, creators int) {
	for round := range rounds {
		key := fmt.Sprintf("race/%d", round)
		results := make([]objstore.Result, creators)
		var wg sync.WaitGroup
		for i := range creators {
			wg.Go(func() { results[i] = s.PutIfAbsent(t.Context(), key, []byte(strconv.Itoa(i))) })
		}
		wg.Wait()
		winner := -1
		for i, r := range results {
			switch {
			case r.Outcome == objstore.Applied && winner >= 0:
				t.Fatalf("round %d: both %d and %d won", round, winner, i)
			case r.Outcome == objstore.Applied:
				winner = i
			case r.Outcome != objstore.Refused || !errors.Is(r.Err, objstore.ErrExists):
				t.Fatalf("round %d: %v %v", round, r.Outcome, r.Err)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
		wantBody(t, s, key, strconv.Itoa(winner))
	}
}

// racingReplaces increments one counter from several sides.
func racingReplaces(t *testing.T, s objstore.Store) {
	const sides, increments = 4, 10
	must(t, s, "lock/counter", "0")
	var wg sync.WaitGroup
	for range sides {
		wg.Go(func() {
			for done := 0; done < increments; {
				body, info, err := s.Get(t.Context(), "lock/counter")
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(string(body))
				r := s.ReplaceIfMatch(t.Context(), "lock/counter", []byte(strconv.Itoa(n+1)), info.ETag)
				switch {
				case r.Outcome == objstore.Applied:
					done++
				case !errors.Is(r.Err, objstore.ErrMismatch):
					t.Error(r.Outcome, r.Err)
					return
				}
			}
		})
	}
	wg.Wait()
	wantBody(t, s, "lock/counter", strconv.Itoa(sides*increments))
}

// fencedScope pins that neither a fence nor a passed deadline lets anything through, parts and ends of uploads included.
func fencedScope(t *testing.T, s objstore.Store) {
	info := must(t, s, "k", "x")
	scope := objstore.NewScope(s, clock.System())
	u, err := scope.Create(t.Context(), "t/part")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	late := objstore.NewScope(s, clock.System())
	late.SetDeadline(0)
	scope.Fence(errors.New("lease lost"))
	for _, closed := range []*objstore.Scope{scope, late} {
		ctx := t.Context()
		wantRefused(t, closed.PutIfAbsent(ctx, "new", nil), objstore.ErrFenced)
		wantRefused(t, closed.ReplaceIfMatch(ctx, "k", nil, info.ETag), objstore.ErrFenced)
		_, _, getErr := closed.Get(ctx, "k")
		_, rangeErr := closed.GetRange(ctx, "k", 0, 1)
		_, headErr := closed.Head(ctx, "k")
		_, listErr := closed.List(ctx, objstore.ListRequest{})
		_, createErr := closed.Create(ctx, "c")
		for _, err := range []error{getErr, rangeErr, headErr, listErr, createErr, closed.Delete(ctx, "k"), closed.Err()} {
			if !errors.Is(err, objstore.ErrFenced) {
				t.Errorf("%v, want fenced", err)
			}
		}
	}
	_, writeErr := u.Write([]byte("y"))
	_, completeErr := u.Complete(t.Context())
	copyErr := objstore.CopyRange(u, "k", info.ETag, 0, 1)
	for _, err := range []error{writeErr, copyErr, completeErr, u.Abort(t.Context())} {
		if !errors.Is(err, objstore.ErrFenced) || objstore.CodeOf(err) != objstore.CodeFenced {
			t.Errorf("upload: %v, want fenced", err)
		}
	}
	if keys := all(t, s, ""); len(keys) != 1 {
		t.Errorf("there are %q, want k alone", keys)
	}
	wantBody(t, s, "k", "x")
}
