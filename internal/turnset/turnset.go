// Package turnset is the set of turns that a unit needs: groups of one table, or the table's log.
//
// It is plain data, so that the pure decisions of internal/schedule and the keys of internal/etcd mean the same thing by
// it. Two units exclude each other iff their sets intersect.
package turnset

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/bits"
	"strconv"
)

const (
	// Groups is the number of hash classes of a table's shards. It is part of the key layout and never changes.
	Groups = 16
	// LogTurn is the turn of a table's log, which stands beside the turns 0 to 15 of its groups.
	LogTurn = Groups
)

// Set is a set of turns of one table. The bit of turn n is 1<<n.
type Set uint32

const (
	// All covers a whole table, apart from its log.
	All Set = 1<<Groups - 1
	// Log covers the log: checkpoints, cleanup and append compaction. It is never combined with groups.
	Log Set = 1 << LogTurn
)

// Of is the set of some turns, each 0 to 15 or LogTurn.
func Of(turns ...int) Set {
	var s Set
	for _, t := range turns {
		s |= 1 << t
	}
	return s
}

// Has says whether a turn is in the set.
func (s Set) Has(turn int) bool { return s&(1<<turn) != 0 }

// Len is the number of turns in the set.
func (s Set) Len() int { return bits.OnesCount32(uint32(s)) }

// All yields the turns of the set, ascending.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for rest := s; rest != 0; rest &= rest - 1 {
			if !yield(bits.TrailingZeros32(uint32(rest))) {
				return
			}
		}
	}
}

// List is the groups of the set, ascending; it is empty for the log.
func (s Set) List() []int {
	list := make([]int, 0, Groups)
	for turn := range (s & All).All() {
		list = append(list, turn)
	}
	return list
}

// Valid says whether the set is one that a unit can cover: some groups, or the log alone.
func (s Set) Valid() bool { return s == Log || s != 0 && s&^All == 0 }

// String is the last segment of a ready key: four hexadecimal digits, one bit per group, or "log".
func (s Set) String() string {
	if s == Log {
		return "log"
	}
	return fmt.Sprintf("%04x", uint32(s))
}

// Parse reads what String writes. An empty set is refused.
func Parse(text string) (Set, error) {
	if text == "log" {
		return Log, nil
	}
	n, err := strconv.ParseUint(text, 16, Groups)
	if s := Set(n); err == nil && s.Valid() && s.String() == text {
		return s, nil
	}
	return 0, fmt.Errorf("%q is no set of groups: want four hexadecimal digits that are not all zero, or log", text)
}

// MarshalJSON writes the list of groups, or "log".
func (s Set) MarshalJSON() ([]byte, error) {
	if s == Log {
		return []byte(`"log"`), nil
	}
	return json.Marshal(s.List())
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Set) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) == nil {
		if word != "log" {
			return fmt.Errorf("groups %q: only \"log\" or a list of groups is known", word)
		}
		*s = Log
		return nil
	}
	var list []int
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("groups: %w", err)
	}
	*s = 0
	for _, n := range list {
		if n < 0 || n >= Groups {
			return fmt.Errorf("group %d is not one of 0 to %d", n, Groups-1)
		}
		*s |= Of(n)
	}
	return nil
}

// Name is the last segment of a turn's key: two decimal digits, or "log".
func Name(turn int) string {
	if turn == LogTurn {
		return "log"
	}
	return fmt.Sprintf("%02d", turn)
}

// ParseName reads what Name writes.
func ParseName(name string) (int, error) {
	if name == "log" {
		return LogTurn, nil
	}
	turn, err := strconv.Atoi(name)
	if err != nil || turn < 0 || turn >= Groups || Name(turn) != name {
		return 0, fmt.Errorf("%q is no turn: want 00 to 15, or log", name)
	}
	return turn, nil
}
