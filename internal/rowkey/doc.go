// Package rowkey turns the key columns of a row into bytes whose order is the order of the key, so that comparing,
// hashing, bounding and sorting keys is comparing, hashing, bounding and sorting bytes.
//
// It guarantees:
//   - bytes.Compare of two keys is the order of their columns, first column first: numbers by value, text and binary by
//     bytes, false before true, dates and timestamps by time;
//   - equal keys have equal bytes: every NaN is one NaN, which comes last, and −0.0 is 0.0;
//   - no key is a prefix of another, so keys can be cut to a prefix, or padded, and stay ordered;
//   - widening a column from byte to long, from float to double or to a decimal of more digits keeps every key's bytes,
//     so the bucket of a row and the key ranges of old files stay right;
//   - Bucket depends on the key's bytes and the number of buckets alone, forever: rows are filed under it.
//
// It relies on records in their table's shape (see internal/schema's Project). A null in a key column is an error that
// names column and row, and columns of other types, structs, lists and maps are refused by name.
//
// Keys hold all keys of a batch in one buffer; neither encoding into a used one, nor reading, nor comparing allocates.
package rowkey
