// Package control is everything a person does to a running cluster, as functions: the command line and the HTTP API
// call the same ones.
//
//	storage first   pause, resume, policies, skip      committed where they outlive etcd (invariant 11)
//	etcd alone      merge, retry, drain, cancel        one txn that compares what it was decided from
//	nothing         explain, lists, failures           read only
//
// It guarantees:
//   - An action says in one sentence what it did, or with DryRun what it would do, after the same checks. A dry run
//     writes nothing.
//   - An action that is refused changes nothing, and its error carries a stable code (see CodeOf) and what to do next.
//   - No action lowers a mark, touches data or bypasses a turn: skip advances a mark by the Delta commit of page 2, with
//     the reason in the commit; cancel deletes turns by a txn that compares them and the execution's sequence
//     (invariants 1, 3, 6 and 10).
//   - What is changed on storage is told to the table's owner by a request for a scan, which is over only once a scan that
//     began after it has ended; so a pause takes effect at once, and a lost word costs at most one scan's interval.
//
// It relies on internal/deltalog for commits, on internal/schedule for verdicts and failures, on internal/master for
// reading etcd as a master does, and decides nothing about scheduling itself.
package control
