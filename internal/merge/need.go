package merge

import "tidemark/internal/compaction"

// What a merge needs in memory, estimated before it is claimed, from what manifests say of the files that are pending.
//
// A merge keeps whatever budget it is given: with less memory it opens fewer generations at once and makes more commits.
// The need is that with which it goes in one pass and on all its lanes; more would not make it faster. It is monotone: one
// more input, or a larger one, never lowers it, so what does not fit now does not fit later for having grown.
const (
	// needFixed is what every merge holds: manifests, a page of the snapshot, the commit in hand. With one lane it makes
	// the least that an executor must have per slot.
	needFixed = 8 << 20
	// needGeneration is a pending generation's entry in a manifest, its footer with statistics, and the record of its
	// file in the commit.
	needGeneration = 16 << 10
	// needRewrite is what a lane of an upsert needs beside its generations: of the base file being read an encoded row
	// group and one on its way out, open pages and dictionaries, and batches; of the one being written a row group, encoded
	// and on its way out, and a dictionary and a page per column. Row groups shrink with the budget.
	needRewrite = 56 << 20
	// needAppend is what a lane of an append needs, however little there is: the same without a base file.
	needAppend = laneBytesMin
	// decodedRatio is about how many bytes of Arrow data a byte of a generation becomes.
	decodedRatio = 4
	// needAhead is what a lane of an append can use beside, for what it reads and for large row groups.
	needAhead = 160 << 20
)

// Load is what there is to merge, as far as is known before the files are looked at.
type Load struct {
	Upsert      bool
	Shards      int // with something pending; of an upsert table these are its buckets
	Generations uint64
	Bytes       int64 // of the generations, encoded
}

// Need is about the bytes of memory with which a load is merged in one pass on at most so many lanes. More of anything
// never lowers it.
func Need(l Load, lanes int) int64 {
	bytes := max(l.Bytes, 0)
	need := needFixed + needGeneration*int64(min(l.Generations, commitGenerationsMax))
	if l.Upsert {
		// The generations of a bucket are open all at once.
		return need + needRewrite*int64(max(min(l.Shards, lanes), 1)) + decodedRatio*min(bytes, commitBytesMax)
	}
	pieces := max(min(bytes/compaction.TargetDefault, int64(lanes)), 1)
	return need + needAppend*pieces + min(decodedRatio*bytes, needAhead*pieces)
}

// CompactNeed is the same for a compaction, which always has more to do than its lanes can do at once.
func CompactNeed(lanes int) int64 {
	return needFixed + (needAppend+needAhead)*int64(max(lanes, 1))
}
