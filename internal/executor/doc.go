// Package executor is the loop of an executor: it keeps a session, pulls due units from the ready queue, runs them
// under their turns, releases the turns, and only then, detached, publishes how far each shard was merged.
//
//  1. While the session is held and a slot is free, choose a unit that fits the memory that is free and claim it in one
//     txn. One claim is under way at a time, so nothing is claimed that cannot be started. See admit.go.
//  2. Run it inside the session's scope: once the session is fenced no request leaves this process, however long the
//     execution takes to notice (invariant 7). A heartbeat carries the sequence of completed work; a watchdog cancels an
//     execution whose sequence stands still (invariant 10).
//  3. Release the turns in one txn with one outcome record per group. The release knows nothing of demand and does not
//     grow with the number of shards.
//  4. Publish the merged marks: bounded, a few at a time, dropped when too many wait. A scan makes up for any loss.
//
// While its process drains, or P/drains/<executor> stands, it claims nothing and what runs finishes. The former ends it,
// the latter leaves it up and idle, over restarts, until the key is gone.
//
// Exactly-once is not this package's business: two executors that run the same unit at once, or one that lost its turn,
// are harmless, because internal/merge commits data and marks in one Delta commit. Turns only prevent wasted work
// (invariant 6).
package executor
