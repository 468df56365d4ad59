// Package parquetfile writes and reads one Parquet file in bounded memory. Generations and base data files are such
// files.
//
// The Writer guarantees:
//   - what Close returned without error is a whole file: the sink took every byte, the footer parses and counts every
//     row, and Summary describes it (rows, bytes, XXH3, Delta statistics);
//   - statistics never exclude a row: a float column with a NaN has no maximum, long text is cut to a prefix below and
//     raised above, times are rounded outwards to the milliseconds that Delta writes;
//   - text is UTF-8 and columns that may not be null have no nulls; a record that breaks this is refused whole, with
//     column and row, and the file stays good;
//   - row groups of other files are taken up as they are (CopyRowGroup) or recoded page by page (Recode), with the rows and
//     statistics that decoding and writing them would give, or with fewer statistics;
//   - at most one row group is in memory, and a row group holds a bounded number of rows, encoded and raw bytes.
//
// The Reader guarantees:
//   - bytes of any kind, truncated, flipped or foreign, end in a *FileError naming file, row group and column: never in
//     a panic, and never in an allocation that the file's size does not justify;
//   - with a checksum given, no row of a file that differs from it is returned;
//   - row groups can be had encoded (RawRowGroup), which a Writer of the same columns copies as they are;
//   - at most one row group is in memory, fetched with few ranged reads, plus the file itself if it was fetched whole;
//   - batches are cut by rows and bytes, so that no string or binary array comes near 2 GiB.
//
// It relies on the object store for bytes and on arrow-go for the encodings; what it does not trust of arrow-go (panics,
// sizes it takes from the file, errors it drops) it checks itself. Types are those of internal/schema; nothing beyond
// the Parquet schema is needed to read a file back right.
package parquetfile
