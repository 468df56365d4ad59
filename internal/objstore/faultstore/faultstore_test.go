package faultstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
)

func wrap(t *testing.T, script string) (*faultstore.Store, *objstore.Memory) {
	t.Helper()
	m := objstore.NewMemory(clock.System())
	s, err := faultstore.Wrap(m, clock.System(), script)
	if err != nil {
		t.Fatal(err)
	}
	return s, m
}

func TestABadScriptNamesEveryBadLine(t *testing.T) {
	_, err := faultstore.Wrap(nil, nil, `
# a comment
put-if-absent a/* #2: unknown, lands after 3 ops
put *: refuse
get *
get k: unknown, applied
any * #0: refuse
any * #3-2: refuse
any * 2: refuse
any * #1+ x: refuse
any *: explode
any *: unknown
any *: hang, lands after 0 ops
any *: slow molasses
`)
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		`line 4: unknown operation "put"`, `line 5: "get *" has no fault`, `line 6: get changes nothing, so it cannot land`,
		`line 7: "#0" is not a count`, `line 8: "#3-2" is not a count`, `line 9: "2" is not a count`,
		`line 10: "any * #1+ x" is not an operation, a pattern and perhaps a count`, `line 11: unknown fault "explode"`,
		`line 12: "unknown" must say what becomes of the request`, `line 13: unknown landing "lands after 0 ops"`,
		`line 14: "molasses" is not a duration`,
	}
	got := strings.Split(strings.TrimPrefix(err.Error(), "fault script: "), "\n")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestAPatternPicksKeysAndACountPicksOperations(t *testing.T) {
	for _, c := range []struct{ pattern, key string }{
		{"*", "a/b"}, {"a/*", "a/b/c"}, {"*/c", "a/b/c"}, {"a*c", "abbc"}, {"a*b*c", "a.b.b.c"}, {"a/b", "a/b"}, {"**", "x"},
	} {
		s, _ := wrap(t, "head "+c.pattern+": refuse")
		if _, err := s.Head(t.Context(), c.key); !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("%q should match %q", c.pattern, c.key)
		}
	}
	for _, c := range []struct{ pattern, key string }{
		{"a/*", "b/a/c"}, {"*/c", "a/c/d"}, {"a*c", "ab"}, {"a", "ab"}, {"ab*ba", "aba"},
	} {
		s, _ := wrap(t, "head "+c.pattern+": refuse")
		if _, err := s.Head(t.Context(), c.key); errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("%q should not match %q", c.pattern, c.key)
		}
	}
	for count, want := range map[string]string{"": "xxxxxx", "#2": ".x....", "#2-4": ".xxx..", "#5+": "....xx"} {
		s, _ := wrap(t, "head k "+count+": refuse")
		got := ""
		for range 6 {
			_, _, _ = s.Get(t.Context(), "k") // another operation
			mark := "."
			if _, err := s.Head(t.Context(), "k"); errors.Is(err, faultstore.ErrInjected) {
				mark = "x"
			}
			got += mark
		}
		if got != want {
			t.Errorf("%q picks %s, want %s", count, got, want)
		}
	}
}

func TestTheFirstRuleDecidesAndUnusedRulesAreKnown(t *testing.T) {
	s, _ := wrap(t, "head k #1: refuse\nhead *: throttle\nget k: refuse")
	_, first := s.Head(t.Context(), "k")
	_, second := s.Head(t.Context(), "k")
	if objstore.CodeOf(first) != objstore.CodeDenied || objstore.CodeOf(second) != objstore.CodeThrottled {
		t.Error(first, second)
	}
	if unused := s.Unused(); len(unused) != 1 || unused[0] != "get k: refuse" {
		t.Errorf("%q", unused)
	}
	s.Clear()
	if _, err := s.Head(t.Context(), "k"); !errors.Is(err, objstore.ErrNotFound) {
		t.Error(err)
	}
}

func TestALateRequestIgnoresItsSendersEndAndItsFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		s, m := wrap(t, "any late*: hang, lands when told")
		scope := objstore.NewScope(s, c)
		u, err := scope.Create(t.Context(), "upload")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := s.Add("complete upload: hang, lands when told"); err != nil {
			t.Fatal(err)
		}
		done := make(chan bool, 2)
		go func() {
			r := scope.PutIfAbsent(t.Context(), "late/put", []byte("x"))
			done <- r.Outcome == objstore.Unknown
		}()
		go func() {
			_, err := u.Complete(t.Context())
			done <- errors.Is(err, objstore.ErrFenced)
		}()
		synctest.Wait()
		scope.Fence(errors.New("lost"))
		for range 2 {
			if !<-done {
				t.Error("a hung request did not end as it should")
			}
		}
		if n := s.Land(); n != 2 {
			t.Errorf("%d requests landed", n)
		}
		for _, key := range []string{"late/put", "upload"} {
			if _, err := m.Head(t.Context(), key); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestASlowRequestArrivesLateOrNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := wrap(t, "put-if-absent *: slow 90s")
		start := time.Now()
		if r := s.PutIfAbsent(t.Context(), "a", nil); r.Outcome != objstore.Applied || time.Since(start) != 90*time.Second {
			t.Errorf("%+v after %v", r, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := s.PutIfAbsent(ctx, "b", nil); r.Outcome != objstore.Unknown {
			t.Errorf("%+v", r)
		}
		if _, err := m.Head(t.Context(), "b"); !errors.Is(err, objstore.ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestFaultsReachEveryOperation(t *testing.T) {
	s, _ := wrap(t, "any faulty*: refuse")
	ctx := t.Context()
	_, _, getErr := s.Get(ctx, "faulty")
	_, rangeErr := s.GetRange(ctx, "faulty", 0, 1)
	_, headErr := s.Head(ctx, "faulty")
	_, listErr := s.List(ctx, objstore.ListRequest{Prefix: "faulty"})
	_, createErr := s.Create(ctx, "faulty")
	u, err := s.Create(ctx, "up")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add("any up: throttle"); err != nil {
		t.Fatal(err)
	}
	_, writeErr := u.Write([]byte("x"))
	_, completeErr := u.Complete(ctx)
	for i, err := range []error{
		getErr, rangeErr, headErr, listErr, createErr, writeErr, completeErr, u.Abort(ctx), s.Delete(ctx, "faulty"),
		s.PutIfAbsent(ctx, "faulty", nil).Err, s.ReplaceIfMatch(ctx, "faulty", nil, "").Err,
	} {
		if !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func FuzzAScriptIsReadOrRefused(f *testing.F) {
	f.Add("put-if-absent flights/_delta_log/* #2: unknown, lands after 3 ops")
	f.Add("any * #1-2: slow 3s\n# x\nget k: hang, never lands")
	f.Fuzz(func(t *testing.T, script string) {
		s, err := faultstore.Wrap(objstore.NewMemory(clock.System()), clock.System(), script)
		if err == nil && len(s.Unused()) > strings.Count(script, "\n")+1 {
			t.Error("more rules than lines")
		}
	})
}
