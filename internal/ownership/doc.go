// Package ownership holds every exclusive role in Tidemark: sessions of masters and executors, slots of masters, turns
// of executors.
//
//   - [Machine] is the lease state machine. It is pure: requests' answers and the time go in, requests to send, fences
//     and admissions come out. Its transitions are one table.
//   - [Keeper] drives a Machine against a [Holder], which is whatever keeps the lease: etcd here, a store elsewhere.
//   - [Session] is a Keeper over an etcd lease and a session key. Everything leased hangs on it.
//   - [Slots] claims the slots that a master should own, by rendezvous over the live masters.
//   - [Turns] claims units from the ready queue and releases them; [ReadyQueue] mirrors that queue.
//
// What is guaranteed: a holder fences itself two thirds of a TTL after it sent its last acknowledged renewal, on its own
// monotonic clock, and everything registered with OnFence has returned before anybody learns of the loss (invariant 7).
// A turn has one holder (invariant 6). A request whose answer was lost is read back by its random token, and while
// nobody knows, the role counts as not held.
//
// What is relied on: nothing. Leases only prevent wasted work; exactly-once is the business of storage, and no clock is
// ever compared with another process's.
package ownership
