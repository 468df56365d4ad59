package deltalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
	"tidemark/internal/random"
)

// hooked runs something right before the nth put of a key.
type hooked struct {
	objstore.Store
	key    string
	n      int
	before func()
	seen   int
}

func (h *hooked) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	if key == h.key {
		if h.seen++; h.seen == h.n && h.before != nil {
			h.before()
		}
	}
	return h.Store.PutIfAbsent(ctx, key, body)
}

// commitsOf counts the versions that add a path, and fails if the log has a gap.
func commitsOf(t *testing.T, l *Log, path string) int {
	t.Helper()
	commits, err := l.Since(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range commits {
		for _, a := range c.Adds {
			if a.Path == path {
				n++
			}
		}
	}
	return n
}

// The table of faults of a commit: whatever happens to its put, and whatever the retry finds, it is committed exactly
// once, or not at all, or in doubt; and the next operation on the table works.
func TestCommitSurvivesEveryFaultOfItsPut(t *testing.T) {
	faults := []string{
		"", "fail before send", "refuse", "throttle", "unknown, applied", "unknown, never lands",
		"unknown, lands after 1 ops", "unknown, lands after 3 ops", "unknown, lands after 10 ops", "unknown, lands when told",
		"hang, applied", "hang, lands when told",
	}
	finds := []string{"own bytes", "another's", "nothing"}
	for _, fault := range faults {
		for _, find := range finds {
			t.Run(fault+"/"+find, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { oneFault(t, fault, find) })
			})
		}
	}
}

func oneFault(t *testing.T, fault, find string) {
	c := clock.System()
	memory := objstore.NewMemory(c)
	key := "t/_delta_log/" + commitName(1)
	var script string
	if fault != "" {
		script += "put-if-absent " + key + " #1: " + fault + "\n"
	}
	if find == "nothing" { // no retry and no look gets an answer
		script += "put-if-absent " + key + " #2-5: unknown, never lands\nget " + key + " #1: fail before send\n"
	}
	faulty, err := faultstore.Wrap(memory, c, script)
	if err != nil {
		t.Fatal(err)
	}
	clean, snapshot := newLog(t, memory, c)
	store := &hooked{Store: faulty, key: key, n: 2}
	if fault == "" || fault == "fail before send" || fault == "refuse" {
		store.n = 1 // there is no second put
	}
	if find == "another's" {
		store.before = func() {
			// An earlier request of ours may have landed by now: then the other commits the next version.
			if _, err := clean.Commit(t.Context(), otherShard(snapshot)); err != nil {
				t.Errorf("the other commit: %v", err)
			}
		}
	}
	l := Open(store, "t", Options{Clock: c, Random: random.Seeded(7)})
	in := merge(snapshot, "ours", 0, 5)
	path := in.Adds[0].Path
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	res, err := l.Commit(ctx, in)
	committed := commitsOf(t, clean, path)
	t.Logf("%v, slow %t, in the log %d times, %s", err, res.Slow, committed, strings.Join(faulty.Trace(), "; "))
	switch {
	case err == nil && committed != 1:
		t.Errorf("reported as committed, and in the log %d times", committed)
	case err != nil && !errors.Is(err, ErrInDoubt) && committed != 0:
		t.Errorf("reported as not committed (%v), and in the log %d times", err, committed)
	case errors.Is(err, ErrInDoubt) && !res.Slow:
		t.Error("in doubt, and not slow: its files would be deleted")
	}
	if answered := fault == "" || fault == "fail before send" || fault == "refuse"; res.Slow == answered {
		t.Errorf("slow is %t after %q: files may be deleted only if every put was answered", res.Slow, fault)
	}
	failedForSure := err != nil && !errors.Is(err, ErrInDoubt)

	// The requests that are still under way land, now that the caller is long gone.
	faulty.Clear()
	faulty.Land()
	if n := commitsOf(t, clean, path); n > 1 || failedForSure && n != 0 || err == nil && n != 1 {
		t.Fatalf("after everything landed it is in the log %d times", n)
	}

	// Another execution of the same intent, planned from the same snapshot, finds out.
	_, err = clean.Commit(t.Context(), in)
	if err != nil && !errors.Is(err, ErrAlreadyMerged) {
		t.Fatalf("again: %v", err)
	}
	if n := commitsOf(t, clean, path); n != 1 {
		t.Fatalf("in the end it is in the log %d times", n)
	}
	now, err := clean.Snapshot(t.Context())
	if err != nil || now.Mark("a") != 5 {
		t.Fatalf("mark %d, %v", now.Mark("a"), err)
	}
	grow(t, clean, now, now.Version+2)
}

func otherShard(s *Snapshot) Intent {
	in := merge(s, "another", 0, 1)
	in.Marks = map[string]MarkChange{AppID("T", "b"): {0, 1}}
	return in
}

