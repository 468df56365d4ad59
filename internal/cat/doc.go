// Package cat writes rows for people and for other programs: as CSV, JSON lines or Parquet, all columns or some, all rows
// or the first ones.
//
// It guarantees:
//   - every value is written exactly: integers and decimals with all their digits, floats with the shortest digits that
//     read back as the same float, timestamps with their microseconds;
//   - what it writes as CSV or JSON, `tidemark ingest` reads back into a table of the same schema as the same rows;
//   - rows are streamed: memory does not grow with their number.
//
// How values look, in CSV and as JSON:
//
//	null         nothing                          null
//	boolean      true, false                      the same
//	integer      -12                              the same; beyond 2^53 some JSON readers round it
//	float        1.0, 2.5, 1e-07                  the same; "NaN", "Infinity" and "-Infinity" as strings in JSON, which
//	             NaN, Infinity, -Infinity         knows no such numbers
//	decimal      12.50, with the digits of its scale   the same, as a number
//	string       as it is; an empty one is ""     a string; bytes that are not UTF-8 become U+FFFD
//	binary       base64                           a base64 string
//	date         2006-01-31                       a string
//	timestamp    2006-01-31T15:04:05.25           a string; with a Z behind it if it is an instant
//	struct       its JSON                         an object
//	list         its JSON                         an array
//	map          its JSON                         an object if the keys are strings, else an array of keys and values
//
// CSV is RFC 4180 with a header line and LF line ends. A field is quoted only if it must be: if it holds a comma, a quote
// or a line break, or is an empty string, which is how it is told from a null.
//
// It relies on the iterator it is given for the order and the freshness of rows. It carries no invariant.
package cat
