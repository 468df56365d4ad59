package merge

import (
	"fmt"
	"testing"

	"tidemark/internal/demand"
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
