package parquetfile

import (
	"fmt"
	"strings"
)

// FileError says that a file is damaged, foreign, or not what its checksum says, and where.
type FileError struct {
	Path     string
	RowGroup int    // from 0; -1 if it is not about one
	Column   string // dotted; empty if it is not about one
	Err      error
}

// Code is stable, for machines.
func (*FileError) Code() string { return "damaged_file" }

func (e *FileError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "parquet file %s", e.Path)
	if e.RowGroup >= 0 {
		fmt.Fprintf(&b, ", row group %d", e.RowGroup)
	}
	if e.Column != "" {
		fmt.Fprintf(&b, ", column %q", e.Column)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

func (e *FileError) Unwrap() error { return e.Err }

// contain runs code of arrow-go on bytes nobody vouches for and turns its panics into errors.
func contain(run func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the bytes do not decode: %v", r)
		}
	}()
	return run()
}
