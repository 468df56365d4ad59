package writer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/table"
)

// chaosStore delays every request, and now and then loses an answer, refuses a request, or lets a put land much later.
type chaosStore struct {
	objstore.Store
	late *sync.WaitGroup // of puts that land behind their caller's back

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

func (s *chaosStore) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

var errChaos = errors.New("connection reset")

func (s *chaosStore) delay() { time.Sleep(time.Duration(s.draw(200)) * time.Millisecond) }

func (s *chaosStore) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	s.delay()
	lost := objstore.Result{Outcome: objstore.Unknown, Err: errChaos}
	switch s.draw(8) {
	case 0:
		return objstore.Result{Outcome: objstore.Refused, Err: errChaos}
	case 1:
		return lost
	case 2:
		s.Store.PutIfAbsent(ctx, key, body)
		return lost
	case 3:
		wait := time.Duration(1+s.draw(7200)) * time.Second >> s.draw(13)
		s.late.Go(func() {
			time.Sleep(wait)
			s.Store.PutIfAbsent(context.WithoutCancel(ctx), key, body)
		})
		return lost
	}
	return s.Store.PutIfAbsent(ctx, key, body)
}

func (s *chaosStore) List(ctx context.Context, req objstore.ListRequest) (objstore.Page, error) {
	s.delay()
	if s.draw(12) == 0 {
		return objstore.Page{}, errChaos
	}
	return s.Store.List(ctx, req)
}

func (s *chaosStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	s.delay()
	if s.draw(12) == 0 {
		return nil, objstore.Info{}, errChaos
	}
	return s.Store.Get(ctx, key)
}

// ledger is what the writers were told of their rows, by id.
type ledger struct {
	mu                               sync.Mutex // guards all below
	next                             int64
	acknowledged, unsealed, doubtful map[int64]bool
}

func (l *ledger) draw() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	return l.next
}

func (l *ledger) note(where map[int64]bool, ids []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		where[id] = true
	}
}

// write claims the shard again and again, and each time seals a few generations of fresh rows. Every row is appended once.
func (l *ledger) write(t *testing.T, d Deps, label string, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		w, err := ClaimWith(t.Context(), Config{Table: "events", Shard: "rollout-0", Label: label}, d)
		if err != nil {
			continue
		}
		l.life(t, w, d.Random.Uint64()%5)
	}
}

func (l *ledger) life(t *testing.T, w *Writer, seals uint64) {
	var waiting []int64
	for range seals {
		id := l.draw()
		if err := w.Append(t.Context(), ids(t, int(id), 1)); err != nil {
			t.Errorf("append: %v", err)
			return
		}
		waiting = append(waiting, id)
		for range 4 {
			_, err := w.Seal(t.Context())
			var fenced *FencedError
			if errors.As(err, &fenced) {
				l.note(l.unsealed, idsOf(fenced.Unsealed))
				l.note(l.doubtful, idsOf(fenced.InDoubt))
				if n := len(fenced.Unsealed) + len(fenced.InDoubt); n > len(waiting) {
					t.Errorf("%d rows came back of %d that were waiting", n, len(waiting))
				}
				l.settle(waiting)
				return
			}
			if err == nil {
				l.note(l.acknowledged, waiting)
				waiting = nil
				break
			}
		}
		time.Sleep(time.Second)
	}
	// It dies, or pauses for ever: what its seals were told counts, and nobody asks about the rest.
	unsealed, inDoubt, err := w.Abandon()
	if err != nil {
		t.Error(err)
	}
	l.note(l.unsealed, idsOf(unsealed))
	l.note(l.doubtful, idsOf(inDoubt))
	l.settle(waiting)
}

// settle notes rows that were neither handed back nor in doubt: an earlier seal was settled as sealed on the way.
func (l *ledger) settle(waiting []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range waiting {
		if !l.unsealed[id] && !l.doubtful[id] {
			l.acknowledged[id] = true
		}
	}
}

// TestWritersThatTakeOverFromEachOtherOnABadStoreWhileCleanupRunsSealEveryRowOnce plays random histories of three writers
// and a cleanup that merges, trims and deletes, each on the same misbehaving store.
func TestWritersThatTakeOverFromEachOtherOnABadStoreWhileCleanupRunsSealEveryRowOnce(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	inner := objstore.NewMemory(clock.System())
	tbl := createTable(t, inner, "events", eventsSchema, table.CreateOptions{})
	s := &chaosStore{Store: inner, late: new(sync.WaitGroup), rng: rand.New(rand.NewPCG(seed, 1))}
	l := &ledger{acknowledged: map[int64]bool{}, unsealed: map[int64]bool{}, doubtful: map[int64]bool{}}

	stop := make(chan struct{})
	var writers sync.WaitGroup
	for i := range uint64(3) {
		writers.Go(func() {
			l.write(t, Deps{Store: s, Random: random.Seeded(seed*100 + i)}, fmt.Sprint("writer ", i), stop)
		})
	}
	merged := map[int64]int{}
	through := uint64(0)
	mergeAll := func() {
		for _, g := range latest(t, inner, tbl, "rollout-0").Pending(through) {
			if g.Number != through+1 {
				t.Fatalf("generation %d after %d", g.Number, through)
			}
			through = g.Number
			for row := range strings.Lines(readGeneration(t, inner, tbl, g)) {
				var id int64
				if _, err := fmt.Sscanf(row, `{"id":%d,`, &id); err != nil {
					t.Fatal(row, err)
				}
				merged[id]++
			}
		}
	}
	time.Sleep(time.Minute)
	for range 25 {
		time.Sleep(30 * time.Second)
		mergeAll()
		if _, err := chainOf(s, tbl, "rollout-0").Trim(t.Context(), through); err != nil {
			continue
		}
		if garbage, err := chainOf(s, tbl, "rollout-0").Garbage(t.Context()); err == nil {
			_, _, _ = chainOf(inner, tbl, "rollout-0").Clean(t.Context(), garbage)
		}
	}
	close(stop)
	writers.Wait()
	s.late.Wait()
	mergeAll()

	l.mu.Lock()
	defer l.mu.Unlock()
	for id := int64(1); id <= l.next; id++ {
		n := merged[id]
		switch {
		case l.acknowledged[id] && n != 1:
			t.Errorf("row %d was acknowledged and is there %d times", id, n)
		case l.unsealed[id] && n != 0:
			t.Errorf("row %d was handed back as unsealed and is there %d times", id, n)
		case n > 1:
			t.Errorf("row %d is there %d times", id, n)
		}
	}
	if len(l.acknowledged) == 0 || len(l.unsealed) == 0 {
		t.Errorf("a tame history: %d acknowledged, %d unsealed", len(l.acknowledged), len(l.unsealed))
	}
	t.Logf("%d rows: %d acknowledged, %d unsealed, %d in doubt; %d generations", l.next, len(l.acknowledged), len(l.unsealed), len(l.doubtful), through)
}
