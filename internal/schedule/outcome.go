package schedule

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Bounds of one outcome record: 64 named shards with 512 bytes of message each stay under 64 KiB, so a release over all
// 16 groups stays inside etcd's default request size with room to spare.
const (
	namedShardsMax  = 64
	messageBytesMax = 512
	// skipsMax of the latest skips are kept, each with a reason as long as a message: 8 KiB. The log keeps all.
	skipsMax = 16
)

// Backoff of page 3. Fifteen retryable failures in a row reach the longest delay about two hours after the first.
const (
	retryFirst     = 2 * time.Second
	retryGrowing   = 30 * time.Second
	retryLongest   = 15 * time.Minute
	probeDelay     = time.Hour
	attentionAfter = 15
)

// After a release a group waits for its demand to change, or for this long; doubled by every execution in a row that
// found nothing to do, up to the longest backoff. A shard whose demand changed while the execution was under way waits for
// the mark that the execution may be about to publish, and no longer: what changed may have come too late for it.
const (
	requeueDelay = 30 * time.Second
	publishGrace = 2 * time.Second
)

// FailureClass decides what is done about a failure. It is decided by an error's type, never by its text.
type FailureClass string

const (
	// Retryable is tried again after 2 s, 2 s, then 30 s doubling to 15 min.
	Retryable FailureClass = "retryable"
	// Data is a corrupt file, a schema clash, a mark that went back: somebody must look; probed hourly.
	Data FailureClass = "data"
	// Config is wrong credentials or a missing bucket: as Data.
	Config FailureClass = "config"
	// Lost is a lost turn or lease: tried again at once and not counted.
	Lost FailureClass = "lost"
)

// Failure is what keeps a shard or a group from being merged. Its JSON is part of an outcome record.
type Failure struct {
	Code       string       `json:"code"`
	Class      FailureClass `json:"class"`
	Message    string       `json:"message"`
	Generation uint64       `json:"generation,omitempty"` // of a shard: it clears when the merged mark passes this; 0 = none
	Count      int          `json:"count"`                // failures in a row of the same class
	FailedMS   int64        `json:"failed_ms"`            // of the latest, on the executor's clock
}

// Delay is how long after FailedMS the next attempt may start.
func (f Failure) Delay() time.Duration {
	switch f.Class {
	case Lost:
		return 0
	case Data, Config:
		return probeDelay
	}
	if f.Count <= 2 {
		return retryFirst
	}
	return doubled(retryGrowing, f.Count-3)
}

// NeedsAttention says that waiting will not help: a person should look.
func (f Failure) NeedsAttention() bool {
	return f.Class == Data || f.Class == Config || (f.Class == Retryable && f.Count >= attentionAfter)
}

// doubled is d × 2^times, at most the longest backoff.
func doubled(d time.Duration, times int) time.Duration {
	for ; times > 0 && d < retryLongest; times-- {
		d *= 2
	}
	return min(d, retryLongest)
}

// Result is how an execution ended for one group.
type Result string

const (
	ResultMerged  Result = "merged"  // it committed something of this group, or its maintenance did something
	ResultNothing Result = "nothing" // it found nothing to do
	ResultFailed  Result = "failed"  // it did nothing and says why
	ResultLost    Result = "lost"    // it lost its turn or lease
)

// Outcome is the record P/outcomes/<table>/<group>: how the last execution ended and what is failing. It outlives
// processes, so a restart resets no budget. All times in it are one executor's clock; they are used as distances from
// EndedMS only.
type Outcome struct {
	V           int    `json:"v"`
	Execution   string `json:"execution"`
	Executor    string `json:"executor,omitempty"`
	Incarnation int64  `json:"incarnation,omitempty"`
	Kind        Kind   `json:"kind"`
	Result      Result `json:"result"`
	EndedMS     int64  `json:"ended_ms"`
	More        bool   `json:"more,omitempty"`        // it left something of this group that could be merged at once
	LogVersion  int64  `json:"log_version,omitempty"` // newest version of the table's log it committed, or checkpointed; 0 = says nothing
	Nothing     int    `json:"nothing,omitempty"`     // executions in a row that found nothing to do
	// DemandRevision is etcd's revision at which the execution had read demand, before it read storage: what demand said
	// then, the execution has seen. 0 = not told; demand is then taken for seen up to the release.
	DemandRevision int64              `json:"demand_revision,omitempty"`
	Failure        *Failure           `json:"failure,omitempty"` // of the whole group
	Shards         map[string]Failure `json:"shards,omitempty"`  // of single shards
	Upkeep         map[Kind]Failure   `json:"upkeep,omitempty"`  // of the log: what each kind of maintenance fails with
	Skips          []Skip             `json:"skips,omitempty"`   // generations that a person left out, the latest ones
}

