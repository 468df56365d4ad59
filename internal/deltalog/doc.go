// Package deltalog speaks the Delta Lake protocol: it replays a table's log into snapshots, commits to it without ever
// overwriting anybody's commit, and writes and cleans up checkpoints.
//
// What it guarantees:
//
//   - A commit is one put-if-absent of the next version. Before every put, [Decide] looks at every version since the
//     one the plan was made from and says whether the work is already merged, may go on, or must be planned again.
//   - The rows and the merged marks (`txn` actions) are in one commit, so data and marks cannot disagree (invariants 1
//     and 2 of the overview). A mark is never written unless it equals the plan's mark at that moment.
//   - A put whose outcome is unknown is reported as [ErrInDoubt], never as failed. A put that took longer than a minute
//     counts only if a snapshot loaded afterwards holds it: another engine's cleanup may have deleted its number, so a
//     late put can succeed although its change is nowhere.
//   - A log with a missing version is an error that names it ([GapError]), never a shorter table.
//   - A table that requires what this package lacks is refused before the first byte is written, naming the
//     feature or property ([UnsupportedError]).
//   - Outside bytes (commits, checkpoints, `_last_checkpoint`) yield typed errors and bounded memory, never a panic.
//
// What it relies on: put-if-absent as [objstore.PutOnce] provides it, listings that show every completed put, and a
// log retention of at least an hour (shorter ones are refused).
//
// A [Snapshot] is immutable and shares what did not change with the one it was refreshed from, so a refresh costs what
// the new versions changed, whatever the size of the table.
package deltalog
