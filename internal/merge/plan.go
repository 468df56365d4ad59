package merge

import (
	"cmp"
	"fmt"
	"slices"

	"tidemark/internal/shardmanifest"
)

const (
	// commitBytesMax is the most sealed bytes that one commit takes in. An execution that dies loses at most one
	// commit's work: at 50 MB/s, a slow day, that is 40 s, well below what a lease or a turn is held for anyway.
	commitBytesMax = 2 << 30
	// commitGenerationsMax is the most generations that one commit takes in, so that a flood of tiny ones cannot
	// make a plan, its footers and its failures unbounded. Twice the most one shard can have pending.
	commitGenerationsMax = 8192
	// laneBytesMin is the least memory that a job works well with. One job always runs, whatever the budget.
	laneBytesMin = 48 << 20
)

// backlog is what one shard has sealed above its merged mark: generations mark+1, mark+2, … without a gap.
type backlog struct {
	shard       string
	mark        uint64
	generations []shardmanifest.Generation
}

// through is the mark the shard has once the backlog is merged.
func (b backlog) through() uint64 { return b.mark + uint64(len(b.generations)) }

// before is the part of the backlog below a generation.
func (b backlog) before(generation uint64) backlog {
	if generation > b.mark && generation <= b.through() {
		b.generations = b.generations[:generation-b.mark-1]
	}
	return b
}

// after is the part of the backlog above a mark at or above its own.
func (b backlog) after(mark uint64) backlog {
	n := min(mark-b.mark, uint64(len(b.generations)))
	return backlog{shard: b.shard, mark: mark, generations: b.generations[n:]}
}

func (b backlog) bytes() (n int64) {
	for _, g := range b.generations {
		n += g.Bytes
	}
	return n
}

func (b backlog) rows() (n int64) {
	for _, g := range b.generations {
		n += g.Rows
	}
	return n
}

// newBacklog checks that what a manifest lists above a mark starts right behind it and has no gap.
func newBacklog(shard string, mark uint64, pending []shardmanifest.Generation) (backlog, error) {
	for i, g := range pending {
		if want := mark + uint64(i) + 1; g.Number != want {
			return backlog{}, fmt.Errorf("generation %d should follow the merged mark %d, but the manifest lists generation %d", want, mark, g.Number)
		}
	}
	return backlog{shard: shard, mark: mark, generations: pending}, nil
}

// limits bound one commit.
type limits struct {
	bytes       int64
	generations int
}

// nextCommit takes the generations that go into the next commit, oldest first over all shards and in order within
// each, and returns what is left for later commits. It always takes at least one generation if there is any. The
// age of a generation is its seal time, never earlier than that of one before it on its shard: a writer whose clock
// jumped back cannot push in front. Backlogs are returned in the order given; those with nothing taken are left out.
func nextCommit(backlogs []backlog, l limits) (now, later []backlog) {
	type candidate struct {
		sealedMS int64
		shard    int
		bytes    int64
	}
	var candidates []candidate
	for i, b := range backlogs {
		newest := int64(0)
		for _, g := range b.generations {
			newest = max(newest, g.SealedMS)
			candidates = append(candidates, candidate{newest, i, g.Bytes})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.sealedMS, b.sealedMS) })

	taken := make([]int, len(backlogs))
	total, bytes := 0, int64(0)
	for _, c := range candidates {
		if total > 0 && (bytes+c.bytes > l.bytes || total == l.generations) {
			break
		}
		taken[c.shard]++
		total++
		bytes += c.bytes
	}
	for i, b := range backlogs {
		if n := taken[i]; n > 0 {
			now = append(now, backlog{b.shard, b.mark, b.generations[:n]})
		}
		if taken[i] < len(b.generations) {
			later = append(later, b.after(b.mark+uint64(taken[i])))
		}
	}
	return now, later
}

// fanIn is how many of the oldest runs may be open at once within a share of memory: as many as fit, and always
// one, because one run must be merged whatever it costs.
func fanIn(estimates []int64, share int64) int {
	total := int64(0)
	for i, e := range estimates {
		total += e
		if i > 0 && total > share {
			return i
		}
	}
	return len(estimates)
}

// span is a contiguous piece of an append: whole generations, shard by shard, that one stream packs into files.
type span []backlog

// spans cuts an append into at most most contiguous pieces of about equal bytes, none below target unless there is
// only one: each piece ends in one file that is not full, so more pieces than files would only make small files.
func spans(backlogs []backlog, most int, target int64) []span {
	total := int64(0)
	for _, b := range backlogs {
		total += b.bytes()
	}
	pieces := int64(min(max(total/max(target, 1), 1), int64(most)))
	share := (total + pieces - 1) / pieces
	var out []span
	var current span
	bytes := int64(0)
	for _, b := range backlogs {
		from := 0
		for i, g := range b.generations {
			bytes += g.Bytes
			if bytes >= share && int64(len(out)) < pieces-1 {
				current = append(current, backlog{b.shard, b.mark + uint64(from), b.generations[from : i+1]})
				out, current, from, bytes = append(out, current), nil, i+1, 0
			}
		}
		if from < len(b.generations) {
			current = append(current, backlog{b.shard, b.mark + uint64(from), b.generations[from:]})
		}
	}
	if len(current) > 0 {
		out = append(out, current)
	}
	return out
}

// lanes is how many jobs may run side by side within a budget: each needs room for a row group, pages and batches
// before it can merge anything.
func lanes(budget int64, most int) int {
	return int(min(max(budget/laneBytesMin, 1), int64(max(most, 1))))
}
