package control

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/deltalog"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/table"
)

// Codes of errors. They are stable. Errors with codes of their own (unknown_table, table_name, policy_invalid …) are
// passed through.
const (
	CodeNoCluster       = "no_cluster"        // no master has served this prefix yet
	CodeUnreachable     = "etcd_unreachable"  // etcd does not answer
	CodeNoSpace         = "etcd_no_space"     // etcd takes only deletes
	CodeStore           = "store_failed"      // the object store did not do what was asked
	CodeNotSeen         = "table_not_seen"    // no master has scanned the table yet
	CodeDropped         = "table_dropped"     // the table was dropped
	CodeNotAdopted      = "table_not_adopted" // another engine's table
	CodeUnknownShard    = "unknown_shard"
	CodeUnknownExecutor = "unknown_executor"
	CodeUnknownRun      = "unknown_execution"
	CodeNothingFailed   = "nothing_failed"    // there is no failure to retry
	CodeNotTheFailing   = "not_the_failing"   // skip: another generation, or none, is the one that fails
	CodeReasonMissing   = "reason_missing"    // skip needs a reason
	CodeTurnHeld        = "turn_held"         // an execution is at it
	CodeAdvanced        = "advanced"          // the execution moved or ended meanwhile
	CodeContended       = "contended"         // others kept changing the same thing
	CodeNothingToChange = "nothing_to_change" // an empty list of changes
	CodeInternal        = "unexpected"
)

// Error is a refusal: nothing was changed.
type Error struct {
	code    string
	message string
	err     error
}

func (e *Error) Error() string { return e.message }

// Code is the error's stable code.
func (e *Error) Code() string { return e.code }

// Unwrap is what caused it, if anything did.
func (e *Error) Unwrap() error { return e.err }

func refuse(code, format string, args ...any) error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{code: code, message: wrapped.Error(), err: errors.Unwrap(wrapped)}
}

// CodeOf is the stable code of any error of this package.
func CodeOf(err error) string {
	if coded := (interface{ Code() string })(nil); errors.As(err, &coded) {
		return coded.Code()
	}
	var stored *objstore.Error
	var planAgain *deltalog.PlanAgainError
	switch {
	case errors.Is(err, etcd.ErrNoCluster):
		return CodeNoCluster
	case errors.Is(err, etcd.ErrNoSpace):
		return CodeNoSpace
	case errors.Is(err, etcd.ErrUnreachable), errors.Is(err, etcd.ErrUnknown), errors.Is(err, context.DeadlineExceeded):
		return CodeUnreachable
	case errors.Is(err, table.ErrDropped):
		return CodeDropped
	case errors.Is(err, table.ErrUnknownTable):
		return "unknown_table"
	case errors.Is(err, table.ErrNotAdopted):
		return CodeNotAdopted
	case errors.As(err, &planAgain):
		return CodeContended
	case errors.As(err, &stored):
		return CodeStore
	}
	return CodeInternal
}
