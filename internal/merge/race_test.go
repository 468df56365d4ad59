package merge

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

	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
	"tidemark/internal/random"
	"tidemark/internal/table"
)

// gate is a store whose commits wait: before each put into the Delta log it calls commit.
type gate struct {
	objstore.Store
	commit func()
}

func (g *gate) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	if strings.Contains(key, "/_delta_log/") {
		g.commit()
	}
	return g.Store.PutIfAbsent(ctx, key, body)
}

// gated runs a merge in the background whose first commit waits for release; arrived says that it waits.
func (w *world) gated(shards ...string) (arrived <-chan struct{}, release func(), result func() Outcome) {
	d, req := w.deps(), w.request(shards...)
	at, open := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.Store = &gate{w.store, func() {
		once.Do(func() {
			close(at)
			<-open
		})
	}}
	done := make(chan struct{})
	var out Outcome
	var err error
	go func() {
		defer close(done)
		out, err = Run(w.ctx, d, req)
	}()
	return at, func() { close(open) }, func() Outcome {
		w.t.Helper()
		<-done
		if err != nil || len(out.Failures) > 0 {
			w.t.Fatalf("error %v, failures %+v", err, out.Failures)
		}
		return out
	}
}

// Both modes are raced: append rebases where it can, upsert must find its base files unchanged.
func eachMode(t *testing.T, run func(t *testing.T, w *world, seal func(...row), shards []string)) {
	t.Run("append", func(t *testing.T) {
		w := newWorld(t, appendTable())
		run(t, w, func(rows ...row) { w.seal("a", rows...) }, []string{"a"})
	})
	t.Run("upsert", func(t *testing.T) {
		w := newWorld(t, upsertTable(1, false))
		run(t, w, w.upsert, w.buckets())
	})
}

func TestTwoExecutorsMergingTheSameGenerationsAtOnceMergeThemOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, seal func(...row), shards []string) {
		seal(row{key: "a", value: 1}, row{key: "b", value: 2})
		seal(row{key: "c", value: 3})
		arrivedA, releaseA, resultA := w.gated(shards...)
		arrivedB, releaseB, resultB := w.gated(shards...)
		<-arrivedA
		<-arrivedB
		releaseA()
		releaseB()
		a, b := resultA(), resultB()
		if len(a.Commits)+len(b.Commits) != 1 || a.AlreadyMerged == b.AlreadyMerged {
			t.Fatalf("one must commit and the other stop as already merged:\n%+v\n%+v", a, b)
		}
		for _, out := range []Outcome{a, b} {
			if out.Merged[0].Mark.Gen != 2 {
				t.Errorf("mark %+v", out.Merged[0])
			}
		}
		w.expect([]row{{key: "a", value: 1}, {key: "b", value: 2}, {key: "c", value: 3}})
		w.expectNoStrayFiles()
	})
}

func TestOfPartlyOverlappingMergesTheSecondPlansAgain(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, seal func(...row), shards []string) {
		m := model{}
		seal40 := func(from, to int) {
			for g := from; g <= to; g++ {
				rows := []row{{key: fmt.Sprintf("k%d", g), value: int64(g)}}
				seal(rows...)
				m.apply(rows, false)
			}
		}
		seal40(1, 40)
		w.merge(shards...)
		seal40(41, 45)
		arrivedA, releaseA, resultA := w.gated(shards...)
		<-arrivedA
		seal40(46, 50)
		arrivedB, releaseB, resultB := w.gated(shards...)
		<-arrivedB
		releaseA()
		if a := resultA(); a.Merged[0].Mark.Gen != 45 || a.Generations != 5 {
			t.Fatalf("first: %+v", a)
		}
		releaseB()
		if b := resultB(); b.Merged[0].Mark.Gen != 50 || b.Generations != 5 || b.AlreadyMerged {
			t.Fatalf("second: %+v", b)
		}
		w.expect(m.rows())
		w.expectNoStrayFiles()
	})
}

func TestTheShorterOfOverlappingMergesStopsAsAlreadyMerged(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, seal func(...row), shards []string) {
		seal(row{key: "a"})
		arrivedA, releaseA, resultA := w.gated(shards...)
		<-arrivedA
		seal(row{key: "b"})
		w.merge(shards...)
		releaseA()
		if a := resultA(); !a.AlreadyMerged || len(a.Commits) != 0 || a.Merged[0].Mark.Gen != 2 {
			t.Fatalf("%+v", a)
		}
		w.expect([]row{{key: "a"}, {key: "b"}})
		w.expectNoStrayFiles()
	})
}

