package objstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
)

var errLost = errors.New("the lease is lost")

func wrap(t *testing.T, s objstore.Store, script string) *faultstore.Store {
	t.Helper()
	f, err := faultstore.Wrap(s, clock.System(), script)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAFenceCancelsAdmittedRequestsWhichEndAsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := wrap(t, objstore.NewMemory(clock.System()), "any *: hang, never lands")
		scope := objstore.NewScope(faults, clock.System())
		results := make(chan objstore.Result, 2)
		reads := make(chan error, 1)
		go func() { results <- scope.PutIfAbsent(t.Context(), "k", nil) }()
		go func() { results <- scope.ReplaceIfMatch(t.Context(), "k", nil, "e") }()
		go func() {
			_, _, err := scope.Get(t.Context(), "k")
			reads <- err
		}()
		synctest.Wait()
		scope.Fence(errLost)
		for range 2 {
			if r := <-results; r.Outcome != objstore.Unknown || !errors.Is(r.Err, objstore.ErrFenced) || !errors.Is(r.Err, errLost) {
				t.Errorf("%+v, want unknown, fenced", r)
			}
		}
		if err := <-reads; !errors.Is(err, errLost) {
			t.Errorf("get: %v", err)
		}
	})
}

func TestTheFirstFenceCounts(t *testing.T) {
	scope := objstore.NewScope(objstore.NewMemory(clock.System()), clock.System())
	if err := scope.Err(); err != nil {
		t.Fatal(err)
	}
	scope.Fence(errLost)
	scope.Fence(errors.New("another reason"))
	if err := scope.Err(); !errors.Is(err, errLost) {
		t.Errorf("%v", err)
	}
	scope.SetDeadline(time.Hour)
	if err := scope.Err(); !errors.Is(err, errLost) {
		t.Errorf("a deadline has opened a fenced scope: %v", err)
	}
}

func TestADeadlineClosesWithoutATimerAndARenewalOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		scope := objstore.NewScope(objstore.NewMemory(c), c)
		scope.SetDeadline(c.Mono() + 10*time.Second)
		time.Sleep(10*time.Second - time.Nanosecond)
		if r := scope.PutIfAbsent(t.Context(), "before", nil); r.Outcome != objstore.Applied {
			t.Fatal(r)
		}
		time.Sleep(time.Nanosecond)
		if r := scope.PutIfAbsent(t.Context(), "at", nil); r.Outcome != objstore.Refused || !errors.Is(r.Err, objstore.ErrFenced) {
			t.Fatal(r)
		}
		scope.SetDeadline(c.Mono() + time.Second)
		if r := scope.PutIfAbsent(t.Context(), "renewed", nil); r.Outcome != objstore.Applied {
			t.Fatal(r)
		}
	})
}

// TestARequestUnderWayAtTheDeadlineSendsNothing stops a request between its admission and its sending, as SIGSTOP would.
func TestARequestUnderWayAtTheDeadlineSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		memory := objstore.NewMemory(c)
		scope := objstore.NewScope(wrap(t, memory, "put-if-absent *: slow 30s\nwrite *: slow 30s"), c)
		scope.SetDeadline(c.Mono() + 10*time.Second)
		u, err := scope.Create(t.Context(), "part")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, err := u.Write([]byte("x"))
			done <- err
		}()
		if r := scope.PutIfAbsent(t.Context(), "k", nil); r.Outcome != objstore.Refused || !errors.Is(r.Err, objstore.ErrFenced) {
			t.Errorf("%+v", r)
		}
		if err := <-done; !errors.Is(err, objstore.ErrFenced) {
			t.Errorf("write: %v", err)
		}
		for info := range objstore.ListAll(t.Context(), memory, "") {
			t.Errorf("%s was sent", info.Key)
		}
	})
}

func TestAFencedUploadIsFreedByItsAbort(t *testing.T) {
	local := openLocal(t)
	scope := objstore.NewScope(local, clock.System())
	u, err := scope.Create(t.Context(), "part")
	if err != nil {
		t.Fatal(err)
	}
	scope.Fence(errLost)
	if err := u.Abort(t.Context()); !errors.Is(err, objstore.ErrFenced) {
		t.Fatal(err)
	}
	if names := tempFiles(t, local); len(names) != 0 {
		t.Errorf("temporary files are left: %q", names)
	}
}

func TestSettlingStopsAtTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		faults := wrap(t, objstore.NewMemory(c), "put-if-absent *: throttle\nreplace-if-match *: throttle")
		for name, settle := range map[string]func(context.Context, objstore.Store) objstore.Result{
			"put": func(ctx context.Context, s objstore.Store) objstore.Result {
				return objstore.PutOnce(ctx, s, "k", nil, retry(c))
			},
			"replace": func(ctx context.Context, s objstore.Store) objstore.Result {
				return objstore.Replace(ctx, s, "k", nil, "e", retry(c))
			},
		} {
			scope := objstore.NewScope(faults, c)
			before := len(faults.Trace())
			done := make(chan objstore.Result)
			go func() { done <- settle(t.Context(), scope) }()
			synctest.Wait() // it sleeps before its second request
			scope.Fence(errLost)
			if r := <-done; r.Outcome != objstore.Unknown {
				t.Errorf("%s: %+v", name, r)
			}
			if sent := len(faults.Trace()) - before; sent != 1 {
				t.Errorf("%s: %d requests were sent", name, sent)
			}
		}
	})
}

func TestScopesNest(t *testing.T) {
	c := clock.System()
	outer := objstore.NewScope(objstore.NewMemory(c), c)
	inner := objstore.NewScope(outer, c)
	if r := inner.PutIfAbsent(t.Context(), "k", nil); r.Outcome != objstore.Applied {
		t.Fatal(r)
	}
	outer.Fence(errLost)
	if r := inner.PutIfAbsent(t.Context(), "l", nil); r.Outcome != objstore.Refused || !errors.Is(r.Err, errLost) {
		t.Fatal(r)
	}
}
