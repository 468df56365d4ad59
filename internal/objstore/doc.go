// Package objstore is the edge to object storage: one small set of operations over memory, local disk and S3.
//
// It guarantees:
//
//   - Every conditional mutation ends in exactly one [Outcome]. Applied: the store said yes. Refused: the store said no,
//     or no request was ever sent. Unknown: a request went out and nobody knows; it may have happened, or may still
//     happen, and whatever it might have made visible must not be deleted.
//   - [PutOnce] and [Replace] settle an Unknown as far as it can be settled, by re-issuing and reading back.
//   - A [Scope] that is fenced, or whose deadline has passed on the monotonic clock, sends nothing more: no request, no
//     further part of an upload, no retry inside a client. This is invariant 7, "a fenced process sends nothing more".
//   - An upload is invisible until it is complete, and listings are in byte order of the keys.
//
// It relies on:
//
//   - the store's promise that a put-if-absent has one winner and that a stale if-match is refused; [Probe] tests both
//     before a root is used. Conditional deletes are never relied on;
//   - authors: every small record carries a nonce, so equal bytes at a key are the author's own and nobody else's;
//   - uploads going to fresh names. What Complete does to an object that exists already is not defined.
//
// Files: store.go is the contract, errors.go the errors; memory.go, local*.go and s3*.go are the stores; once.go
// settles outcomes; scope.go fences; probe.go tests a root; instrument.go counts requests.
package objstore