// Former says that the record was left by an execution of a former life of the table, given the present incarnation, 0 if it
// is not known.
func (o *Outcome) Former(incarnation int64) bool {
	return o.Incarnation != 0 && o.Incarnation < incarnation
}

// Skip is a generation that a person left out of the table. The Delta commit that did it says the same for ever.
type Skip struct {
	Shard      string `json:"shard"`
	Generation uint64 `json:"generation"`
	Reason     string `json:"reason"`
	By         string `json:"by,omitempty"`
	AtMS       int64  `json:"at_ms"`
}

// ShardMark is how far an execution brought a shard.
type ShardMark struct {
	Shard string
	Gen   uint64
}

// ShardFailure is one shard's failure in one execution; Count and FailedMS are filled in by Next.
type ShardFailure struct {
	Shard string
	Failure
}

// Run is what one execution did to one group.
type Run struct {
	Execution   string
	Executor    string
	Incarnation int64
	Kind        Kind
	EndedMS     int64
	More        bool
	LogVersion  int64          // newest version it committed or, as a checkpoint, covered; 0 = none
	Merged      []ShardMark    // shards of this group whose merged mark is now Gen
	Did         bool           // something was done: a commit for this group, or maintenance
	Failures    []ShardFailure // shards of this group that failed
	// DemandRevision is as in Outcome.
	DemandRevision int64
	Failure        *Failure // the whole group failed
}

// Next is the outcome record after a run. prev is the record before it, nil when there is none; an older incarnation's
// failures are forgotten.
func Next(prev *Outcome, run Run) Outcome {
	if prev == nil || prev.Incarnation < run.Incarnation {
		prev = &Outcome{}
	}
	next := Outcome{
		V: 1, Execution: run.Execution, Executor: run.Executor, Incarnation: max(run.Incarnation, prev.Incarnation),
		Kind: run.Kind, Result: resultOf(run), EndedMS: run.EndedMS, More: run.More, LogVersion: run.LogVersion,
		DemandRevision: run.DemandRevision,
		Skips:          prev.Skips,
	}
	if next.Result == ResultNothing {
		next.Nothing = prev.Nothing + 1
	}
	switch {
	case run.Kind != KindMerge:
		next.nextUpkeep(prev, run)
	case run.Failure != nil:
		next.Failure = follow(prev.Failure, *run.Failure, run.EndedMS)
	}
	next.Shards = nextShards(prev, run)
	foldIntoGroup(&next, prev)
	return next
}

// Vanished is the outcome record after a turn disappeared without one: an executor died with it. A unit that kills
// executors backs off like any other failure.
func Vanished(prev *Outcome, incarnation int64, kind Kind, execution, executor string, nowMS int64) Outcome {
	return Next(prev, Run{Execution: execution, Executor: executor, Incarnation: incarnation, Kind: kind, EndedMS: nowMS,
		Failure: &Failure{
			Code: "turn_vanished", Class: Retryable,
			Message: fmt.Sprintf("executor %s disappeared with its turn", executor),
		}})
}

