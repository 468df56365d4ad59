package shardmanifest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

const (
	testTable   = "prod/events"
	testTableID = "11111111-2222-3333-4444-555555555555"
	testShard   = "rollout-0"
)

func newChain(s objstore.Store, seed uint64) *Chain {
	return Open(s, testTable, testTableID, testShard, Options{Clock: clock.System(), Random: random.Seeded(seed)})
}

func mustClaim(t *testing.T, c *Chain, label string) *Hold {
	t.Helper()
	h, err := c.Claim(t.Context(), ClaimOptions{Label: label})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// file makes a generation as a writer would before sealing it; no file is stored.
func file(h *Hold, rows int64) Generation {
	if rows == 0 {
		return Generation{}
	}
	return Generation{Path: h.Chain().GenerationPath(h.Next()), Rows: rows, Bytes: 100 * rows, SealedMS: 1, XXH3: "0123456789abcdef"}
}

func mustSeal(t *testing.T, h *Hold, rows int64) *Manifest {
	t.Helper()
	m, err := h.Seal(t.Context(), file(h, rows))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func mustLatest(t *testing.T, c *Chain) *Manifest {
	t.Helper()
	m, err := c.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestNumberingContinuesAcrossEpochsAndTheOldWriterIsFenced(t *testing.T) {
	s := objstore.NewMemory(clock.System())
	if _, err := newChain(s, 1).Latest(t.Context()); !errors.Is(err, ErrNoShard) {
		t.Fatalf("a shard nobody has claimed: %v", err)
	}
	first := mustClaim(t, newChain(s, 1), "first")
	mustSeal(t, first, 3)
	mustSeal(t, first, 0)
	second := mustClaim(t, newChain(s, 2), "second")
	m := mustSeal(t, second, 4)
	if m.Epoch != 2 || m.SealedThrough != 3 || m.Rows != 7 || m.Generations[2].Epoch != 2 {
		t.Fatalf("epoch %d, sealed through %d, %d rows, generation 3: %+v", m.Epoch, m.SealedThrough, m.Rows, m.Generations[2])
	}
	var fenced *FencedError
	_, err := first.Seal(t.Context(), file(first, 5))
	if !errors.As(err, &fenced) || !errors.Is(err, ErrFenced) || fenced.InDoubt || fenced.By.Label != "second" {
		t.Fatalf("the first writer's seal: %v", err)
	}
	if err := first.Admits(); !errors.Is(err, ErrFenced) {
		t.Fatalf("the first writer does not know that it is fenced: %v", err)
	}
	if got := mustLatest(t, newChain(s, 3)); got.Rows != 7 || got.SealedThrough != 3 {
		t.Fatalf("%d rows in %d generations", got.Rows, got.SealedThrough)
	}
	if err := first.Close(t.Context()); !errors.Is(err, ErrFenced) {
		t.Fatalf("the fenced writer closed the shard: %v", err)
	}
}

func TestOnlyAShardThatNobodyHasOpenIsFree(t *testing.T) {
	s := objstore.NewMemory(clock.System())
	holder := mustClaim(t, newChain(s, 1), "holder")
	if _, err := newChain(s, 2).Claim(t.Context(), ClaimOptions{IfFree: true}); !errors.Is(err, ErrOpen) {
		t.Fatalf("an open shard: %v", err)
	}
	if err := holder.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Seal(t.Context(), file(holder, 1)); !errors.Is(err, ErrClosed) {
		t.Fatalf("sealing after closing: %v", err)
	}
	if _, err := newChain(s, 2).Claim(t.Context(), ClaimOptions{IfFree: true}); err != nil {
		t.Fatalf("a closed shard: %v", err)
	}
}

func TestARetiredShardIsFinal(t *testing.T) {
	s := objstore.NewMemory(clock.System())
	if _, err := newChain(s, 1).Retire(t.Context()); !errors.Is(err, ErrNoShard) {
		t.Fatalf("retiring nothing: %v", err)
	}
	h := mustClaim(t, newChain(s, 1), "")
	for range 2 {
		if _, err := newChain(s, 2).Retire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Seal(t.Context(), file(h, 1)); !errors.Is(err, ErrRetired) {
		t.Fatalf("sealing: %v", err)
	}
	if _, err := newChain(s, 3).Claim(t.Context(), ClaimOptions{}); !errors.Is(err, ErrRetired) {
		t.Fatalf("claiming: %v", err)
	}
}

func TestTrimmingNeverFencesAndTheWriterRebases(t *testing.T) {
	s := objstore.NewMemory(clock.System())
	h := mustClaim(t, newChain(s, 1), "")
	for range 5 {
		mustSeal(t, h, 2)
	}
	m, err := newChain(s, 2).Trim(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if m.TrimmedThrough != 3 || m.TrimmedRows != 6 || m.Epoch != 1 || len(m.Generations) != 2 {
		t.Fatalf("trimmed: %+v", m)
	}
	m = mustSeal(t, h, 2)
	if m.SealedThrough != 6 || m.TrimmedThrough != 3 || m.Rows != 12 {
		t.Fatalf("sealed after the trim: %+v", m)
	}
	if bytes, rows, epoch, ok := m.CumAt(3); bytes != 600 || rows != 6 || epoch != 1 || !ok {
		t.Fatal("cumulative at the trim:", bytes, rows, epoch, ok)
	}
	if _, _, _, ok := m.CumAt(2); ok {
		t.Fatal("a trimmed generation is known")
	}
	if m, err = newChain(s, 2).Trim(t.Context(), 99); err != nil || m.TrimmedThrough != 6 || len(m.Generations) != 0 {
		t.Fatal("a mark above sealed_through:", m, err)
	}
}

func TestSealingIsRefusedAsBackloggedAtTheBoundOfAManifest(t *testing.T) {
	m := &Manifest{State: StateOpen, Epoch: 1, WriterID: "w", Claims: []Claim{{Epoch: 1, WriterID: "w"}}, Generations: make([]Generation, GenerationsMax)}
	if _, err := m.after(sealEvent{1, "w", Generation{}}, "n"); !errors.Is(err, ErrBacklogged) {
		t.Fatal(err)
	}
}

func TestAListingFindsTheNewestManifestOfEveryShard(t *testing.T) {
	s := objstore.NewMemory(clock.System())
	for i := range 7 {
		c := Open(s, testTable, testTableID, fmt.Sprintf("shard-%d", i), Options{Clock: clock.System(), Random: random.Seeded(uint64(i))})
		h := mustClaim(t, c, "")
		// Shard 3 has more files than one page of a listing in both folders.
		for n := range map[bool]uint64{true: 1200, false: 2}[i == 3] {
			g := file(h, 1)
			if res := s.PutIfAbsent(t.Context(), c.Key(g.Path), []byte("rows")); res.Err != nil {
				t.Fatal(res.Err)
			}
			if _, err := h.Seal(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			if n%50 == 49 { // keeps the manifests small, and no file goes
				if _, err := c.Trim(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	counted := &countingStore{Store: s}
	known := make(map[string]*Manifest)
	for m, err := range ListLatest(t.Context(), counted, testTable, testTableID, nil) {
		if err != nil {
			t.Fatal(err)
		}
		known[m.Shard] = m
	}
	if len(known) != 7 || known["shard-3"].SealedThrough != 1200 || known["shard-6"].SealedThrough != 2 {
		t.Fatalf("found %d shards", len(known))
	}
	if counted.lists > 4 || counted.gets != 7 {
		t.Fatalf("%d lists and %d gets", counted.lists, counted.gets)
	}
	for _, err := range ListLatest(t.Context(), counted, testTable, testTableID, known) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if counted.gets != 7 {
		t.Fatalf("known manifests were read again: %d gets", counted.gets)
	}
	if shards, err := ListShards(t.Context(), s, testTable, testTableID); err != nil || len(shards) != 7 || shards[3] != "shard-3" {
		t.Fatal(shards, err)
	}
}

type countingStore struct {
	objstore.Store
	lists, gets int
}

func (s *countingStore) List(ctx context.Context, req objstore.ListRequest) (objstore.Page, error) {
	s.lists++
	return s.Store.List(ctx, req)
}

func (s *countingStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	s.gets++
	return s.Store.Get(ctx, key)
}

func TestOneUnreadableShardDoesNotHideTheOthers(t *testing.T) {
	s := objstore.NewMemory(clock.System())
	for _, shard := range []string{"a", "b", "c"} {
		mustClaim(t, Open(s, testTable, testTableID, shard, Options{Clock: clock.System(), Random: random.Seeded(1)}), "")
	}
	bad := Open(s, testTable, testTableID, "b", Options{})
	if res := s.PutIfAbsent(t.Context(), bad.manifestKey(2), []byte(`{"format":7}`)); res.Err != nil {
		t.Fatal(res.Err)
	}
	var found, failed []string
	for m, err := range ListLatest(t.Context(), s, testTable, testTableID, nil) {
		var shardErr *ShardError
		if errors.As(err, &shardErr) && errors.Is(err, ErrFormat) {
			failed = append(failed, shardErr.Shard)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, m.Shard)
	}
	if fmt.Sprint(found, failed) != "[a c] [b]" {
		t.Fatal(found, failed)
	}
}
