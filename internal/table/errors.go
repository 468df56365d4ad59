package table

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrUnknownTable: no table of that name.
	ErrUnknownTable = errors.New("unknown table")
	// ErrDropped: the table was dropped. Creating it again begins a new life under the same log.
	ErrDropped = errors.New("the table was dropped")
	// ErrTableExists: a table of that name exists.
	ErrTableExists = errors.New("the table exists already")
	// ErrNotAdopted: there is a Delta table, but it is not Tidemark's.
	ErrNotAdopted = errors.New("the Delta table there was made by another engine and is not Tidemark's")
)

// UnknownTableError names the table that does not exist and the ones that may have been meant. It is an
// ErrUnknownTable.
type UnknownTableError struct {
	Name  string
	Root  string
	Close []string // names like it, beside it
}

func (e *UnknownTableError) Error() string {
	text := fmt.Sprintf("unknown table %q under %s", e.Name, e.Root)
	if len(e.Close) > 0 {
		text += "; did you mean " + strings.Join(e.Close, " or ") + "?"
	}
	return text
}

// Is makes it an ErrUnknownTable.
func (e *UnknownTableError) Is(target error) bool { return target == ErrUnknownTable }

// Code is the error's stable code.
func (e *UnknownTableError) Code() string { return "unknown_table" }

// NameError says why a name cannot be a table's.
type NameError struct {
	Name   string
	Reason string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("%q cannot name a table: %s", e.Name, e.Reason)
}

// Code is the error's stable code.
func (e *NameError) Code() string { return "table_name" }

// DefinitionError says what is wrong with the definition of a new table.
type DefinitionError struct {
	Name   string
	Reason string
}

func (e *DefinitionError) Error() string {
	return fmt.Sprintf("table %s cannot be created: %s", e.Name, e.Reason)
}

// Code is the error's stable code.
func (e *DefinitionError) Code() string { return "table_definition" }

// SettingsError means that Tidemark's own properties of a table make no sense or were changed after it was created. The
// table stops: what was merged by the old settings does not fit the new ones.
type SettingsError struct {
	TableID string
	Reason  string
}

func (e *SettingsError) Error() string {
	return fmt.Sprintf("the settings of table id %s are unusable: %s; put the old properties back, or drop and create the table again", e.TableID, e.Reason)
}

// Code is the error's stable code.
func (e *SettingsError) Code() string { return "settings_changed" }
