package observe

import (
	"encoding/json"
	"strings"
	"time"

	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/master"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
	"tidemark/internal/schedule/readyqueue"
)

const turnCount = etcd.Groups + 1

// tableNotes is what etcd says of one table. Every field may be missing.
type tableNotes struct {
	name     string
	record   *master.TableRecord
	policy   schedule.Policy // in force
	shards   map[string]shardNotes
	outcomes [turnCount]*schedule.Outcome
	turns    [turnCount]string // executions
	ready    map[string]schedule.Unit
	request  bool // for a merge
	scan     bool // a request for a scan alone

	sums      sums
	stale     bool    // sums are to be made again
	rate      float64 // merged rows a second, over the last half minute or so
	rateSince int64   // merged rows when it was last looked at; -1 = never
}

// shardNotes is a demand record without its times.
type shardNotes struct {
	sealed, merged            demand.Mark
	sealedKnown, mergedKnown  bool
	oldestMS                  int64 // when the oldest pending generation was sealed, or a bound on that; 0 = unknown
	exact                     bool
	updatedMS                 int64
	source                    demand.Source
	pending                   uint64
	pendingBytes, pendingRows int64
}

func (s shardNotes) known() bool { return s.sealedKnown && s.mergedKnown }

// sums are a table's shards added up.
type sums struct {
	shards, unknown int
	gens            uint64
	bytes, rows     int64
	sealedRows      int64
	mergedRows      int64
	oldestMS        int64
}

// executionNotes is one execution that holds turns.
type executionNotes struct {
	table string
	turn  ownership.TurnValue
	unit  schedule.Unit
	held  int   // turns
	total int64 // rows that were pending when it was first seen; 0 = unknown
}

// progressNotes is how far an execution is, and since when.
type progressNotes struct {
	ownership.Progress
	first, last   ownership.Progress // as first seen, and as last seen with a new sequence
	firstAt, rose time.Duration      // monotonic
}

func (o *Observer) table(name string) *tableNotes {
	t := o.tables[name]
	if t == nil {
		t = &tableNotes{name: name, policy: o.defaults, shards: map[string]shardNotes{}, ready: map[string]schedule.Unit{}, stale: true, rateSince: -1}
		o.tables[name] = t
	}
	return t
}

// put notes what a key says. What cannot be read is of another version and is left out. mu is held.
func (o *Observer) put(key string, value []byte) {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, o.keys.Prefix+"/"), "/")
	switch kind {
	case "cluster":
		if c, err := etcd.ParseCluster(value); err == nil {
			o.cluster = c
		}
	case "demand":
		o.putDemand(key, value)
	case "tables":
		var r master.TableRecord
		if _, name, err := o.keys.ParseTable(key); err == nil && json.Unmarshal(value, &r) == nil && r.V == 1 {
			t := o.table(name)
			t.record = &r
			t.policy, _ = o.defaults.With(r.Policy) // what of it is not usable the owner reports
		}
	case "policies":
		o.setDefaults(value)
	case "outcomes":
		if name, n, err := o.keys.ParseOutcome(key); err == nil {
			if outcome, err := schedule.ParseOutcome(value); err == nil {
				o.table(name).outcomes[n] = &outcome
			}
		}
	case "ready":
		if unit, err := readyqueue.Parse(o.keys, key, value); err == nil {
			o.table(unit.Table).ready[key] = unit
		}
	case "requests":
		var r schedule.Request
		if _, name, err := o.keys.ParseRequests(key); err == nil && json.Unmarshal(value, &r) == nil {
			t := o.table(name)
			t.request, t.scan = !r.ScanOnly, r.ScanOnly
		}
	case "turns":
		o.putTurn(key, value)
	case "progress":
		o.putProgress(key, value)
	case "executors", "masters", "slots", "drains":
		o.putProcess(kind, key, value)
	}
}

func (o *Observer) putDemand(key string, value []byte) {
	_, name, shard, err := o.keys.ParseDemand(key)
	if err != nil {
		return
	}
	t := o.table(name)
	t.stale = true
	r, err := demand.Parse(value)
	if err != nil {
		t.shards[shard] = shardNotes{} // nothing is known
		return
	}
	s := shardNotes{updatedMS: r.UpdatedMS, source: r.Source}
	if r.Sealed != nil {
		s.sealed, s.sealedKnown = *r.Sealed, true
	}
	if r.Merged != nil {
		s.merged, s.mergedKnown = *r.Merged, true
	}
	s.pending, _ = r.Pending()
	s.pendingBytes, s.pendingRows = r.PendingBytes(), r.PendingRows()
	nowMS := o.NowMS()
	if age := r.Age(nowMS); age.Known {
		s.oldestMS, s.exact = nowMS-age.Wait.Milliseconds(), age.Exact
	}
	t.shards[shard] = s
}

