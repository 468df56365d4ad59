package merge

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// keyVersion is one version of a key, as a history lists them.
type keyVersion struct {
	op  operation
	seq uint64
	row int
}

// foldAll folds a history from a row that is already there (-1: none) and says which row survives.
func foldAll(row int, seq uint64, history []keyVersion) (int, uint64) {
	var f fold
	encode := func(s uint64) []byte { return binary.BigEndian.AppendUint64(nil, s) }
	if row >= 0 {
		f.offer(upsert, encode(seq))
	}
	for _, v := range history {
		switch {
		case f.offer(v.op, encode(v.seq)):
			row, seq = v.row, v.seq
		case !f.present:
			row, seq = -1, 0
		}
	}
	return row, seq
}

func TestTheSameRowSurvivesHoweverTheVersionsOfAKeyAreCutIntoMerges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) keyVersion {
			return keyVersion{
				op:  operation(rapid.IntRange(0, 1).Draw(t, "op")),
				seq: rapid.Uint64Range(0, 5).Draw(t, "seq"),
				row: rapid.IntRange(0, 1000).Draw(t, "row"),
			}
		}), 0, 12).Draw(t, "history")
		wantRow, wantSeq := foldAll(-1, 0, history)
		row, seq := -1, uint64(0)
		for len(history) > 0 {
			n := rapid.IntRange(1, len(history)).Draw(t, "cut")
			row, seq = foldAll(row, seq, history[:n])
			history = history[n:]
		}
		if row != wantRow || seq != wantSeq {
			t.Fatalf("cut: row %d (sequence %d), whole: row %d (sequence %d)", row, seq, wantRow, wantSeq)
		}
	})
}

func TestFoldOfOneKey(t *testing.T) {
	u := func(seq uint64, row int) keyVersion { return keyVersion{upsert, seq, row} }
	d := func(seq uint64) keyVersion { return keyVersion{remove, seq, -1} }
	for name, c := range map[string]struct {
		history []keyVersion
		want    int
	}{
		"the later of equal sequences wins":              {[]keyVersion{u(5, 1), u(5, 2)}, 2},
		"a lower sequence does not replace a higher one": {[]keyVersion{u(5, 1), u(4, 2)}, 1},
		"a delete takes away its own sequence":           {[]keyVersion{u(5, 1), d(5)}, -1},
		"a delete spares a higher sequence":              {[]keyVersion{u(5, 1), d(4)}, 1},
		"a delete of an absent key does nothing":         {[]keyVersion{d(9)}, -1},
		"an older row after a delete is a new row":       {[]keyVersion{u(5, 1), d(9), u(3, 2)}, 2},
		"nothing is remembered of a delete":              {[]keyVersion{d(9), u(3, 1), u(2, 2)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := foldAll(-1, 0, c.history); got != c.want {
				t.Fatalf("row %d survives, want %d", got, c.want)
			}
		})
	}
}