func TestMergesOfDifferentShardsRebase(t *testing.T) {
	w := newWorld(t, upsertTable(8, false))
	m := model{}
	var rows []row
	for i := range 40 {
		rows = append(rows, row{key: fmt.Sprintf("k%d", i), value: int64(i)})
	}
	w.upsert(rows...)
	m.apply(rows, false)
	arrived, release, result := w.gated(w.buckets()[:4]...)
	<-arrived
	w.merge(w.buckets()[4:]...)
	release()
	if out := result(); len(out.Commits) != 1 || out.Commits[0] != 2 {
		t.Fatalf("%+v", out)
	}
	w.expect(m.rows())
	w.expectNoStrayFiles()
}

func TestAnExecutionCannotTouchTheNextLifeOfItsTable(t *testing.T) {
	w := newWorld(t, appendTable())
	w.seal("a", row{key: "of the former life"})
	arrived, release, result := w.gated("a")
	<-arrived
	former := w.table.ID
	if err := table.Drop(w.ctx, w.store, tableName, w.tableDeps()); err != nil {
		t.Fatal(err)
	}
	w.create(appendTable())
	w.seal("a", row{key: "of the next life"})
	release()
	out := result()
	if out.TableID == former || out.Incarnation != 2 {
		t.Fatalf("%+v", out)
	}
	// It planned again and found the next life's own generation, nothing of the former.
	w.expect([]row{{key: "of the next life"}})
	w.expectNoStrayFiles()
}

func TestADroppedTableIsLeftAlone(t *testing.T) {
	w := newWorld(t, appendTable())
	w.seal("a", row{key: "x"})
	if err := table.Drop(w.ctx, w.store, tableName, w.tableDeps()); err != nil {
		t.Fatal(err)
	}
	_, err := Run(w.ctx, w.deps(), w.request("a"))
	if ClassOf(err) != Lost || CodeOf(err) != CodeTableDropped || !errors.Is(err, table.ErrDropped) {
		t.Fatal(err)
	}
}

// crashWorld has merged something, so that base files and marks are there, and has more to merge.
func crashWorld(t *testing.T, mode string) (w *world, shards []string, want model) {
	want = model{}
	seal := func(rows ...row) {
		if mode == "append" {
			w.seal("a", rows[:1]...)
			w.seal("b", rows[1:]...)
		} else {
			w.upsert(rows...)
		}
		want.apply(rows, false)
	}
	if mode == "append" {
		w = newWorld(t, appendTable())
		shards = []string{"a", "b"}
	} else {
		w = newWorld(t, upsertTable(2, false))
		shards = w.buckets()
	}
	seal(row{key: "a", value: 1}, row{key: "b", value: 2}, row{key: "c", value: 3})
	w.merge(shards...)
	seal(row{key: "d", value: 4}, row{key: "e", value: 5})
	seal(row{key: "f", value: 6}, row{key: "g", value: 7})
	if mode == "upsert" {
		seal(row{key: "a", value: 8}, row{key: "b", remove: true})
	}
	return w, shards, want
}

// eachRequest runs a merge once for every request it makes to the store, with that request failing as script says for
// the n-th, and hands each to check. It stops when the merge makes no n-th request any more.
func eachRequest(t *testing.T, mode string, script func(n int) string, check func(t *testing.T, c crashed)) {
	n := 1
	for finished := false; !finished && !t.Failed(); n++ {
		synctest.Test(t, func(t *testing.T) {
			w, shards, want := crashWorld(t, mode)
			faults, err := faultstore.Wrap(w.store, w.clock, script(n))
			if err != nil {
				t.Fatal(err)
			}
			d := w.deps()
			d.Store = faults
			d.Mem = memory.NewGoAllocator() // arrow-go keeps its encoders' buffers when a write fails
			_, err = Run(w.ctx, d, w.request(shards...))
			finished = slices.Contains(faults.Unused(), strings.Split(script(n), "\n")[0])
			check(t, crashed{w, shards, want, faults, err})
			if t.Failed() {
				t.Logf("request %d:\n%s", n, strings.Join(faults.Trace(), "\n"))
			}
		})
	}
	if t.Logf("%d requests", n-2); n < 15 {
		t.Fatal("a merge makes more requests than that")
	}
}

// crashed is what a merge left behind.
type crashed struct {
	*world
	shards []string
	want   model
	faults *faultstore.Store
	err    error
}

