// Package schema is what a table's columns may be: Delta's schema, its JSON, the Arrow types it stands for, how a schema
// may evolve, and how a record of another shape is brought into a table's.
//
// It guarantees:
//   - every Arrow type is stored as it is, widened by a rule of widenings.go, or refused by name with a remedy; nothing
//     is rounded, cut or reinterpreted silently, and a value that does not survive its widening is an error that names
//     column and row;
//   - a schema read from Delta's JSON is written back with the same fields, order and metadata;
//   - Evolve is a pure function; the set of columns it gives does not depend on the order of either side's columns, and
//     every change it makes is one that Delta readers know: a new nullable column, or a widening of the protocol, which
//     it records as the protocol asks (delta.typeChanges);
//   - timestamps are microseconds: with any zone they are Delta's timestamp (an instant, kept as UTC), without one
//     they are timestamp_ntz.
//
// It relies on nothing but Arrow: no storage, no clock. Project is where rows enter a table's shape, both when a writer
// appends and when a merge reads an older file.
package schema

// OpColumn is the reserved column of generations of upsert tables that says what a row does: "u" or null puts it, "d"
// deletes its key. It is never in a table's schema.
const OpColumn = "_op"