func TestCommitRebasesOverOthersAndStopsWhenTheWorkIsDone(t *testing.T) {
	c := clock.System()
	l, s := newLog(t, objstore.NewMemory(c), c)
	mine, same, half := merge(s, "x", 0, 5), merge(s, "y", 0, 5), merge(s, "z", 0, 3)
	if _, err := l.Commit(t.Context(), otherShard(s)); err != nil {
		t.Fatal(err)
	}
	res, err := l.Commit(t.Context(), mine)
	if err != nil || res.Version != 2 || res.Snapshot.Version != 2 || res.Snapshot.Mark("a") != 5 || res.Snapshot.Mark("b") != 1 || res.Slow {
		t.Fatalf("%+v, %v", res, err)
	}
	fresh, err := l.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equalState(t, fresh, res.Snapshot)
	if _, err := l.Commit(t.Context(), same); !errors.Is(err, ErrAlreadyMerged) {
		t.Errorf("the same again: %v", err)
	}
	if _, err := l.Commit(t.Context(), half); !errors.Is(err, ErrAlreadyMerged) {
		t.Errorf("a part of it: %v", err)
	}
	more := merge(s, "w", 0, 9)
	var again *PlanAgainError
	if _, err := l.Commit(t.Context(), more); !errors.As(err, &again) || !strings.Contains(err.Error(), "shard a is 5") {
		t.Errorf("more than it: %v", err)
	}
	if res, err := l.Commit(t.Context(), mine); err != nil || res.Version != 2 {
		t.Errorf("our own commit again: %+v, %v", res, err)
	}
}

func TestManyCommittersAllGetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		l, s := newLog(t, objstore.NewMemory(c), c)
		done := make(chan error)
		const committers = 20
		for i := range committers {
			go func() {
				in := merge(s, fmt.Sprintf("x%d", i), 0, 1)
				in.Marks = map[string]MarkChange{AppID("T", fmt.Sprint("s", i)): {0, 1}}
				_, err := l.Commit(t.Context(), in)
				done <- err
			}()
		}
		for range committers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		s, err := l.Snapshot(t.Context())
		if err != nil || s.Version != committers || s.FileCount() != committers || s.txns.len != committers {
			t.Errorf("version %d, %d files, %d marks, %v", s.Version, s.FileCount(), s.txns.len, err)
		}
	})
}

// A fresh plan is put without a look at the log before, and a loser is back with the next number after one round of reads by
// name, however many were faster.
func TestALoserComesBackAfterOneRoundOfReadsAndAFreshPlanAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		store := objstore.NewMemory(c)
		others, s := newLog(t, store, c)
		commit := func(in Intent) (CommitResult, string) {
			spy, err := faultstore.Wrap(store, c, "")
			if err != nil {
				t.Fatal(err)
			}
			res, err := Open(spy, "t", Options{Clock: c, Random: random.Seeded(3)}).Commit(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			var ops []string
			for _, line := range spy.Trace() {
				op, key, _ := strings.Cut(line, " ")
				version := strings.TrimSuffix(strings.TrimPrefix(strings.Fields(key)[0], "t/_delta_log/"), ".json:")
				ops = append(ops, op+" "+strings.TrimLeft(version, "0"))
			}
			slices.Sort(ops)
			return res, strings.Join(ops, ", ")
		}
		if _, ops := commit(merge(s, "alone", 0, 1)); ops != "put-if-absent 1" {
			t.Errorf("a fresh plan: %s", ops)
		}
		s, err := others.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mine := merge(s, "mine", 1, 2)
		for now, i := s, 0; i < 10; i++ {
			in := otherShard(now)
			in.Marks = map[string]MarkChange{AppID("T", "b"): {int64(i), int64(i + 1)}}
			in.Adds[0].Path = fmt.Sprintf("b-%d", i)
			res, err := others.Commit(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			now = res.Snapshot
		}
		res, ops := commit(mine)
		want := "put-if-absent 12, put-if-absent 2"
		for n := 17; n > 1; n-- {
			want = fmt.Sprintf("get-range %d, ", n) + want
		}
		sorted := strings.Split(want, ", ")
		slices.Sort(sorted)
		if ops != strings.Join(sorted, ", ") || res.Version != 12 || res.Slow {
			t.Errorf("after ten others: version %d, %s", res.Version, ops)
		}
		fresh, err := others.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equalState(t, fresh, res.Snapshot)

		// Seconds later the log is listed first.
		time.Sleep(freshMax + time.Second)
		if _, ops := commit(merge(fresh, "late", 2, 3)); ops != "list :, put-if-absent 13" {
			t.Errorf("a plan that is not fresh: %s", ops)
		}
	})
}

