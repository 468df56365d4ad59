package deltalog

import (
	"errors"
	"fmt"

	"tidemark/internal/objstore"
)

var (
	// ErrNoTable: there is no Delta log under the name. It is an objstore.ErrNotFound.
	ErrNoTable = fmt.Errorf("there is no Delta table: %w", objstore.ErrNotFound)
	// ErrExists: a table was to be created where a log exists.
	ErrExists = errors.New("a Delta table exists there already")
	// ErrAlreadyMerged: every mark is at or past ours. The work is done; our own files may go, unless the result
	// says Slow.
	ErrAlreadyMerged = errors.New("another execution has merged these generations already")
	// ErrInDoubt: nobody knows whether the commit was or will be applied. Nothing it refers to may be deleted. The
	// next plan from a fresh snapshot finds out.
	ErrInDoubt = errors.New("in doubt: the commit was sent and no answer came")
)

// PlanAgainError means that the commit was not made and must be planned again from a fresh snapshot.
type PlanAgainError struct {
	Table  string
	Reason string
}

func (e *PlanAgainError) Error() string {
	return fmt.Sprintf("table %s: plan again: %s", e.Table, e.Reason)
}

// Code is the error's stable code.
func (e *PlanAgainError) Code() string { return "plan_again" }

// GapError means that a version which the log needs is missing: somebody deleted it, or cleaned the log without a
// checkpoint.
type GapError struct {
	Table   string
	Missing int64 // the lowest missing version
	Next    int64 // the lowest version found above it, or -1
}

func (e *GapError) Error() string {
	found := "nothing later is there"
	if e.Next >= 0 {
		found = fmt.Sprintf("version %d is there", e.Next)
	}
	return fmt.Sprintf("table %s: version %d is missing from _delta_log (%s) and no checkpoint covers it; "+
		"restore the file from a backup, or write a checkpoint with the engine that removed it", e.Table, e.Missing, found)
}

// Code is the error's stable code.
func (e *GapError) Code() string { return "log_gap" }

// CommitFileError means that a version's file is not a valid Delta commit.
type CommitFileError struct {
	Table   string
	Version int64
	Err     error
}

func (e *CommitFileError) Error() string {
	return fmt.Sprintf("table %s: version %d of the log cannot be read: %v; restore _delta_log/%s",
		e.Table, e.Version, e.Err, commitName(e.Version))
}

func (e *CommitFileError) Unwrap() error { return e.Err }

// Code is the error's stable code.
func (e *CommitFileError) Code() string { return "commit_unreadable" }

// CheckpointError means that a checkpoint file is damaged or not a valid Delta checkpoint.
type CheckpointError struct {
	Key string // of the file
	Err error
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("checkpoint %s cannot be read: %v; delete it if the versions below it are still in the log", e.Key, e.Err)
}

func (e *CheckpointError) Unwrap() error { return e.Err }

// Code is the error's stable code.
func (e *CheckpointError) Code() string { return "checkpoint_unreadable" }

// UnsupportedError means that the table requires something which Tidemark does not do. Nothing has been written.
type UnsupportedError struct {
	Table string
	Name  string // of the feature, property or column, as Delta spells it
	Why   string // what it would take, and what to do
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("table %s uses %s: %s", e.Table, e.Name, e.Why)
}

// Code is the error's stable code.
func (e *UnsupportedError) Code() string { return "unsupported_table" }

// ForeignWriteError means that another engine changed the data of an upsert table, which its protocol forbids. Keys may
// now be there twice or in a wrong bucket, so merging stops.
type ForeignWriteError struct {
	Table      string
	Version    int64
	Engine     string // as the commit names it
	Checkpoint bool   // seen in the checkpoint of Version: the write was then or before
}

func (e *ForeignWriteError) Error() string {
	engine, when := e.Engine, "version"
	if engine == "" {
		engine = "another engine"
	}
	if e.Checkpoint {
		when = "a version up to"
	}
	return fmt.Sprintf("upsert table %s: %s %d was written by %s, but only Tidemark may change an upsert table; "+
		"restore the table to the version before, or drop and create it again", e.Table, when, e.Version, engine)
}

// Code is the error's stable code.
func (e *ForeignWriteError) Code() string { return "foreign_write" }
