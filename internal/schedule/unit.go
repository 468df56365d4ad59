package schedule

import (
	"encoding/json"
	"fmt"

	"tidemark/internal/turnset"
)

// Kind is what an execution of a unit does.
type Kind string

const (
	KindMerge      Kind = "merge"
	KindCompact    Kind = "compact"
	KindCheckpoint Kind = "checkpoint"
	KindCleanup    Kind = "cleanup"
)

// Groups is a set of a table's groups, or its log.
type Groups = turnset.Set

const (
	// AllGroups is a whole table.
	AllGroups = turnset.All
	// Log is the turn of checkpoints, cleanup and compaction.
	Log = turnset.Log
)

// Unit is one piece of schedulable work: the value of a ready key. Class, Order, Table and Groups are its key.
type Unit struct {
	V       int    `json:"v"`
	ID      string `json:"id"`
	Kind    Kind   `json:"kind"`
	Table   string `json:"table"`
	TableID string `json:"table_id,omitempty"`
	// Incarnation is the table's life that the owner knows, from 1. What executions of former lives left behind says nothing
	// of it.
	Incarnation int64   `json:"incarnation,omitempty"`
	Groups      Groups  `json:"groups"`
	Class       Class   `json:"class"`
	Order       string  `json:"order"`
	Score       float64 `json:"score"`
	SinceMS     int64   `json:"since_ms"` // when its oldest part began to wait
	Bytes       int64   `json:"bytes"`    // pending when it was queued
	Gens        uint64  `json:"gens"`
	Shards      int     `json:"shards"`
	Upsert      bool    `json:"upsert,omitempty"` // of an upsert table, whose merges take more memory
	Reason      Code    `json:"reason"`           // why it is due
	By          string  `json:"by,omitempty"`     // who asked, for a manual request
	Note        string  `json:"note,omitempty"`   // what a maintenance unit found to do
}

// Marshal is the unit's JSON.
func (u Unit) Marshal() ([]byte, error) {
	u.V = 1
	return json.Marshal(u)
}

// ParseUnit reads a ready value. A unit of another version, without groups or of an unknown kind is refused: its reader
// leaves it in the queue for somebody who knows it.
func ParseUnit(value []byte) (Unit, error) {
	var u Unit
	if err := json.Unmarshal(value, &u); err != nil {
		return Unit{}, fmt.Errorf("ready unit is not JSON: %w", err)
	}
	if u.V != 1 {
		return Unit{}, fmt.Errorf("ready unit has version %d, and this program knows version 1", u.V)
	}
	if u.Table == "" || u.Groups == 0 {
		return Unit{}, fmt.Errorf("ready unit %s names no table or no groups", u.ID)
	}
	if onLog := u.Kind == KindCheckpoint || u.Kind == KindCleanup || u.Kind == KindCompact; onLog != (u.Groups == Log) {
		return Unit{}, fmt.Errorf("ready unit %s of table %s: kind %q does not run on %s", u.ID, u.Table, u.Kind, u.Groups)
	}
	return u, nil
}
