package etcd

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
)

// LogTurn is the turn of a table's log, which stands beside the turns 0 to 15 of its groups.
const LogTurn = Groups

// TurnSet is a set of turns of one table: groups, or the log. Two sets exclude each other iff they intersect, which
// is what & says.
type TurnSet uint32

const (
	// AllGroups covers a whole table, apart from its log.
	AllGroups TurnSet = 1<<Groups - 1
	// LogOnly covers the log: checkpoints, cleanup and append compaction.
	LogOnly TurnSet = 1 << LogTurn
)

// TurnsOf is the set of some turns, each 0 to 15 or LogTurn.
func TurnsOf(turns ...int) TurnSet {
	var s TurnSet
	for _, t := range turns {
		s |= 1 << t
	}
	return s
}

// Has says whether a turn is in the set.
func (s TurnSet) Has(turn int) bool { return s&(1<<turn) != 0 }

// Len is the number of turns in the set.
func (s TurnSet) Len() int { return bits.OnesCount32(uint32(s)) }

// All yields the turns of the set, ascending.
func (s TurnSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for rest := s; rest != 0; rest &= rest - 1 {
			if !yield(bits.TrailingZeros32(uint32(rest))) {
				return
			}
		}
	}
}

// Valid says whether the set is one that a unit can cover: some groups, or the log alone.
func (s TurnSet) Valid() bool { return s == LogOnly || s != 0 && s&^AllGroups == 0 }

// String is the last segment of a ready key: four hexadecimal digits, one bit per group, or "log".
func (s TurnSet) String() string {
	if s == LogOnly {
		return "log"
	}
	return fmt.Sprintf("%04x", uint32(s))
}

// ParseTurnSet reads what String writes.
func ParseTurnSet(text string) (TurnSet, error) {
	if text == "log" {
		return LogOnly, nil
	}
	n, err := strconv.ParseUint(text, 16, Groups)
	if s := TurnSet(n); err == nil && s.Valid() && s.String() == text {
		return s, nil
	}
	return 0, fmt.Errorf("%q is no set of groups: want four hexadecimal digits that are not all zero, or log", text)
}

// TurnName is the last segment of a turn's key: two decimal digits, or "log".
func TurnName(turn int) string {
	if turn == LogTurn {
		return "log"
	}
	return fmt.Sprintf("%02d", turn)
}

// ParseTurnName reads what TurnName writes.
func ParseTurnName(name string) (int, error) {
	if name == "log" {
		return LogTurn, nil
	}
	turn, err := strconv.Atoi(name)
	if err != nil || turn < 0 || turn >= Groups || TurnName(turn) != name {
		return 0, fmt.Errorf("%q is no turn: want 00 to 15, or log", name)
	}
	return turn, nil
}
