// Package maintain keeps a table small: it trims merged generations from the manifests of its shards, deletes files that
// nothing can refer to any more, cleans the Delta log, and writes checkpoints. It runs under the table's log turn, beside
// merges; two at once do no harm, they find the same things done.
//
// It guarantees (invariant 9):
//   - A generation is trimmed only up to the merged mark that a Delta commit in storage holds, and its file deleted only
//     an hour after that.
//   - A generation file that no manifest names is deleted only if its number is sealed from another file.
//   - A base data file is deleted only if the newest snapshot neither holds it nor remembers its removal within the
//     table's retention, and the file is older than that retention or 24 hours, whichever is longer: an execution may not
//     commit any more at half of the retention.
//   - A shard whose merged mark went back is left alone and reported: its files may be what repairs the table.
//   - What is left of a dropped table goes once its retention has passed since; its log and each shard's last word stay.
//   - Ages compare the store's own times with the store's own clock.
//
// Everything is planned before anything is deleted. Plan is the plan alone, Cleanup makes and applies it, and Due says,
// without any I/O, when that is worth a turn. Purge is for a table that is dropped, and needs no turn.
package maintain
