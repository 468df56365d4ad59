package writer

import (
	"errors"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/shardmanifest"
)

var (
	// ErrFenced: another writer has claimed the shard, or its table was dropped. It is always a *FencedError.
	ErrFenced = shardmanifest.ErrFenced
	// ErrRetired: the shard's table was dropped or created anew. Errors of Seal that are ErrRetired are *FencedError too.
	ErrRetired = shardmanifest.ErrRetired
	// ErrOpen: Config.IfFree was set, and another writer has the shard open.
	ErrOpen = shardmanifest.ErrOpen
	// ErrInDoubt: the store has not said whether the generation is sealed. Seal again, until it says so; the rows are
	// kept, and are sealed once whatever happens.
	ErrInDoubt = shardmanifest.ErrInDoubt
	// ErrBacklogged: too many generations of the shard are sealed and not merged or trimmed. The rows given to a
	// refused Append are not taken; those of a refused Seal are kept.
	ErrBacklogged = errors.New("the shard is backlogged")
	// ErrBufferFull: the record would exceed Config.BufferBytes. It is not taken; Seal makes room.
	ErrBufferFull = errors.New("the buffer of unsealed rows is full")
	// ErrClosed: the writer was closed, abandoned or fenced.
	ErrClosed = errors.New("the writer is closed")
)

// FencedError ends a writer. It hands back the rows that the caller must think about; the caller owns the records and
// releases them. They are in the shape of the table, with the column _op on upsert tables, and in append order. Rows that
// were given to an earlier Seal and are in neither list have turned out to be sealed.
type FencedError struct {
	Table, Shard string
	// By is the label and id of the writer that claimed the shard; empty when the shard was retired.
	By      string
	ByEpoch uint64
	// Retired: nobody took the shard, its table is gone.
	Retired bool
	// Unsealed rows are in no generation, and never will be by this writer.
	Unsealed []arrow.Record
	// InDoubt rows may be sealed or not; no manifest can tell any more.
	InDoubt []arrow.Record

	byID string // the writer id of By
}

func (e *FencedError) Error() string {
	cause := fmt.Sprintf("writer %s claimed it with epoch %d", e.By, e.ByEpoch)
	if e.Retired {
		cause = "the shard is retired, since its table was dropped or created anew"
	}
	return fmt.Sprintf("shard %s of table %s: fenced: %s; %d rows are not sealed, %d are in doubt; claim a shard and append them again",
		e.Shard, e.Table, cause, countRows(e.Unsealed), countRows(e.InDoubt))
}

// Is makes errors.Is(err, ErrFenced) true, and errors.Is(err, ErrRetired) if the shard is retired.
func (e *FencedError) Is(target error) bool {
	return target == ErrFenced || e.Retired && target == ErrRetired
}

// Code is stable, for machines.
func (e *FencedError) Code() string {
	if e.Retired {
		return "shard_retired"
	}
	return "writer_fenced"
}

func countRows(records []arrow.Record) int64 {
	var n int64
	for _, r := range records {
		n += r.NumRows()
	}
	return n
}

// RowError refuses a record because of one of its rows.
type RowError struct {
	Table, Column string
	Row           int // within the record, from 0
	Reason        string
}

func (e *RowError) Error() string {
	return fmt.Sprintf("table %s: column %s, row %d: %s", e.Table, e.Column, e.Row, e.Reason)
}

// Code is stable, for machines.
func (*RowError) Code() string { return "row_refused" }
