package etcd

import "tidemark/internal/turnset"

// TurnSet is the set of turns of one table in a ready key.
type TurnSet = turnset.Set

const (
	// Groups is the number of hash classes of a table's shards. It is part of the key layout and never changes.
	Groups = turnset.Groups
	// LogTurn is the turn of a table's log, which stands beside the turns 0 to 15 of its groups.
	LogTurn = turnset.LogTurn
	// AllGroups covers a whole table, apart from its log.
	AllGroups = turnset.All
	// LogOnly covers the log: checkpoints, cleanup and append compaction.
	LogOnly = turnset.Log
)

// TurnsOf is the set of some turns, each 0 to 15 or LogTurn.
func TurnsOf(turns ...int) TurnSet { return turnset.Of(turns...) }
