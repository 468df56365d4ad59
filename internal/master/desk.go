package master

import (
	"time"

	"tidemark/internal/compaction"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/maintain"
	"tidemark/internal/scan"
	"tidemark/internal/schedule"
	"tidemark/internal/table"
)

// desk is what the owner of a table's slot works with: demand, what scans have seen, and the last plan. It is in memory
// only; a new owner makes its own.
type desk struct {
	policy    schedule.Policy
	policyErr error // values of the table's policy that cannot be used; the default holds instead
	wanted    bool  // the table is to be scanned: it was found on storage, or somebody published demand of it
	found     bool  // it was found on storage once

	demandChanged bool // shards are not what the demand records say
	shards        []schedule.Shard
	bytes         int64 // pending, whether it counts or not
	gens          uint64
	oldest        int64             // seal time of the oldest pending generation, or a bound; 0 = none
	trimmed       map[string]uint64 // by shard, as the last scan saw it; nil before the first scan
	stopped       map[string]bool   // shards whose merged mark went back

	checkpoint int64 // version of the newest checkpoint
	version    int64 // newest version of the log that is known
	cleanedMS  int64 // when the last cleanup ended, or the table was first seen
	compaction compaction.Backlog
	dueSince   map[schedule.Kind]int64
	factsMS    int64 // when storage, or an execution, last told something about maintenance

	plan    schedule.Plan
	planned bool
	busy    bool  // a transaction of this table is under way; it is decided again after it
	retryMS int64 // decide again then, because a transaction was not taken; 0 = no need

	halted error // the table itself forbids merging: changed settings, a foreign write

	mine      bool          // the slot was ours at the last look
	scanAt    time.Duration // monotonic; when the next scan is due; 0 is at once
	scannedAt time.Duration // monotonic; of the last scan
	interval  time.Duration
	scanning  bool
	failures  int   // scans in a row that failed
	answered  int64 // revision of the newest request that a scan began after
	// untold is what that scan told etcd and the demand cache has not heard yet, by shard. Until it has, nothing pending
	// in the cache does not mean that a request is served.
	untold  map[string]demand.Event
	hurries int // scans in a row that were wanted soon
	scanErr error
}

// setRecord takes a table record, or its absence.
func (b *book) setRecord(e *entry, r *TableRecord) {
	e.record = r
	if r == nil {
		return
	}
	e.policy, e.policyErr = b.defaults.With(r.Policy)
	e.checkpoint, e.version = max(e.checkpoint, r.Checkpoint), max(e.version, r.LogVersion)
	e.cleanedMS = max(e.cleanedMS, r.CleanedMS)
}

// setDefaults takes another default policy.
func (b *book) setDefaults(p schedule.Policy) {
	if p == b.defaults {
		return
	}
	b.defaults = p
	for _, e := range b.tables {
		b.setRecord(e, e.record)
		b.touch(e)
	}
}

// Paused says that the table's units are not to be queued.
func (r *TableRecord) Paused() bool { return r.State != "" && r.State != "active" }

// beginDemand and addDemand take the demand records of a table anew.
func (e *entry) beginDemand() { e.shards, e.bytes, e.gens, e.oldest = e.shards[:0], 0, 0, 0 }

func (e *entry) addDemand(d demand.Shard, nowMS int64) {
	r := d.Record
	s := schedule.Shard{Name: d.Name, Group: etcd.GroupOf(d.Name), Revision: d.ModRevision, Stopped: e.stopped[d.Name]}
	if r.Merged != nil {
		s.Merged = r.Merged.Gen
	}
	s.Gens, s.Known = r.Pending()
	s.Bytes = r.PendingBytes()
	if age := r.Age(nowMS); age.Known {
		s.OldestMS, s.Exact = nowMS-age.Wait.Milliseconds(), age.Exact
	}
	e.shards = append(e.shards, s)
	e.gens += s.Gens
	e.bytes += s.Bytes
	if s.OldestMS > 0 && (e.oldest == 0 || s.OldestMS < e.oldest) {
		e.oldest = s.OldestMS
	}
}

