// Package merge carries out one merge: it plans which sealed generations of which shards go into the base table, reads
// and orders their rows, encodes new base files, and commits files and merged marks in one Delta commit. It also reads a
// table together with what is sealed but not merged yet (Scan).
//
// It guarantees:
//   - exactly once, in order (invariants 1, 2 and 3 of the overview): marks and rows go into one commit, generations of a
//     shard are merged contiguously, and a commit whose plan others have overtaken is never made. Nothing depends on
//     leases or turns: two executions of the same work end in one commit;
//   - the rows of a merge are a pure function of its inputs: versions of a key are folded in arrival order with the base
//     row first, so it does not matter how generations are cut into merges;
//   - a generation that cannot be used (damaged, missing, of a clashing schema) stops its shard there, with a typed
//     failure, and nothing else;
//   - a file that is committed was opened and checked before; a file that was not committed is deleted, unless a request
//     might yet commit it (invariant 9);
//   - progress is reported for completed work only (invariant 10);
//   - rows are decoded only where they must be: whole files of full row groups are joined by reference (join.go), other
//     files of the table's own columns are recoded page by page, the rest is decoded;
//   - memory stays within the budget plus one row group per open input, whatever the size of the merge.
//
// It relies on the object store's put-if-absent for the commit (internal/deltalog), on manifests for what is sealed
// (internal/shardmanifest), and on its store being a scope that is fenced when the execution loses its turn.
//
// The decisions are pure and have no I/O: plan.go (what goes into a commit), fold.go (which version of a key survives),
// order.go (what moves in which order). The edges are append.go, join.go, upsert.go, input.go and pack.go; execution.go is the
// loop around them.
package merge
