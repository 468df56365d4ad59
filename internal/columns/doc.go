// Package columns moves rows between Arrow records column by column: Take gathers rows by index, Concat assembles a
// record from runs of rows of other records. Both copy memory ranges, never cell by cell where a range will do; they are
// what sorting and the k-way merge are made of.
//
// It guarantees, for every type a Tidemark file holds (booleans, integers, floats, decimals, dates, timestamps, strings,
// binaries, and structs, lists and maps of them):
//   - the result has exactly the rows asked for, in order, with their nulls;
//   - the result starts at offset zero and is canonical: a null list holds no elements, so that the Parquet encoder
//     accepts it, whatever the source looked like;
//   - no string, binary or list array crosses the 2^31-1 offsets of its type: ErrTooLarge says so before anything is
//     allocated for it, and the caller cuts its batch;
//   - on an error nothing stays allocated.
//
// It relies on its sources being valid Arrow arrays; it does not check offsets. Other types are refused by name.
package columns