func (o *Observer) putTurn(key string, value []byte) {
	name, n, err := o.keys.ParseTurn(key)
	var v ownership.TurnValue
	if err != nil || json.Unmarshal(value, &v) != nil || v.Execution == "" {
		return
	}
	t := o.table(name)
	if t.turns[n] == v.Execution {
		return
	}
	o.dropTurn(t, n)
	t.turns[n] = v.Execution
	x := o.executions[v.Execution]
	if x == nil {
		x = &executionNotes{table: name, turn: v}
		if unit, err := schedule.ParseUnit(v.Unit); err == nil {
			x.unit = unit
		}
		if x.unit.Kind == schedule.KindMerge {
			x.total = t.pendingRows(x.unit.Groups)
		}
		o.executions[v.Execution] = x
	}
	x.held++
}

// pendingRows are the rows pending in some groups.
func (t *tableNotes) pendingRows(groups schedule.Groups) int64 {
	var rows int64
	for name, s := range t.shards {
		if groups.Has(etcd.GroupOf(name)) {
			rows += s.pendingRows
		}
	}
	return rows
}

func (o *Observer) dropTurn(t *tableNotes, n int) {
	if x := o.executions[t.turns[n]]; x != nil {
		if x.held--; x.held == 0 {
			delete(o.executions, t.turns[n])
		}
	}
	t.turns[n] = ""
}

func (o *Observer) putProgress(key string, value []byte) {
	execution, err := o.keys.ParseProgress(key)
	var p ownership.Progress
	if err != nil || json.Unmarshal(value, &p) != nil {
		return
	}
	notes, seen := o.progress[execution]
	now := o.mono()
	if !seen {
		notes = progressNotes{first: p, firstAt: now, last: p, rose: now}
	}
	if p.Seq > notes.last.Seq {
		notes.last, notes.rose = p, now
	}
	notes.Progress = p
	o.progress[execution] = notes
}

func (o *Observer) setDefaults(document []byte) {
	o.defaults = schedule.DefaultPolicy()
	if document != nil {
		o.defaults, _ = schedule.ParsePolicy(document) // what of it is not usable is not in force
	}
	for _, t := range o.tables {
		t.policy = o.defaults
		if t.record != nil {
			t.policy, _ = o.defaults.With(t.record.Policy)
		}
	}
}

// delete notes that a key is gone. mu is held.
func (o *Observer) delete(key string) {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, o.keys.Prefix+"/"), "/")
	switch kind {
	case "cluster":
		o.cluster = etcd.Cluster{}
	case "demand":
		if _, name, shard, err := o.keys.ParseDemand(key); err == nil {
			o.update(name, func(t *tableNotes) { delete(t.shards, shard); t.stale = true })
		}
	case "tables":
		if _, name, err := o.keys.ParseTable(key); err == nil {
			o.update(name, func(t *tableNotes) { t.record, t.policy = nil, o.defaults })
		}
	case "policies":
		o.setDefaults(nil)
	case "outcomes":
		if name, n, err := o.keys.ParseOutcome(key); err == nil {
			o.update(name, func(t *tableNotes) { t.outcomes[n] = nil })
		}
	case "ready":
		if k, err := o.keys.ParseReady(key); err == nil {
			o.update(k.Table, func(t *tableNotes) { delete(t.ready, key) })
		}
	case "requests":
		if _, name, err := o.keys.ParseRequests(key); err == nil {
			o.update(name, func(t *tableNotes) { t.request, t.scan = false, false })
		}
	case "turns":
		if name, n, err := o.keys.ParseTurn(key); err == nil {
			o.update(name, func(t *tableNotes) { o.dropTurn(t, n) })
		}
	case "progress":
		if execution, err := o.keys.ParseProgress(key); err == nil {
			delete(o.progress, execution)
		}
	case "executors", "masters", "slots", "drains":
		o.deleteProcess(kind, key)
	}
}

// update changes a table that is noted, and forgets it once nothing is noted of it.
func (o *Observer) update(name string, change func(*tableNotes)) {
	t := o.tables[name]
	if t == nil {
		return
	}
	change(t)
	empty := t.record == nil && len(t.shards) == 0 && len(t.ready) == 0 && !t.request && !t.scan
	for n := range t.turns {
		empty = empty && t.turns[n] == "" && t.outcomes[n] == nil
	}
	if empty {
		delete(o.tables, name)
	}
}

// summed adds a table's shards up. mu is held.
func (t *tableNotes) summed() sums {
	if !t.stale {
		return t.sums
	}
	t.stale, t.sums = false, sums{shards: len(t.shards)}
	for _, s := range t.shards {
		t.sums.sealedRows += s.sealed.Rows
		t.sums.mergedRows += s.merged.Rows
		if !s.known() {
			t.sums.unknown++
			continue
		}
		t.sums.gens += s.pending
		t.sums.bytes += s.pendingBytes
		t.sums.rows += s.pendingRows
		if s.oldestMS != 0 && (t.sums.oldestMS == 0 || s.oldestMS < t.sums.oldestMS) {
			t.sums.oldestMS = s.oldestMS
		}
	}
	return t.sums
}
