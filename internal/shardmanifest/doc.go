// Package shardmanifest is the manifest chain of a shard: which generations its writers have sealed, who may seal the
// next one, and what has been trimmed.
//
// Each version of a manifest is one immutable object, created put-if-absent under its number and built on the version
// before it. The key is the inverted number, so that the newest version is the first key of an ordered list. The core is
// pure: an event (claim, seal, close, retire, trim) turns the newest manifest into the next one or is refused by type
// (transition.go), and the outcome of a seal is read off any later manifest (settle.go). Chain and Hold do the I/O
// around it.
//
// It guarantees:
//   - A generation number is given to one file only, numbers are contiguous, and they never restart (invariant 2).
//   - A writer is fenced as soon as the newest manifest has a higher epoch or another writer id: none of its later
//     seals can count. A seal whose answer is lost or late is settled from the newest manifest before anything else is
//     sealed; until its version number exists the identical put is sent again. So the rows of a seal are in exactly
//     one generation, or in none, or reported as in doubt (invariant 1).
//   - A put counts only if its number is above the boundary of the newest manifest read after it. Every version raises
//     the boundary to sixteen versions behind itself, so the boundary is durable before anything below it is deleted.
//   - Trimming never raises the epoch and so never fences a writer; both re-read and retry when they lose a put.
//   - Nothing is deleted that a manifest names, that could still be named, or that was trimmed less than an hour ago by
//     the store's clock (invariant 9).
//
// It relies on put-if-absent and on lists and reads that see every finished put, and on nothing else: no clock and no
// lease decides anything here. Times are for people and for the order of service.
package shardmanifest
