package ingest

import (
	"fmt"
	"strings"
)

// Stable codes of [Error].
const (
	CodeUnknownFormat = "ingest_unknown_format" // neither the name nor the content tells the format
	CodeUnreadable    = "ingest_unreadable"     // the file cannot be opened or read, or is damaged
	CodeBadRow        = "ingest_bad_row"        // a row breaks the rules of its format
	CodeBadValue      = "ingest_bad_value"      // a value does not fit the type of its column
	CodeSchemaClash   = "ingest_schema_clash"   // two files, or two rows of a JSON file, cannot share one schema
	CodeBadNames      = "ingest_bad_names"      // column names that a table cannot have
)

// Error says which input is wrong, where, and what to do about it.
type Error struct {
	Code   string
	File   string // as the user wrote it, or "standard input"
	Line   int64  // 1-based; 0 when lines mean nothing in the format
	Row    int64  // 1-based, the header not counted; 0 when the error concerns no row
	Column string // a dotted path for nested columns; empty when the error concerns no column
	Reason string
	Err    error // the cause, if another package found it
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ", line %d", e.Line)
	}
	if e.Row > 0 {
		fmt.Fprintf(&b, ", row %d", e.Row)
	}
	if e.Column != "" {
		fmt.Fprintf(&b, ", column %q", e.Column)
	}
	b.WriteString(": ")
	b.WriteString(e.Reason)
	if e.Err != nil {
		if e.Reason != "" {
			b.WriteString(": ")
		}
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// quote shortens outside text for a message.
func quote(text []byte) string {
	const shown = 40
	if len(text) > shown {
		return fmt.Sprintf("%q…", text[:shown])
	}
	return fmt.Sprintf("%q", text)
}
