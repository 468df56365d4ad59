// Package compaction decides which small base files of a table are worth rewriting together. It is pure: files in, bins
// out; internal/merge carries a plan out, internal/scan counts it to tell whether it is due.
//
// It guarantees:
//   - A bin holds files of one partition (append) or one bucket (upsert), at least two, together no larger than the target
//     size. In an upsert table they are neighbours in key order with nothing between them, so that the file they become
//     overlaps no other.
//   - One bin becomes one file. So every compaction leaves fewer files than before, and repeating it ends: a table whose
//     small files cannot be joined any further has an empty plan.
//   - A row is rewritten a logarithmic number of times while its table grows: a bin that does not fill a file takes in no
//     file larger than all its others together, as the merges of an upsert table do.
//   - Files that are large enough (half of the target size), lie outside the table's folder, or have no place in an upsert
//     table are left alone.
package compaction
