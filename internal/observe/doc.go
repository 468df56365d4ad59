// Package observe is what people see of a cluster: every table, turn, executor, master and failure, from a mirror of the
// cluster's keys in etcd, and a table's settings and commits from storage.
//
//	observer.go    the mirror: one follower over all keys of the cluster
//	notes.go       what each kind of key says; tables.go, fleet.go, failures.go the answers about it
//	history.go     samples of the sums over time
//	storage.go     what only the table's log knows
//	page.go        lists in pages: search, order, opaque cursors
//
// It guarantees:
//   - Any process can answer for every table, not only for those it owns, and answers come from memory: a look at a list
//     costs etcd nothing, however many people look.
//   - Unknown is not zero (invariant 5): a shard whose marks nobody has reported is counted as unknown and adds nothing
//     to what is pending.
//   - A list in pages never shows a row twice or leaves one out because of where a page was cut, as long as the row's
//     place in the order does not change meanwhile.
//
// It relies on etcd.Follower for completeness, and says so while the mirror is not complete. It changes nothing.
package observe