// Retried is the record after a person asked for another try: of a shard, or of everything if shard is empty. The failure
// of the whole group goes in any case, for it holds the shard back too. What is cleared is tried again as soon as it is
// due. changed is false if there is nothing to clear.
func (o Outcome) Retried(shard string, nowMS int64) (next Outcome, changed bool) {
	next = o.touched(nowMS)
	if o.Failure != nil {
		next.Failure, next.Upkeep, changed = nil, nil, true
	}
	for name := range o.Shards {
		if shard == "" || name == shard {
			delete(next.Shards, name)
			changed = true
		}
	}
	return next, changed
}

// Skipped is the record after a person has left a generation out.
func (o Outcome) Skipped(s Skip) Outcome {
	next := o.touched(s.AtMS)
	if f, ok := next.Shards[s.Shard]; ok && f.Generation <= s.Generation {
		delete(next.Shards, s.Shard)
	}
	s.Reason = clipped(s.Reason)
	next.Skips = append(slices.Clone(o.Skips), s)
	next.Skips = next.Skips[max(0, len(next.Skips)-skipsMax):]
	return next
}

// touched is a copy that a person changes: the group has something to do at once, and the failures that stay keep their
// distance from the record's time.
func (o Outcome) touched(nowMS int64) Outcome {
	o.Shards = maps.Clone(o.Shards)
	o.EndedMS, o.More, o.Nothing = max(nowMS, o.EndedMS), true, 0
	return o
}

func resultOf(run Run) Result {
	switch {
	case run.Failure != nil && run.Failure.Class == Lost:
		return ResultLost
	case run.Failure != nil:
		return ResultFailed
	case run.Did || len(run.Merged) > 0:
		return ResultMerged
	case len(run.Failures) > 0:
		return ResultFailed
	}
	return ResultNothing
}

// follow is failure f following prev: a lost turn keeps the count as it was, another class starts a new one.
func follow(prev *Failure, f Failure, atMS int64) *Failure {
	f.Message = clipped(f.Message)
	f.FailedMS, f.Count = atMS, 1
	switch {
	case prev == nil:
	case f.Class == Lost:
		if prev.Class != Lost {
			return prev // the earlier failure's backoff still holds
		}
	case prev.Class == f.Class:
		f.Count = prev.Count + 1
	}
	return &f
}

// nextUpkeep keeps the failures of the other kinds of maintenance: a table whose small files cannot be joined, because one
// of them is damaged, still needs its checkpoints, and a checkpoint that succeeds says nothing about those files. The
// failure of the whole record, which people are shown, is that of this run or else one that stands.
func (o *Outcome) nextUpkeep(prev *Outcome, run Run) {
	o.Upkeep = maps.Clone(prev.Upkeep)
	delete(o.Upkeep, run.Kind)
	if run.Failure != nil {
		var before *Failure
		if f, ok := prev.Upkeep[run.Kind]; ok {
			before = &f
		}
		if o.Upkeep == nil {
			o.Upkeep = map[Kind]Failure{}
		}
		o.Upkeep[run.Kind] = *follow(before, *run.Failure, run.EndedMS)
	}
	for _, kind := range []Kind{run.Kind, KindCheckpoint, KindCleanup, KindCompact} {
		if f, ok := o.Upkeep[kind]; ok {
			o.Failure = &f
			return
		}
	}
}

func nextShards(prev *Outcome, run Run) map[string]Failure {
	shards := map[string]Failure{}
	for name, f := range prev.Shards {
		shards[name] = f
	}
	for _, m := range run.Merged {
		if f, ok := shards[m.Shard]; ok && m.Gen >= f.Generation {
			delete(shards, m.Shard)
		}
	}
	for _, sf := range run.Failures {
		var before *Failure
		if f, ok := shards[sf.Shard]; ok && f.Generation == sf.Generation {
			before = &f
		}
		shards[sf.Shard] = *follow(before, sf.Failure, run.EndedMS)
	}
	if len(shards) == 0 {
		return nil
	}
	return shards
}

