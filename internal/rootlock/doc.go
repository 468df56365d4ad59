// Package rootlock keeps a root from being served by two deployments that do not know of each other.
//
// A root's lock is _tidemark/root.json, a [Record] of who may schedule it:
//
//   - A cluster claims it for its name and id, without a lease; internal/master does that.
//   - A standalone server claims it with a lease ([Run]): signs of life are fresh objects beside the lock, and whoever
//     sees none for a lease and a half on its own clock may replace it. [Machine] is all of that without I/O or a clock.
//   - A local root has no lease, since replace-if-match is good on one machine only: whoever serves it holds a lock on a
//     file ([Lock]) besides its record, all-in-one servers alone, the masters of a cluster together.
//   - A person who knows that the holder is stopped for good takes the root from it with [Unlock]. No other unlock exists.
//
// It guarantees that of any number of standalone servers at most one admits work at any instant, that a server whose
// claim is lost closes its scope before it learns of the loss (invariant 7), and that giving a claim back and taking it
// over never both happen.
//
// It relies on the store's replace-if-match, and on monotonic clocks that run at about the same speed; no two clocks are
// ever compared. Exactly-once does not rest on it: two servers that both write would still only waste work.
package rootlock
