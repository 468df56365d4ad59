// Package partition knows how Delta tables keep partitions: the columns that may partition a table, their values as the
// log writes them, and the folders that hold a partition's files.
//
// Data files of a partitioned table do not hold its partition columns. Every row of a file has the same values there, and
// the log states them as text beside the file, in the form that the Delta protocol's section "Partition Value
// Serialization" gives for each type. The empty text is null, whatever the type, so an empty string cannot be told from
// null: a table that is partitioned by it reads back null.
package partition
