package merge

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tidemark/internal/demand"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/shardmanifest"
)

func TestAppendPacksGenerationsOfSeveralShardsIntoOneCommit(t *testing.T) {
	w := newWorld(t, appendTable())
	var want []row
	for g := range 5 {
		for _, shard := range []string{"a", "b"} {
			var rows []row
			for i := range 10 {
				rows = append(rows, row{key: fmt.Sprintf("%s-%d-%d", shard, g, i), seq: int64(g), value: int64(i)})
			}
			w.seal(shard, rows...)
			want = append(want, rows...)
		}
	}
	out := w.merge("a", "b")
	w.expect(want)
	w.expectNoStrayFiles()
	if len(out.Commits) != 1 || len(w.liveFiles()) != 1 {
		t.Fatalf("commits %v, files %v", out.Commits, w.liveFiles())
	}
	if len(out.Merged) != 2 || out.Merged[0].Mark.Gen != 5 || out.Merged[0].Mark.Rows != 50 || out.Merged[0].Remaining != 0 {
		t.Fatalf("merged %+v", out.Merged)
	}
	if out = w.merge("a", "b"); len(out.Commits) != 0 || out.Merged[1].Mark.Gen != 5 {
		t.Fatalf("merging nothing: %+v", out)
	}
}

func TestAnEmptyGenerationMergesToProgressOnly(t *testing.T) {
	w := newWorld(t, appendTable())
	w.seal("a")
	w.seal("a")
	out := w.merge("a")
	if got := out.Merged[0].Mark; got != (demand.Mark{Gen: 2, Epoch: 1}) {
		t.Fatalf("mark %+v", got)
	}
	if len(out.Commits) != 1 || len(w.dataFiles()) != 0 {
		t.Fatalf("commits %v, files %v", out.Commits, w.dataFiles())
	}
	w.seal("a", row{key: "x"})
	w.seal("a")
	w.merge("a")
	w.expect([]row{{key: "x"}})
	if mark := w.load().Mark("a"); mark != 4 {
		t.Fatalf("mark %d", mark)
	}
}

// meeting is a store that answers reads of generations once so many of them wait for an answer.
type meeting struct {
	objstore.Store
	size    int64
	waiting atomic.Int64
	all     chan struct{}
}

func (m *meeting) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	if err := m.wait(ctx, key); err != nil {
		return nil, objstore.Info{}, err
	}
	return m.Store.Get(ctx, key)
}

func (m *meeting) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := m.wait(ctx, key); err != nil {
		return nil, err
	}
	return m.Store.GetRange(ctx, key, offset, length)
}

func (m *meeting) wait(ctx context.Context, key string) error {
	if !strings.Contains(key, "/gen/") {
		return nil
	}
	if m.waiting.Add(1) == m.size {
		close(m.all)
	}
	select {
	case <-m.all:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// On a far store the time of a small unit is that of its round trips.
func TestSmallGenerationsAreReadSideBySide(t *testing.T) {
	w := newWorld(t, appendTable())
	var want []row
	for i := range readAtOnceMax {
		r := row{key: strconv.Itoa(i)}
		w.seal("a", r)
		want = append(want, r)
	}
	d := w.deps()
	d.Store = &meeting{Store: w.store, size: readAtOnceMax, all: make(chan struct{})}
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute) // a bound for a broken test, not a wait
	defer cancel()
	if _, err := Run(ctx, d, w.request("a")); err != nil {
		t.Fatal(err)
	}
	w.expect(want)
}

// Generations that are not small, or a budget that is, leave it at one per lane.
func TestHowManyGenerationsAreReadAtOnceFollowsTheBudget(t *testing.T) {
	for _, c := range []struct {
		share, bytes int64
		want         int
	}{
		{128 << 20, 1 << 10, readAtOnceMax}, {128 << 20, 200 << 10, readAtOnceMax}, {128 << 20, 400 << 10, 4}, {128 << 20, 1 << 20, 2},
		{128 << 20, 1 << 30, 2}, {1 << 20, 100 << 10, 2}, {128 << 20, 0, readAtOnceMax},
	} {
		j := &appendJob{attempt: &attempt{execution: &execution{Deps: Deps{Lanes: 2}}, share: c.share}, layout: &parquetfile.Layout{}}
		g := shardmanifest.Generation{Bytes: c.bytes, XXH3: "known"}
		if got := j.readAtOnce([]origin{{generation: g}}); got != c.want {
			t.Errorf("%d bytes within %d: %d at once, want %d", c.bytes, c.share, got, c.want)
		}
		j.layout = nil // they are decoded
		if got := j.readAtOnce([]origin{{generation: g}}); got != 2 {
			t.Errorf("%d are decoded at once", got)
		}
	}
}
