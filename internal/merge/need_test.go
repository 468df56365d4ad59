package merge

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawLoad(t *rapid.T, label string) Load {
	return Load{
		Upsert: rapid.Bool().Draw(t, label+" upsert"), Shards: rapid.IntRange(0, 5000).Draw(t, label+" shards"),
		Generations: rapid.Uint64Range(0, 1<<20).Draw(t, label+" generations"),
		Bytes:       rapid.Int64Range(0, 1<<50).Draw(t, label+" bytes"),
	}
}

// One more input, or a larger one, never lowers what a merge is said to need.
func TestNeedNeverFallsWhenThereIsMoreToMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, two := drawLoad(t, "one"), drawLoad(t, "two")
		both := Load{one.Upsert, one.Shards + two.Shards, one.Generations + two.Generations, one.Bytes + two.Bytes}
		lanes := rapid.IntRange(1, 64).Draw(t, "lanes")
		if a, b := Need(one, lanes), Need(both, lanes); a > b {
			t.Fatalf("%+v needs %d, with %+v it needs %d", one, a, two, b)
		}
		if a, b := Need(one, lanes), Need(one, lanes+1); a > b {
			t.Fatalf("%+v needs %d on %d lanes and %d on one more", one, a, lanes, b)
		}
		if need := Need(one, lanes); need < needFixed+laneBytesMin {
			t.Fatalf("%+v needs %d, less than any merge", one, need)
		}
	})
}

// The need is enough: a merge that is given it makes one commit.
func TestAMergeWithWhatItNeedsGoesInOnePass(t *testing.T) {
	w := newWorld(t, upsertTable(2, false))
	random := wordsOf(1)
	load := Load{Upsert: true, Shards: 2}
	for range 40 {
		var rows []row
		for i := range 500 {
			rows = append(rows, row{key: random(20), value: int64(i)})
		}
		w.upsert(rows...)
	}
	for _, bucket := range w.buckets() {
		m, err := w.chain(bucket).Latest(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range m.Pending(0) {
			load.Generations++
			load.Bytes += g.Bytes
		}
	}
	req := w.request(w.buckets()...)
	req.Budget = Need(load, 2)
	out, err := Run(w.ctx, w.deps(), req)
	if err != nil || len(out.Commits) != 1 || out.Generations != 80 {
		t.Fatalf("%v %+v", err, out)
	}
}

// With much less it goes in several, oldest generations first, and no generation is cut.
func TestAMergeTooLargeForOnePassCommitsOldestFirst(t *testing.T) {
	w := newWorld(t, upsertTable(1, false))
	m := model{}
	random := wordsOf(2)
	for g := range 12 {
		var rows []row
		for i := range 20_000 {
			rows = append(rows, row{key: random(40), value: int64(g*100_000 + i)})
		}
		rows = append(rows, row{key: "last", value: int64(g)})
		w.upsert(rows...)
		m.apply(rows, false)
	}
	bucket := w.buckets()[0]
	marks := []uint64{0}
	for marks[len(marks)-1] < 12 {
		req := w.request(bucket)
		req.Budget, req.CommitsMax = 16<<20, 1
		out, err := Run(w.ctx, w.deps(), req)
		if err != nil || len(out.Commits) != 1 {
			t.Fatalf("%v %+v", err, out)
		}
		mark := w.load().Mark(bucket)
		if mark <= marks[len(marks)-1] {
			t.Fatalf("marks %v, then %d", marks, mark)
		}
		marks = append(marks, mark)
		last := slices.IndexFunc(w.base(), func(r row) bool { return r.key == "last" })
		if got := w.base()[last].value; got != int64(mark)-1 {
			t.Fatalf("at mark %d the newest version is that of generation %d", mark, got+1)
		}
	}
	if len(marks) < 4 {
		t.Fatalf("marks %v: it was not too large for one pass", marks)
	}
	w.expect(m.rows())
}

// wordsOf makes random words that compress badly.
func wordsOf(seed uint64) func(n int) string {
	r := rand.New(rand.NewPCG(seed, seed))
	return func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + r.IntN(26))
		}
		return string(b)
	}
}
