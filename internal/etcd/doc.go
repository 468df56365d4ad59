// Package etcd is Tidemark's edge towards etcd: the keys, and the few ways in which they are read and written that
// stay correct when etcd is slow, compacted, full, cut off or replaced.
//
//   - [Keys] is the whole layout, one method per key, with a parser for every key that is read back.
//   - [ReadPages] reads a prefix of any size at one revision, in replies bounded by bytes.
//   - [WriteChunks] writes any number of records in txns bounded by operations and bytes, each fenced on its own.
//   - [Commit] says of every txn whether it was applied, refused, or whether nobody knows.
//   - [Follower] mirrors a prefix: a snapshot, then a watch, then a fresh snapshot whenever the watch was compacted
//     away or etcd turns out to be another cluster or to have gone back in time; and a re-read now and then, which
//     counts what the watch had missed.
//   - [Dial] connects, or fails with one error that names the endpoints.
//
// Nothing here decides anything. Everything in etcd can be rebuilt from storage (invariant 11), so a follower that
// starts afresh loses no more than time.
package etcd