// An executor dies at each single request to the store, in each way a request can end, and another one merges again.
func TestACrashAtAnyRequestMergesExactlyOnce(t *testing.T) {
	for _, mode := range []string{"append", "upsert"} {
		for name, end := range map[string]struct {
			last      string
			landsLast bool
		}{
			"before it is sent":                      {"fail before send", false},
			"after it was carried out":               {"unknown, applied", false},
			"and it lands before the next merge":     {"unknown, lands when told", false},
			"and it lands after the next merge":      {"unknown, lands when told", true},
			"in the middle of the next one's reads":  {"unknown, lands after 6 ops", false},
			"in the middle of the next one's writes": {"unknown, lands after 20 ops", false},
		} {
			t.Run(mode+" "+name, func(t *testing.T) {
				script := func(n int) string {
					return fmt.Sprintf("any * #%d: %s\nany * #%d-%d: fail before send", n, end.last, n+1, 1000)
				}
				eachRequest(t, mode, script, func(t *testing.T, c crashed) {
					c.faults.Clear()
					if !end.landsLast && strings.Contains(end.last, "when told") {
						c.faults.Land()
					}
					d := c.deps()
					d.Store = c.faults
					out, err := Run(c.ctx, d, c.request(c.shards...))
					if err != nil || len(out.Failures) > 0 {
						t.Fatalf("%v %+v", err, out.Failures)
					}
					c.faults.Land()
					c.expect(c.want.rows())
					for _, m := range out.Merged {
						if m.Remaining != 0 {
							t.Errorf("%+v", m)
						}
					}
				})
			})
		}
	}
}

func TestAMergeThatFailsRemovesItsFilesUnlessTheyMightBeCommitted(t *testing.T) {
	for _, mode := range []string{"append", "upsert"} {
		for name, fault := range map[string]string{
			"request refused":            "fail before send",
			"answer lost, carried out":   "unknown, applied",
			"answer lost, never arrived": "unknown, never lands",
		} {
			t.Run(mode+" "+name, func(t *testing.T) {
				script := func(n int) string { return fmt.Sprintf("any * #%d: %s", n, fault) }
				eachRequest(t, mode, script, func(t *testing.T, c crashed) {
					if c.err == nil || CodeOf(c.err) != CodeInDoubt {
						c.expectNoStrayFiles()
					}
					if c.err != nil && ClassOf(c.err) != Retryable {
						t.Errorf("class %s of %v", ClassOf(c.err), c.err)
					}
					c.merge(c.shards...)
					c.expect(c.want.rows())
				})
			})
		}
	}
}

func TestFilesOfACommitInDoubtAreKept(t *testing.T) {
	for _, mode := range []string{"append", "upsert"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, shards, want := crashWorld(t, mode)
				faults, err := faultstore.Wrap(w.store, w.clock, "put-if-absent */_delta_log/*: unknown, lands when told")
				if err != nil {
					t.Fatal(err)
				}
				d := w.deps()
				d.Store = faults
				_, err = Run(w.ctx, d, w.request(shards...))
				if CodeOf(err) != CodeInDoubt || ClassOf(err) != Retryable {
					t.Fatal(err)
				}
				// The request arrives after all, and what it commits is there.
				faults.Land()
				w.expect(want.rows())
				if out := w.merge(shards...); len(out.Commits) != 0 {
					t.Fatalf("merged again: %+v", out)
				}
			})
		})
	}
}

func TestAfterASlowPutNothingIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, appendTable())
		w.seal("a", row{key: "x"})
		faults, err := faultstore.Wrap(w.store, w.clock, "put-if-absent */_delta_log/* #1: slow 2m")
		if err != nil {
			t.Fatal(err)
		}
		d, req := w.deps(), w.request("a")
		d.Store = faults
		done := make(chan struct{})
		var out Outcome
		go func() {
			defer close(done)
			out, err = Run(w.ctx, d, req)
		}()
		time.Sleep(time.Minute)
		w.merge("a") // the other one is faster
		<-done
		if err != nil || !out.AlreadyMerged {
			t.Fatalf("%v %+v", err, out)
		}
		w.expect([]row{{key: "x"}})
		if n := len(w.dataFiles()); n != 2 {
			t.Fatalf("%d data files: the loser's may yet be committed by a request under way, and are the sweep's to delete", n)
		}
	})
}

func TestAMergeOnLocalDisk(t *testing.T) {
	store, err := objstore.Open(context.Background(), t.TempDir(), objstore.Options{Clock: clock.System(), Random: random.New()})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, store, upsertTable(2, true))
	m := model{}
	for g := range int64(4) {
		var rows []row
		for i := range 50 {
			rows = append(rows, row{key: fmt.Sprintf("k%d", (i*int(g+1))%70), seq: g, value: int64(i), remove: i%9 == 0})
		}
		w.upsert(rows...)
		m.apply(rows, true)
		if g != 2 {
			w.merge(w.buckets()...)
		}
	}
	w.expect(m.rows())
	w.expectSortedBase()
	w.expectNoStrayFiles()
}