// foldIntoGroup keeps the record bounded: more than 64 failing shards are one failure of their group. The mildest class
// wins, so that nothing which may soon succeed waits an hour.
func foldIntoGroup(next *Outcome, prev *Outcome) {
	if len(next.Shards) <= namedShardsMax {
		return
	}
	if next.Failure == nil {
		names := sortedKeys(next.Shards)
		f := next.Shards[names[0]]
		for _, name := range names {
			if o := next.Shards[name]; o.Delay() < f.Delay() {
				f = o
			}
		}
		f.Generation = 0
		f.Message = fmt.Sprintf("%d shards fail, among them %s: %s", len(names), names[0], f.Message)
		next.Failure = follow(prev.Failure, f, next.EndedMS)
	}
	next.Shards = nil
}

func clipped(s string) string {
	if len(s) > messageBytesMax {
		s = s[:messageBytesMax-3] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// Marshal is the record's JSON.
func (o Outcome) Marshal() ([]byte, error) {
	o.V = 1
	return json.Marshal(o)
}

// ParseOutcome reads an outcome record; another version is refused.
func ParseOutcome(value []byte) (Outcome, error) {
	var o Outcome
	if err := json.Unmarshal(value, &o); err != nil {
		return Outcome{}, fmt.Errorf("outcome record is not JSON: %w", err)
	}
	if o.V != 1 {
		return Outcome{}, fmt.Errorf("outcome record has version %d, and this program knows version 1", o.V)
	}
	return o, nil
}

// Blocked says whether a shard with this merged mark may not be tried yet, and because of what. It is what an executor
// asks about the shards of the groups it has claimed.
func (o Outcome) Blocked(shard string, merged uint64, nowMS int64) (Failure, bool) {
	f, _, blocked := o.shardBlock(shard, merged, o.EndedMS, nowMS)
	return f, blocked
}

// shardBlock is Blocked for an observer who saw the record at seenMS on its own clock; until is on that clock.
func (o *Outcome) shardBlock(shard string, merged uint64, seenMS, nowMS int64) (f Failure, untilMS int64, blocked bool) {
	f, ok := o.Shards[shard]
	if !ok || (f.Generation > 0 && merged >= f.Generation) {
		return Failure{}, 0, false
	}
	untilMS = o.retryAt(f, seenMS)
	return f, untilMS, nowMS < untilMS
}

// groupBlock is the backoff of the whole group.
func (o *Outcome) groupBlock(seenMS, nowMS int64) (untilMS int64, blocked bool) {
	if o.Failure == nil {
		return 0, false
	}
	untilMS = o.retryAt(*o.Failure, seenMS)
	return untilMS, nowMS < untilMS
}

// upkeepBlock is the backoff of one kind of maintenance.
func (o *Outcome) upkeepBlock(kind Kind, seenMS, nowMS int64) (untilMS int64, blocked bool) {
	f, ok := o.Upkeep[kind]
	if !ok {
		return 0, false
	}
	untilMS = o.retryAt(f, seenMS)
	return untilMS, nowMS < untilMS
}

// upkeepHeldUntil is until when one kind of maintenance, which has just been done, waits for storage to be read again.
func (o *Outcome) upkeepHeldUntil(kind Kind, seenMS int64) int64 {
	if _, failed := o.Upkeep[kind]; failed || o.Kind != kind || o.More {
		return 0
	}
	return seenMS + doubled(requeueDelay, o.Nothing).Milliseconds()
}

// retryAt moves a failure's time onto the observer's clock: it happened as long before seenMS as before EndedMS.
func (o *Outcome) retryAt(f Failure, seenMS int64) int64 {
	return seenMS - max(o.EndedMS-f.FailedMS, 0) + f.Delay().Milliseconds()
}

// heldUntil is until when a released group waits for its demand to change. A shard that failed waits for its own backoff
// instead.
func (o *Outcome) heldUntil(seenMS int64) int64 {
	if o.More || o.Failure != nil {
		return 0 // there is something to do, or the group's backoff says when
	}
	return seenMS + doubled(requeueDelay, o.Nothing).Milliseconds()
}

// saw says whether the execution had seen a demand record of a revision.
func (o *Outcome) saw(revision int64) bool {
	return o.DemandRevision == 0 || revision <= o.DemandRevision
}
