// Package ingest turns files into the rows of a table: it reads Parquet, CSV, JSON and Arrow IPC as Arrow records
// ([Open], [Source]) and hands them to writers ([Load]).
//
// It guarantees:
//   - a value reaches the table exactly as the file has it, or the ingest fails naming file, line or row, and column;
//     nothing is rounded (decimal fractions become the nearest double), cut, replaced or guessed row by row;
//   - the type of a text column depends on the set of its values, never on their order, on a sample, or on how the rows
//     are spread over files;
//   - memory is bounded by a record (8,192 rows or 8 MiB of text), or one row (64 MiB at most), never by a file;
//   - damaged or hostile files end in an error, never in a panic.
//
// Types of CSV and JSON columns, unless the table exists and says otherwise: booleans (true, false); int64; double for
// numbers with a point or an exponent, and for a mixture of those with integers up to 2^53; date and timestamp (with
// microseconds; with a zone it is an instant) for ISO 8601 text; otherwise string, which keeps the source text. So a
// column with one leading zero, one integer beyond int64, or one odd date is a string, and all of it is kept. In CSV an
// empty field is null, and "" is an empty string in string columns. In JSON, objects become structs and arrays lists;
// numbers or booleans among strings become their source text; columns of nulls only become strings; a column that holds
// both objects and plain values is refused, naming the rows.
//
// Column names that other engines cannot read are refused, or replaced if [Options].Sanitize says so: those with a space or
// any of ,;{}()= and, because Trino keeps such names for hidden columns and shells expand them, with a $.
//
// It relies on internal/schema for names and for the shape of rows, and on the writer for fencing and sealing; of the
// invariants it carries 2 (in order): the rows of a key reach its shard in the order of the file.
package ingest
