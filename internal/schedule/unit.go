package schedule

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"strconv"
)

// Kind is what an execution of a unit does.
type Kind string

const (
	KindMerge      Kind = "merge"
	KindCompact    Kind = "compact"
	KindCheckpoint Kind = "checkpoint"
	KindCleanup    Kind = "cleanup"
)

// Groups is a set of a table's groups, or its log. The bit of group g is 1<<g.
type Groups uint32

const (
	// AllGroups is a whole table.
	AllGroups Groups = 1<<GroupCount - 1
	// Log is the turn of checkpoints, cleanup and compaction. It is never combined with groups.
	Log Groups = 1 << GroupCount
)

// GroupSet is the set of one group.
func GroupSet(group int) Groups { return 1 << (uint(group) % GroupCount) }

// Has says whether group is in the set.
func (g Groups) Has(group int) bool { return g&GroupSet(group) != 0 && g != Log }

// Len is the number of turns that the set needs.
func (g Groups) Len() int { return bits.OnesCount32(uint32(g)) }

// List is the groups of the set in order; it is empty for the log.
func (g Groups) List() []int {
	out := make([]int, 0, GroupCount)
	for i := range GroupCount {
		if g.Has(i) {
			out = append(out, i)
		}
	}
	return out
}

// String is the set's place in a ready key: four hexadecimal digits, or "log".
func (g Groups) String() string {
	if g == Log {
		return "log"
	}
	return fmt.Sprintf("%04x", uint32(g))
}

// ParseGroups reads what String wrote. An empty set is refused.
func ParseGroups(text string) (Groups, error) {
	if text == "log" {
		return Log, nil
	}
	n, err := strconv.ParseUint(text, 16, 16)
	if err != nil || n == 0 || len(text) != 4 {
		return 0, fmt.Errorf("%q is not a set of groups: four hexadecimal digits above zero, or log", text)
	}
	return Groups(n), nil
}

// MarshalJSON writes the list of groups, or "log".
func (g Groups) MarshalJSON() ([]byte, error) {
	if g == Log {
		return []byte(`"log"`), nil
	}
	return json.Marshal(g.List())
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (g *Groups) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) == nil {
		if word != "log" {
			return fmt.Errorf("groups %q: only \"log\" or a list of groups is known", word)
		}
		*g = Log
		return nil
	}
	var list []int
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("groups: %w", err)
	}
	*g = 0
	for _, n := range list {
		if n < 0 || n >= GroupCount {
			return fmt.Errorf("group %d is not one of 0 to %d", n, GroupCount-1)
		}
		*g |= GroupSet(n)
	}
	return nil
}

// Unit is one piece of schedulable work: the value of a ready key. Class, Order, Table and Groups are its key.
type Unit struct {
	V       int     `json:"v"`
	ID      string  `json:"id"`
	Kind    Kind    `json:"kind"`
	Table   string  `json:"table"`
	TableID string  `json:"table_id,omitempty"`
	Groups  Groups  `json:"groups"`
	Class   Class   `json:"class"`
	Order   string  `json:"order"`
	Score   float64 `json:"score"`
	SinceMS int64   `json:"since_ms"` // when its oldest part began to wait
	Bytes   int64   `json:"bytes"`    // pending when it was queued
	Gens    uint64  `json:"gens"`
	Shards  int     `json:"shards"`
	Reason  Code    `json:"reason"`         // why it is due
	By      string  `json:"by,omitempty"`   // who asked, for a manual request
	Note    string  `json:"note,omitempty"` // what a maintenance unit found to do
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
