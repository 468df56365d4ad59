// Package columnchunk encodes one column of one Parquet row group from Arrow arrays: dictionary and data pages, levels,
// compression and statistics. It exists because this is where nearly all time of a merge goes: it takes values straight
// from Arrow's buffers, a batch at a time, where a general writer goes value by value.
//
// It guarantees:
//   - the pages are plain Parquet (data pages V1, PLAIN, RLE_DICTIONARY) that every reader knows;
//   - a chunk is a pure function of the arrays added; columns share nothing, so a Group encodes them side by side;
//   - chunks that were encoded here are added to others without decoding what need not be: recode.go says how;
//   - memory is bounded by the encoded pages, one open page, and a dictionary of DictionaryBytes;
//   - minimum and maximum in the chunk's statistics never exclude a value; floats and decimals have none.
//
// It relies on its caller to lay out chunks in a file and to describe them in the footer. Flat columns of booleans,
// integers, floats, decimals, dates, timestamps, strings and binaries are encoded; Supports says so before anything else.
package columnchunk
