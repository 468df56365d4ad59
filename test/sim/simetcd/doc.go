// Package simetcd is etcd in memory, for simulations in which a seed decides when every request arrives and every answer
// comes back.
//
// It speaks at the level of the gRPC messages: [Server] applies requests one at a time, and [Dial] makes a real
// *clientv3.Client whose connection ends in a [Transport] instead of a socket. So retries, watch resumption and
// keepalives of the real client are part of what is simulated, and nothing of Tidemark has to know.
//
// It has what Tidemark uses: ranges (limit, sort, count, keys only, at a revision), puts, deletes, txns with compares of
// value, version, revisions and lease, leases that expire by the clock of the bubble, watches with previous values,
// progress and compaction, the alarm for space, and [Server.Wipe]. Nested txns, auth, members and filters of revisions
// are refused as unimplemented. One suite of tests pins its behaviour against a real etcd.
//
// A server runs timers for leases and nothing else; it has no goroutine. It never calls a transport with its lock held.
package simetcd
