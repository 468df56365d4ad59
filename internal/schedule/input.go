package schedule

// Input is everything that Decide looks at: one table at one moment. Times are milliseconds since 1970 on the owner's
// clock, revisions are etcd's.
type Input struct {
	NowMS       int64
	Table       string
	TableID     string
	Incarnation int64
	Policy      Policy
	Paused      bool
	Upsert      bool // the table's mode
	Shards      []Shard
	Groups      [GroupCount]Turn
	Log         Turn
	Due         []Due  // maintenance that is due, as storage showed it at DueMS
	DueMS       int64  // when Due was read
	Ready       []Unit // the table's units that are in the ready queue
	Request     *Request
	MergesInRow int // merges claimed since the table's log turn was last claimed
}

// Shard is one demand record as the scheduler sees it.
type Shard struct {
	Name     string
	Group    int    // 0 to 15
	Known    bool   // both marks have been reported; otherwise pending is unknown
	Merged   uint64 // merged generation
	Gens     uint64 // pending generations
	Bytes    int64  // pending bytes
	OldestMS int64  // seal time of the oldest pending generation, or an upper bound on it; 0 = unknown
	Exact    bool   // OldestMS is its own seal time
	Revision int64  // mod revision of the record
	Stopped  bool   // its merged mark went back (mark_regressed): reported, never merged again by itself
}

// Turn is the state of one group, or of the log: who has its turn and how the last execution ended.
type Turn struct {
	Execution string // that holds the turn; empty = free
	Executor  string
	Last      *Outcome // nil = none
	Revision  int64    // mod revision of Last: the release
	SeenMS    int64    // when the owner saw Last; never later than now
}

// Due is one kind of maintenance that storage shows to be due.
type Due struct {
	Kind     Kind
	Score    float64
	SinceMS  int64 // when it was first seen to be due
	Critical bool  // it is needed before writers are refused
	Note     string
}

// Request is what a person asks of a table: that it be scanned now, and that anything pending be due at once.
type Request struct {
	V           int    `json:"v"`
	RequestedMS int64  `json:"requested_ms"`
	Priority    string `json:"priority,omitempty"` // "low", or anything else for the merge class
	By          string `json:"by,omitempty"`
	// ScanOnly asks for nothing but the scan, so that a change of the table's properties is noticed at once.
	ScanOnly bool `json:"scan_only,omitempty"`
}

// Code is the one reason why a shard, a group or the log is or is not being worked on. Codes are stable: they are shown
// by explain, in ready units and in metrics.
type Code string

const (
	CodePaused    Code = "paused"          // the table is paused or drained
	CodeUnknown   Code = "mark_unknown"    // nobody has reported one of the marks
	CodeRegressed Code = "mark_regressed"  // the merged mark went back
	CodeCaughtUp  Code = "caught_up"       // nothing is pending
	CodeRunning   Code = "running"         // an execution holds the turn
	CodeBackoff   Code = "backoff"         // the shard failed and waits
	CodeGroupWait Code = "group_backoff"   // the whole group failed and waits
	CodeReleased  Code = "released"        // just released; its demand has not changed since
	CodeTail      Code = "tail"            // too little and too young
	CodeYields    Code = "yields"          // due maintenance goes first
	CodeParallel  Code = "max_parallelism" // as many executions as the policy allows

	// These are the reasons of units.
	CodeGens      Code = "critical_generations" // the table has that many pending
	CodeWaited    Code = "max_wait"             // the oldest has waited that long
	CodeScore     Code = "score"                // the table's score is 1 or more
	CodeRequested Code = "requested"            // somebody asked
	CodeUpkeep    Code = "maintenance_due"      // a checkpoint, cleanup or compaction is due
)

// Decision is the verdict on one group or on the log.
type Decision struct {
	Groups  Groups
	Code    Code
	UntilMS int64 // when that may change by itself; 0 = only when something happens
	Unit    int   // index into Plan.Units of the unit that covers it; -1 = none
}

// Plan is what should be in the ready queue for a table, and why.
type Plan struct {
	Units     []Unit                   // without ids; disjoint
	Decisions [GroupCount + 1]Decision // the groups in order, then the log
	Backlog   Backlog                  // what counts now
	Score     float64
	Class     Class
	Due       bool
	NextMS    int64 // decide again at this time though nothing happens; 0 = never
	ScanSoon  bool  // a mark is unknown
	Served    bool  // the manual request has nothing left to ask for
}
