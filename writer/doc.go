// Package writer appends rows to a Tidemark table.
//
// A writer claims one shard of a table, appends Arrow records, and seals them from time to time into a numbered,
// immutable generation. Executors fold sealed generations into the table's Delta log, exactly once and in order; until
// then cat --fresh reads them beside the table. Every table may have any number of writers, each on a shard of its own.
//
//	w, err := writer.Claim(ctx, writer.Config{Root: "tidemark-data", Table: "events", Shard: "rollout-0"})
//	err = w.Append(ctx, record)
//	sealed, err := w.Seal(ctx) // from here on the rows are durable
//	err = w.Close(ctx)
//
// It guarantees:
//   - Rows are acknowledged by Seal, not by Append. Acknowledged rows are in exactly one generation, whatever answers
//     were lost on the way and however often Seal was called again (invariant 1).
//   - Within a shard, generations and the rows in them keep the order in which they were appended (invariant 2).
//   - The later of two claims of a shard wins. The earlier writer learns it at its next Seal, as a *FencedError that hands
//     back exactly its unsealed rows; should no manifest be able to tell any more, it hands them back as in doubt.
//   - A record is accepted whole or refused whole, before anything of it is stored: a column that clashes with the
//     table's, a null key, a null sequence, an unknown _op or a row of another bucket is an error that names column and
//     row.
//   - Memory is bounded: unsealed rows are kept until they are sealed, at most Config.BufferBytes of them, and sealing an
//     upsert generation needs as much again to sort.
//
// Rows of an upsert table carry the table's columns and, if wanted, the column _op: "u" or null puts the row, "d" deletes
// its key. Its shards are its buckets; a Router files every row under its own.
//
// New columns and wider types are accepted as far as the Delta protocol allows and go into the table with the merge that
// first meets them. Backpressure: with MaxPending generations sealed and not merged, Append waits or refuses (see
// Config.OnBacklog).
//
// It relies on the root's put-if-absent, and on etcd for nothing but telling masters sooner: a writer without etcd works,
// and a master's scan finds what it sealed.
package writer
