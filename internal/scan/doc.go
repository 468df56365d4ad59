// Package scan reconciles the demand of one table with storage.
//
//	newest manifest of every shard (one recursive listing, then one get per shard that changed)
//	  └─ then the table's log (one listing while nothing changed) ──► both marks of every shard
//	       └─ compared with the demand record ──► published if it says more; deleted if the shard is over
//
// It guarantees:
//   - Both marks are what storage showed, the merged one read after the sealed one. A shard without a mark in the log is
//     known to be at 0, which is how an absent mark becomes a known one (invariant 5).
//   - It only publishes; the join keeps marks from falling (invariant 3). A merged mark that went back in storage is
//     reported as regressed after two uncached snapshots said so in a row, and is never replayed.
//   - With etcd empty it rebuilds every record (invariant 11).
//   - Publishing is bounded as demand.Detached is: 15 s per table, four tables at a time; what does not fit is dropped and counted, and the next scan
//     has it again. What is remembered between scans is a few hundred bytes per shard, and a bounded number of snapshots.
//
// It relies on manifests and logs being chains that only grow, and on nobody's clock.
package scan