// slowly delays the answer of the first put of a version, after running something.
type slowly struct {
	objstore.Store
	key   string
	clock clock.Clock
	delay time.Duration
	until func()
	done  bool
}

func (s *slowly) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	if key == s.key && !s.done {
		s.done = true
		if err := s.clock.Sleep(ctx, s.delay); err != nil {
			return objstore.Result{Outcome: objstore.Refused, Err: err}
		}
		s.until()
	}
	return s.Store.PutIfAbsent(ctx, key, body)
}

// The trap of numbered chains: the put of a number stalls, others go on, a cleanup deletes the number, and the put
// succeeds although its change is nowhere.
func TestASlowPutCountsOnlyIfASnapshotHoldsIt(t *testing.T) {
	retention := map[string]string{"delta.logRetentionDuration": "interval 1 hour"}
	for _, c := range []struct {
		name      string
		delay     time.Duration
		merged    bool // somebody else merged our generations meanwhile
		cleaned   bool // and the log was cleaned beyond our number
		want      string
		slow      bool
		noMarks   bool
		committed bool
	}{
		{name: "fast", delay: time.Second, committed: true},
		{name: "slow but alone", delay: 2 * time.Minute, slow: true, committed: true},
		{name: "slow maintenance but alone", delay: 2 * time.Minute, slow: true, noMarks: true, committed: true},
		{name: "void", delay: 3 * time.Hour, cleaned: true, want: "void", slow: true},
		{name: "void maintenance", delay: 3 * time.Hour, cleaned: true, noMarks: true, want: "void", slow: true},
		{name: "void, and merged by another", delay: 3 * time.Hour, cleaned: true, merged: true, want: ErrAlreadyMerged.Error(), slow: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clk := clock.System()
				memory := objstore.NewMemory(clk)
				others, s := newLogWith(t, memory, clk, NewProtocol(false, false), retention)
				store := &slowly{Store: memory, key: "t/_delta_log/" + commitName(1), clock: clk, delay: c.delay, until: func() {
					if !c.cleaned {
						return
					}
					now, err := others.Snapshot(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if c.merged {
						res, err := others.Commit(t.Context(), merge(now, "faster", 0, 5))
						if err != nil {
							t.Fatal(err)
						}
						now = res.Snapshot
					}
					for range 3 {
						in := otherShard(now)
						in.Marks = map[string]MarkChange{AppID("T", "b"): {now.Mark("b"), now.Mark("b") + 1}}
						in.Adds[0].Path = fmt.Sprintf("b-%d", now.Version)
						res, err := others.Commit(t.Context(), in)
						if err != nil {
							t.Fatal(err)
						}
						now = res.Snapshot
					}
					if err := others.Checkpoint(t.Context(), now); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * time.Hour)
					in := otherShard(now)
					in.Marks = map[string]MarkChange{AppID("T", "b"): {now.Mark("b"), now.Mark("b") + 1}}
					if _, err := others.Commit(t.Context(), in); err != nil {
						t.Fatal(err)
					}
					if n, err := others.CleanLog(t.Context(), now); err != nil || n == 0 {
						t.Fatalf("cleaned %d, %v", n, err)
					}
				}}
				in := merge(s, "ours", 0, 5)
				if c.noMarks {
					in.Marks = nil
				}
				res, err := Open(store, "t", Options{Clock: clk, Random: random.Seeded(3)}).Commit(t.Context(), in)
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if res.Slow != c.slow {
					t.Errorf("slow %t, want %t", res.Slow, c.slow)
				}
				now, err := others.Snapshot(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := now.File(in.Adds[0].Path); ok != c.committed {
					t.Errorf("the file is in the table: %t, want %t", ok, c.committed)
				}
				if !c.noMarks && (c.committed || c.merged) != (now.Mark("a") == 5) {
					t.Errorf("the mark is %d", now.Mark("a"))
				}
			})
		})
	}
}

func TestASlowPutThatCannotBeConfirmedIsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		memory := objstore.NewMemory(c)
		_, s := newLog(t, memory, c)
		faulty, err := faultstore.Wrap(memory, c, "")
		if err != nil {
			t.Fatal(err)
		}
		store := &slowly{Store: faulty, key: "t/_delta_log/" + commitName(1), clock: c, delay: 61 * time.Second, until: func() {
			if err := faulty.Add("list *: fail before send"); err != nil {
				t.Fatal(err)
			}
		}}
		res, err := Open(store, "t", Options{Clock: c, Random: random.Seeded(3)}).Commit(t.Context(), merge(s, "ours", 0, 5))
		if !errors.Is(err, ErrInDoubt) || !res.Slow {
			t.Errorf("slow %t, %v", res.Slow, err)
		}
	})
}

