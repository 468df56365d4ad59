// Package faultstore wraps any object store and injects faults at exactly the requests that a script names. It is the
// store of the fault tables and of the simulator; the idea is that of Pebble's vfs/errorfs.
//
// A script has one rule per line; blank lines and what follows a # at the beginning of a line are ignored.
//
//	OP PATTERN [#N | #N-M | #N+]: FAULT
//
//	put-if-absent flights/_delta_log/* #2: unknown, lands after 3 ops
//	get *: throttle
//
// OP is an operation as package objstore names it (get, get-range, head, list, put-if-absent, replace-if-match, delete,
// create, write, copy-range, complete, abort) or any. In PATTERN a * stands for any run of characters, slashes too; for a list it is
// matched against the prefix. #N picks the Nth operation that matches OP and PATTERN, counted from 1 since the rule was
// added; without it every one is picked. Of several rules that pick an operation the first decides. FAULT is one of
//
//	fail before send          Refused: the connection could not be made, nothing was sent
//	refuse                    Refused: access denied
//	throttle                  Unknown for a conditional mutation (503 Slow Down); it never lands
//	unknown, LANDING          Unknown: the answer was lost
//	hang, LANDING             no answer until the caller's context ends, then Unknown
//	slow DURATION             the request takes that long on the clock to arrive, then succeeds as usual
//
// and LANDING says what the store does with the request behind the caller's back:
//
//	applied                   it is carried out at once
//	lands after N ops         it is carried out when N other operations have ended
//	lands when told           it is carried out by Store.Land: after the caller died, say
//	never lands               it is lost
//
// For operations without an outcome (get, list, delete, complete …) Refused and Unknown are both an error.
//
// There are no goroutines and no chance: the same sequence of operations gives the same faults, and everything waits on
// the context or the injected clock, so that tests can run in a testing/synctest bubble.
package faultstore
