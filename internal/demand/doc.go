// Package demand says how much of every shard waits to be merged.
//
// The demand of a shard is a [Record]: the highest generation that anybody reported as sealed, the highest that anybody
// reported as merged, and when the pending ones were sealed. Writers, executors and scans report what they know as an
// [Event], in any order, late, twice or not at all. [Join] folds an event into a record dimension by dimension, so that
// none of that matters: marks only rise (invariant 3), every order of the same events gives the same record (invariant
// 4), and what nobody has reported is absent rather than zero (invariant 5). Only a newer incarnation of the table
// replaces a record. Join is pure; it and the types around it import neither etcd nor a clock.
//
// [Publisher] is the edge towards etcd: read, join, compare-and-swap, one shard per put. [Detached] bounds what
// executors and scans publish beside their work. [Cache] mirrors the records of the slots that a master owns and says
// which tables changed.
//
// A record can always be rebuilt from storage, so losing, delaying or dropping any publish can make demand stale but
// never wrong.
package demand
