package merge

import (
	"context"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/table"
	"tidemark/internal/tracing"
)

// Request is one merge of some shards of a table.
type Request struct {
	Table     string
	Shards    []string
	Execution string // unique; it is stamped into file names and commits
	// Budget is the memory that the merge may use, in bytes. It uses at most one open row group more per input that
	// is being read.
	Budget int64
	// CommitsMax bounds the commits of this execution; what is left then is in the outcome. 0 is one.
	CommitsMax int
}

// Deps are what a merge works with. All but Tables, Log, Progress and Trace are needed.
type Deps struct {
	Store  objstore.Store // the execution's scope: what it cannot reach any more, it cannot commit
	Clock  clock.Clock
	Random random.Source
	Mem    memory.Allocator
	Tables *table.Cache // views of tables kept between merges; nil reads the table afresh
	Log    hclog.Logger
	// Lanes is how many parts of a merge run side by side; 0 is one.
	Lanes int
	// Progress is told of completed work. It must not block.
	Progress func(Progress)
	// Trace takes notes of the merge; nil if nothing is traced.
	Trace *tracing.Execution

	rowGroupBytes int64 // of the files written, instead of what the budget allows; for tests
	joinedBytes   int64 // of files and row groups from which on they are joined, instead of what is sensible; for tests
}

// Outcome is what a merge has done. It is complete also beside an error: what was committed stays committed.
type Outcome struct {
	Table       string
	TableID     string
	Incarnation int64
	Commits     []int64 // versions of the Delta log, ascending
	// Merged has every requested shard that exists, with its mark as last seen in the table.
	Merged   []ShardMerged
	Failures []ShardFailure
	// What the commits took in and wrote.
	Generations           int
	RowsIn, BytesIn       int64
	RowsOut, BytesOut     int64
	FilesAdded, FilesGone int
	// AlreadyMerged: another execution merged the same generations first; this one stopped and removed its files.
	AlreadyMerged bool
	// More: there is more to compact at once. Of a compaction only.
	More bool
}

// ShardMerged is where a shard stands after a merge.
type ShardMerged struct {
	Shard string
	Mark  demand.Mark
	// NextSealedMS is when the first generation above the mark was sealed; 0 if none is pending.
	NextSealedMS int64
	Remaining    int // generations above the mark, as far as the merge knows
}

// ShardFailure is why a shard stops at a generation.
type ShardFailure struct {
	Shard      string
	Code       string
	Class      Class
	Message    string
	Generation uint64 // 0: not about one generation
}

// Run merges what is pending on the requested shards, oldest first:
//
//  1. Read the newest manifests, then the table's newest snapshot; the table must be the same life in both.
//  2. Take the oldest generations that fit one commit, bring the table's schema up to them, and write their rows to
//     files of this execution's own: packed (append), or merged by key with the base files they touch (upsert).
//     A generation that cannot be used stops its shard there; everything else goes on.
//  3. Commit files and marks together. A race is rebased, planned again from 1, or found to be done already.
//  4. Go on with the next generations, up to CommitsMax commits.
//
// The error is an *Error; it concerns the whole execution. Failures of single shards are in the outcome. Files that
// were not committed are deleted, unless a request might yet commit them.
func Run(ctx context.Context, d Deps, req Request) (Outcome, error) {
	x := newExecution(d, req)
	err := x.run(ctx)
	x.removeOwn(ctx)
	out := x.outcome()
	if err != nil {
		return out, whole(ctx, req.Table, err)
	}
	return out, nil
}
