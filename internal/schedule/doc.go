// Package schedule decides what is due: it scores a table's demand, sorts it into classes, cuts it into units and says
// in which order they are served. Everything here is a pure function of its inputs and a time; it imports neither etcd
// nor the object store, holds no state and starts nothing. internal/schedule/readyqueue carries its plans to etcd.
//
//	demand, turns, outcomes, policy ──Decide──► Plan (units that should be ready, one decision per group)
//	Plan, present ready units ────────Diff────► Change (ready keys to delete and to put)
//	previous outcome, one execution ──Next────► Outcome (failures and their backoff)
//
// It guarantees:
//   - The key text of a unit is its place in the service order: within the critical class strictly the oldest wait
//     first, never the score; a score counts in powers of two, so that keys rarely change (invariant 8).
//   - Shards with an unknown mark, shards and groups in backoff, and shards whose demand has not changed since their
//     group was released count nothing: a poisoned shard neither hurries nor delays its table (invariants 5 and 8).
//   - Only an exactly known age raises a score. A floor on the wait may promote to critical, because a floor is never
//     too high.
//   - At most one unit covers a group, and a unit never covers a group under a turn (invariant 6 is the turn's business;
//     this only saves wasted claims).
//   - Explain gives the reason for every shard from the very functions that Decide uses, so it cannot disagree with it.
//
// It relies on its caller for the facts: marks joined by internal/demand, revisions and keys read from etcd, and one
// clock. Clocks influence the order of service only. Work per call grows linearly with the shards of the table.
package schedule