// noteOutcome learns from a release what the next scan would find.
func (e *entry) noteOutcome(n int, o *schedule.Outcome, nowMS int64) {
	if n == etcd.LogTurn && o.Kind == schedule.KindCleanup && o.Result == schedule.ResultNothing {
		e.cleanedMS = nowMS // there was nothing to clean, which is as good
	}
	if o.Result != schedule.ResultMerged {
		return
	}
	e.version = max(e.version, o.LogVersion)
	switch {
	case n == etcd.LogTurn && o.Kind == schedule.KindCheckpoint && o.LogVersion > 0:
		e.checkpoint = max(e.checkpoint, o.LogVersion)
	case n == etcd.LogTurn:
		if o.Kind == schedule.KindCleanup {
			e.cleanedMS = nowMS
		}
		e.scanAt, e.interval = 0, 0 // what it trimmed is on storage
	}
}

// noteReport takes what a scan saw.
func (e *entry) noteReport(r scan.Report) {
	e.trimmed, e.stopped = map[string]uint64{}, map[string]bool{}
	for _, s := range r.Shards {
		if s.Trimmed > 0 {
			e.trimmed[s.Name] = s.Trimmed
		}
		if s.Regressed {
			e.stopped[s.Name] = true
		}
	}
	for i := range e.shards {
		e.shards[i].Stopped = e.stopped[e.shards[i].Name]
	}
	e.checkpoint = max(r.Table.Snapshot.Checkpoint, e.checkpoint)
	e.version = max(r.Table.Snapshot.Version, e.version)
	e.compaction = r.Compaction
	e.factsMS = r.AtMS
}

// input is the table as the scheduler sees it.
func (e *entry) input(nowMS int64) schedule.Input {
	in := schedule.Input{
		NowMS: nowMS, Table: e.name, TableID: e.record.TableID, Incarnation: e.record.Incarnation, Policy: e.policy, Paused: e.record.Paused() || e.halted != nil,
		Upsert: e.record.Mode == string(table.Upsert), Shards: e.shards, MergesInRow: e.mergesInRow, Due: e.due(nowMS), DueMS: e.factsMS,
	}
	for i := range in.Groups {
		in.Groups[i] = e.turn(i, nowMS)
	}
	in.Log = e.turn(etcd.LogTurn, nowMS)
	for _, u := range e.ready {
		in.Ready = append(in.Ready, u.Unit)
	}
	if e.request != nil && !e.request.ScanOnly {
		in.Request = &e.request.Request
	}
	return in
}

// turn is one group's turn, or the log's. What executions of a former life left says nothing.
func (e *entry) turn(n int, nowMS int64) schedule.Turn {
	o := e.outcomes[n]
	if o.record != nil && o.record.Former(e.record.Incarnation) {
		o = outcome{}
	}
	return schedule.Turn{
		Execution: e.turns[n].Execution, Executor: e.turns[n].Executor,
		Last: o.record, Revision: o.revision, SeenMS: min(o.seenMS, nowMS),
	}
}

// due is the maintenance that is due. Checkpoints follow from the table record and from releases, cleanup and compaction
// from a scan and from demand, so that none costs a request.
func (e *entry) due(nowMS int64) []schedule.Due {
	state := maintain.State{
		Version: e.version, Checkpoint: e.checkpoint, CheckpointEvery: e.record.CheckpointEvery,
		Compaction: e.compaction, CompactFiles: e.policy.CompactFiles,
	}
	state.Untrimmed, state.UntrimmedMost = e.untrimmed()
	state.SinceCleanup = time.Duration(max(nowMS-e.cleanedMS, 0)) * time.Millisecond
	needs := maintain.Due(state)
	var due []schedule.Due
	since := map[schedule.Kind]int64{}
	for kind, need := range map[schedule.Kind]maintain.Need{
		schedule.KindCheckpoint: needs.Checkpoint, schedule.KindCleanup: needs.Cleanup, schedule.KindCompact: needs.Compaction,
	} {
		if !need.Due {
			continue
		}
		since[kind] = e.dueSince[kind]
		if since[kind] == 0 {
			since[kind] = nowMS
		}
		due = append(due, schedule.Due{Kind: kind, Score: need.Score, SinceMS: since[kind], Critical: need.Critical, Note: need.Note})
	}
	e.dueSince = since
	return due
}

// untrimmed is how many merged generations manifests still list, of all shards and of the one that has most; 0 before the
// first scan.
func (e *entry) untrimmed() (all, most uint64) {
	if e.trimmed == nil {
		return 0, 0
	}
	for _, s := range e.shards {
		if trimmed := e.trimmed[s.Name]; s.Merged > trimmed {
			all += s.Merged - trimmed
			most = max(most, s.Merged-trimmed)
		}
	}
	return all, most
}
