// Package demo makes the load of `tidemark dev --demo`: writers of a shop's order events (an append table) and order
// states (an upsert table with a sequence and deletes), or of files that the user gives, and an exact account of what the
// tables must hold once everything is merged.
//
// It guarantees:
//   - a seed always gives the same rows, whatever the time and the machine;
//   - the expectation is computed from the generated rows and the rules of upsert tables alone, never from what was
//     written, so that comparing it with the merged tables ([Checksum]) tests invariant 1 (exactly once) end to end;
//   - a sum does not depend on the order of rows or on how they are spread over writers, generations and files.
//
// It relies on the writer to be backpressured when executors fall behind, and on internal/rowkey for the bucket of an
// order: every writer writes one shard of both tables.
package demo
