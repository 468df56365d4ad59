package merge

import (
	"context"
	"errors"
	"fmt"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/rowkey"
	"tidemark/internal/schema"
	"tidemark/internal/table"
)

// Class says who has to act on a failure, and so how soon the same work is tried again. It is decided by the type of
// an error, never by its text.
type Class string

const (
	// Retryable: the next attempt may well succeed (store unreachable, lost race, commit in doubt).
	Retryable Class = "retryable"
	// Data: the bytes in storage are wrong, and stay wrong until somebody looks (damaged file, schema clash,
	// mark regressed).
	Data Class = "data"
	// Config: the deployment or the table's settings are wrong (credentials, missing bucket, unknown feature).
	Config Class = "config"
	// Lost: this execution's right to work is gone (fenced, cancelled). Not counted against the shard.
	Lost Class = "lost"
)

// Codes of failures. They are stable: metrics, outcome records and `tidemark explain` show them.
const (
	CodeDamaged       = "generation_damaged" // checksum, footer or a page of a generation is wrong
	CodeMissing       = "generation_missing" // the manifest names a file that is not there
	CodeSchemaClash   = "schema_clash"       // a generation's schema cannot become the table's
	CodeRowsRefused   = "rows_refused"       // a row that the table's rules exclude: a null key, an unknown _op …
	CodeShardDamaged  = "manifest_damaged"   // the shard's manifest makes no sense
	CodeMarkRegressed = "mark_regressed"     // the table's merged mark went down
	CodeWrongBucket   = "wrong_bucket"       // a shard of an upsert table that is not one of its buckets
	CodeBaseDamaged   = "base_file_damaged"  // a base file cannot be read
	CodeOutputDamaged = "output_damaged"     // what was written does not read back
	CodeTableDropped  = "table_dropped"      // there is nothing to merge into any more
	CodeTable         = "table_unreadable"   // the table's log or settings cannot be used
	CodeUnsupported   = "unsupported_table"  // the table needs something of Delta that Tidemark does not do
	CodeConflict      = "conflict"           // other writers won too many races in a row
	CodeInDoubt       = "commit_in_doubt"    // nobody knows whether the commit was made
	CodeTooOld        = "execution_too_old"  // a sweep might already take this execution's files
	CodeStore         = "store_failed"       // the object store did not do what was asked
	CodeStoreRefused  = "store_refused"      // the object store refuses: permissions, a missing bucket
	CodeStopped       = "stopped"            // fenced or cancelled
	CodeInternal      = "unexpected"         // nothing else fits
)

// Error is a failure of a merge: of one shard at one generation, or of the whole execution when Shard is empty. Work says
// what it is a failure of instead: compaction, checkpoint, cleanup.
type Error struct {
	Work       string
	Code       string
	Class      Class
	Table      string
	Shard      string
	Generation uint64 // 0: not about one generation
	Err        error
}

func (e *Error) Error() string {
	switch {
	case e.Work != "":
		return fmt.Sprintf("%s of table %s: %v", e.Work, e.Table, e.Err)
	case e.Shard == "":
		return fmt.Sprintf("merge of table %s: %v", e.Table, e.Err)
	case e.Generation == 0:
		return fmt.Sprintf("merge of table %s, shard %s: %v", e.Table, e.Shard, e.Err)
	}
	return fmt.Sprintf("merge of table %s, shard %s, generation %d: %v", e.Table, e.Shard, e.Generation, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ClassOf is the class of any error that Run or Scan returned. An error of unknown type is worth another try.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Retryable
}

// CodeOf is the code of any error that Run or Scan returned.
func CodeOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// inRows is the failure code for rows or schemas that do not fit the table; damaged is for anything else.
func inRows(err error, damaged string) string {
	var (
		clash      *schema.ClashError
		refused    *schema.RefusedError
		value      *schema.ValueError
		null       *rowkey.NullError
		operations *operationError
	)
	switch {
	case errors.As(err, &clash), errors.As(err, &refused):
		return CodeSchemaClash
	case errors.As(err, &value), errors.As(err, &null), errors.As(err, &operations):
		return CodeRowsRefused
	}
	return damaged
}

// storeFailed says whether the object store, or the right to use it, is why something failed, rather than the bytes
// that it gave.
func storeFailed(err error) bool {
	var e *objstore.Error
	return errors.As(err, &e) && e.Code != objstore.CodeNotFound || errors.Is(err, objstore.ErrFenced) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Classified gives an error of other work on a table the code and class that it would have as a merge's: what the store or
// the table is refused for needs a person just as much. nil stays nil.
func Classified(ctx context.Context, work, tableName string, err error) error {
	if err == nil {
		return nil
	}
	e := *whole(ctx, tableName, err)
	e.Work = work
	return &e
}

// whole turns any error into the failure of a whole execution.
func whole(ctx context.Context, tableName string, err error) *Error {
	var done *Error
	if errors.As(err, &done) {
		return done
	}
	e := &Error{Table: tableName, Code: CodeInternal, Class: Retryable, Err: err}
	var (
		stored      *objstore.Error
		unsupported *deltalog.UnsupportedError
		foreign     *deltalog.ForeignWriteError
		output      *outputError
		planAgain   *deltalog.PlanAgainError
		coded       interface{ Code() string } // what the log, the settings or the schema are refused for
	)
	switch {
	case errors.Is(err, objstore.ErrFenced), ctx.Err() != nil:
		e.Code, e.Class = CodeStopped, Lost
	case errors.As(err, &output):
		e.Code = CodeOutputDamaged
	case errors.As(err, &planAgain):
		e.Code = CodeConflict
	case errors.Is(err, deltalog.ErrInDoubt):
		e.Code = CodeInDoubt
	case errors.Is(err, table.ErrDropped), errors.Is(err, table.ErrUnknownTable):
		e.Code, e.Class = CodeTableDropped, Lost
	case errors.As(err, &unsupported):
		e.Code, e.Class = CodeUnsupported, Config
	case errors.As(err, &foreign):
		e.Code, e.Class = CodeTable, Data
	case errors.As(err, &stored):
		e.Code = CodeStore
		if stored.Code == objstore.CodeDenied || stored.Code == objstore.CodeBadRoot || stored.Code == objstore.CodeInvalid {
			e.Code, e.Class = CodeStoreRefused, Config
		}
	case errors.Is(err, table.ErrNotAdopted):
		e.Code, e.Class = CodeTable, Config
	case errors.As(err, &coded):
		e.Code, e.Class = CodeTable, Data
	}
	return e
}
