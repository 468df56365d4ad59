// Package master is the process that decides: it owns slots, keeps demand in step with storage, and keeps what is due in
// the ready queue. It composes what other packages guarantee and adds the order of things:
//
//	cluster.go   who may schedule this root: P/cluster, root.json, signs of life
//	book.go      notes of everything in etcd, table by table; desk.go what an owner adds to them
//	mirror.go    feeds the book from watches; demand.go from the cache of owned slots
//	planner.go   passes over what changed: schedule.Decide, then one transaction per table
//	scans.go     when tables are scanned and what becomes of a report; discover.go finds tables
//	watchdog.go  turns that vanished or stand still
//	status.go, metrics.go   what people and monitoring see, from the state at that moment
//
// It guarantees:
//   - Everything it writes for a table compares the token of the table's slot in the same transaction, so a deposed
//     master cannot write (see readyqueue.ErrDeposed).
//   - It decides only from complete mirrors: while one is stale nothing is queued, revoked or deleted on its word.
//   - A turn that vanished without an outcome becomes a retryable failure of its group; a turn whose execution completes
//     nothing for too long is revoked by a transaction that compares its progress, so a late advance wins (invariant 10).
//   - With every key in etcd gone it rebuilds tables and demand from storage (invariant 11).
//
// It relies on storage for correctness and on etcd for speed; it never reads or writes rows.
package master