// A plan that is hours old cannot trust the versions after it one by one. What counts is the difference to now.
func TestAnOldPlanIsDecidedByTheDifferenceToNow(t *testing.T) {
	for _, merged := range []int64{0, 3, 5} {
		t.Run(fmt.Sprint("merged up to ", merged), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := clock.System()
				memory := objstore.NewMemory(c)
				l, s := newLogWith(t, memory, c, NewProtocol(false, false), map[string]string{"delta.logRetentionDuration": "interval 1 hour"})
				in := merge(s, "ours", 0, 5)
				now := s
				if merged > 0 {
					res, err := l.Commit(t.Context(), merge(now, "theirs", 0, merged))
					if err != nil {
						t.Fatal(err)
					}
					now = res.Snapshot
				}
				for range 3 {
					b := otherShard(now)
					b.Marks = map[string]MarkChange{AppID("T", "b"): {now.Mark("b"), now.Mark("b") + 1}}
					res, err := l.Commit(t.Context(), b)
					if err != nil {
						t.Fatal(err)
					}
					now = res.Snapshot
				}
				if err := l.Checkpoint(t.Context(), now); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Hour)
				if n, err := l.CleanLog(t.Context(), now); err != nil || n == 0 {
					t.Fatalf("cleaned %d, %v", n, err)
				}
				// A ghost: a version that a stalled commit of somebody puts under a number that was cleaned.
				foreign(t, memory, 1, `{"txn":{"appId":"`+AppID("T", "a")+`","version":5}}`)
				_, err := l.Commit(t.Context(), in)
				var again *PlanAgainError
				switch {
				case merged == 0 && err != nil, merged == 3 && !errors.As(err, &again), merged == 5 && !errors.Is(err, ErrAlreadyMerged):
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestIntentsThatCannotBeAreRefusedBeforeAnythingIsSent(t *testing.T) {
	c := clock.System()
	memory := objstore.NewMemory(c)
	l, s := newLogWith(t, memory, c, NewProtocol(false, false), map[string]string{"delta.appendOnly": "true"})
	s = grow(t, l, s, 1)
	for name, in := range map[string]Intent{
		"a mark that is not the snapshot's":      merge(s, "x", 0, 5),
		"a mark that does not rise":              merge(s, "x", 1, 1),
		"a file that is not there":               {TableID: "T", Read: s, Removes: []Remove{{Path: "nothing"}}},
		"rows removed from an append-only table": {TableID: "T", Read: s, Removes: []Remove{{Path: "part-grow0-1.parquet", DataChange: true}}},
		"the same file twice":                    {TableID: "T", Read: s, Adds: []Add{{Path: "p"}, {Path: "p"}}},
		"an unsupported property": {TableID: "T", Read: s, Metadata: &Metadata{ID: "T", SchemaString: schemaPlain,
			Configuration: map[string]string{"delta.enableChangeDataFeed": "true"}}},
		"a schema beyond the protocol": {TableID: "T", Read: s, Metadata: &Metadata{ID: "T", SchemaString: schemaNTZ}},
	} {
		if _, err := l.Commit(t.Context(), in); err == nil {
			t.Errorf("%s is committed", name)
		}
	}
	compaction := Intent{TableID: "T", Read: s, Removes: []Remove{{Path: "part-grow0-1.parquet"}}, Adds: []Add{{Path: "compacted"}}}
	res, err := l.Commit(t.Context(), compaction)
	if err != nil {
		t.Fatalf("rearranging an append-only table: %v", err)
	}
	tomb, ok := res.Snapshot.Tombstone("part-grow0-1.parquet")
	if !ok || tomb.Size != 10 || tomb.DeletionTimestamp == 0 {
		t.Errorf("tombstone %+v, %t", tomb, ok)
	}
}

func TestCreateYieldsOneTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		memory := objstore.NewMemory(c)
		type made struct {
			id  string
			err error
		}
		results := make(chan made)
		for i := range 8 {
			go func() {
				l := Open(memory, "t", Options{Clock: c, Random: random.Seeded(uint64(i))})
				id := fmt.Sprint("T", i)
				_, err := l.Create(t.Context(), NewProtocol(false, false), Metadata{ID: id, SchemaString: schemaPlain}, CommitInfo{})
				results <- made{id, err}
			}()
		}
		var winners []string
		for range 8 {
			switch r := <-results; {
			case r.err == nil:
				winners = append(winners, r.id)
			case !errors.Is(r.err, ErrExists):
				t.Error(r.err)
			}
		}
		s, err := Open(memory, "t", Options{Clock: c, Random: random.Seeded(9)}).Snapshot(t.Context())
		if err != nil || len(winners) != 1 || s.Metadata.ID != winners[0] {
			t.Errorf("winners %v, %v", winners, err)
		}
	})
}
