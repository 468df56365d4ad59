// Package table says what a Tidemark table is: a name, an append or upsert mode with fixed settings in the properties of
// a Delta table, a schema, and one life after another under the same log.
//
// What it guarantees:
//
//   - A table name is a path of plain segments, and no table is created inside or around another: another engine's
//     vacuum of the outer one would delete the inner one.
//   - Mode, key, sequence and buckets are fixed when a table is created. They are sealed by a fingerprint among the
//     properties, so a later change by anybody is an error of the table ([SettingsError]), never a different merge.
//   - Every create raises the incarnation and draws a new table id. Merged marks carry the id, so nothing that was
//     planned for one life of a name can commit to the next.
//   - Dropping is a commit that removes exactly the files of the version before it: a merge that commits meanwhile makes
//     the drop plan again, and a drop that commits meanwhile makes the merge do so.
//
// It relies on internal/deltalog for the log and on internal/shardmanifest for retiring the shards of a dropped table.
package table
