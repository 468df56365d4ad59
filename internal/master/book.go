package master

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/schedule"
	"tidemark/internal/schedule/readyqueue"
)

// book is what a master knows from etcd, table by table: turns, outcomes, ready units, requests, table records and
// progress. It only takes notes; it decides nothing and sends nothing. It is not safe for concurrent use.
//
// Turns, outcomes and ready units are kept for every table, owned or not, so that taking a slot over needs no reading:
// they are bounded by executions, by 17 records per table and by due units.
type book struct {
	keys      etcd.Keys
	slots     int
	tables    map[string]*entry
	progress  map[string]progress // by execution
	defaults  schedule.Policy
	policy    string                 // the default policy's document in etcd
	policyErr error                  // what of it cannot be used
	dirty     map[*entry]struct{}    // entries that changed since the last pass
	gone      map[goneTurns]struct{} // turns that disappeared and may have left no outcome
	strange   int64                  // records that could not be read: another version, or damaged
}

// turnCount is a table's groups and its log.
const turnCount = etcd.Groups + 1

// entry is one table. What it has from storage is in the second part and is only filled in for tables of owned slots.
type entry struct {
	name     string
	slot     int
	turns    [turnCount]turn
	outcomes [turnCount]outcome
	ready    map[string]readyUnit // by key
	request  *request
	record   *TableRecord

	// mergesInRow counts executions that claimed groups since one last claimed the log. It starts at 0 with a new
	// owner: at worst a table's maintenance then waits for two more merges.
	mergesInRow int

	desk
}

// turn is a held turn. One that has disappeared counts as held until it is known how its execution ended: else a unit
// that kills executors would be queued again before that is held against it.
type turn struct {
	ownership.TurnValue
	kind     schedule.Kind
	revision int64
	gone     bool
}

// outcome is the last outcome of a turn.
type outcome struct {
	record   *schedule.Outcome
	value    []byte
	revision int64
	seenMS   int64
}

type readyUnit struct {
	schedule.Unit
	revision int64
}

type request struct {
	schedule.Request
	revision int64
}

type progress struct {
	ownership.Progress
	revision int64
}

// goneTurns are turns of one execution that disappeared.
type goneTurns struct {
	table     string
	execution string
}

// TableRecord is P/tables/<slot>/<table>: what an owner knows of a table without asking storage.
type TableRecord struct {
	V           int               `json:"v"`
	TableID     string            `json:"table_id"`
	Incarnation int64             `json:"incarnation"`
	Mode        string            `json:"mode"`
	Buckets     int               `json:"buckets,omitempty"`
	State       string            `json:"state,omitempty"`
	Policy      map[string]string `json:"policy,omitempty"`
	// What says when maintenance is due.
	CheckpointEvery int64 `json:"checkpoint_every"`
	Checkpoint      int64 `json:"checkpoint"` // version of the newest; -1 is none
	LogVersion      int64 `json:"log_version"`
	CleanedMS       int64 `json:"cleaned_ms"` // when the last cleanup ended, or the table was first seen
}

func newBook(keys etcd.Keys, slots int) *book {
	return &book{keys: keys, slots: slots, defaults: schedule.DefaultPolicy(),
		tables: map[string]*entry{}, progress: map[string]progress{}, gone: map[goneTurns]struct{}{}, dirty: map[*entry]struct{}{}}
}

// entry finds or makes the entry of a table.
func (b *book) entry(table string) *entry {
	e := b.tables[table]
	if e == nil {
		e = &entry{name: table, slot: etcd.SlotOf(table, b.slots), ready: map[string]readyUnit{}}
		b.tables[table] = e
	}
	return e
}

func (b *book) touch(e *entry) { b.dirty[e] = struct{}{} }

// forgetIfEmpty removes an entry about which nothing is known any more. A scan or a transaction that is under way keeps it:
// what they end with is noted in this entry, and must not be noted in one that is in the book no more.
func (b *book) forgetIfEmpty(e *entry) {
	if e.record != nil || e.request != nil || e.wanted || e.found || e.scanning || e.busy || len(e.ready)+len(e.shards) > 0 {
		return
	}
	for i := range e.turns {
		if e.turns[i].Execution != "" {
			return
		}
	}
	if e.hasOutcomes() {
		return
	}
	delete(b.tables, e.name)
	delete(b.dirty, e)
}

// hasOutcomes says that an execution has left a record behind.
func (e *entry) hasOutcomes() bool {
	for i := range e.outcomes {
		if e.outcomes[i].record != nil {
			return true
		}
	}
	return false
}

// put notes a key's value. Events may come again, and late: one that is older than what is noted changes nothing.
// live says that the key was written just now, as opposed to found.
func (b *book) put(key string, value []byte, revision, nowMS int64, live bool) {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, b.keys.Prefix+"/"), "/")
	var err error
	switch kind {
	case "turns":
		err = b.putTurn(key, value, revision)
	case "outcomes":
		err = b.putOutcome(key, value, revision, nowMS, live)
	case "ready":
		err = b.putReady(key, value, revision)
	case "requests":
		err = b.putRequest(key, value, revision)
	case "tables":
		err = b.putTable(key, value)
	case "progress":
		err = b.putProgress(key, value, revision)
	case "policies":
		err = b.putPolicy(value)
	}
	if err != nil {
		b.strange++
	}
}

func (b *book) putTurn(key string, value []byte, revision int64) error {
	table, n, err := b.keys.ParseTurn(key)
	if err != nil {
		return err
	}
	var v ownership.TurnValue
	if err := json.Unmarshal(value, &v); err != nil {
		return fmt.Errorf("turn %s: %w", key, err)
	}
	t := turn{TurnValue: v, kind: schedule.KindMerge, revision: revision}
	if unit, err := schedule.ParseUnit(v.Unit); err == nil {
		t.kind = unit.Kind
	}
	e := b.entry(table)
	if revision < e.turns[n].revision {
		return nil
	}
	if n == etcd.LogTurn {
		e.mergesInRow = 0
	} else if !e.runs(v.Execution) {
		e.mergesInRow++
	}
	e.turns[n] = t
	b.touch(e)
	return nil
}

// runs says whether an execution holds any turn of the table's groups.
func (e *entry) runs(execution string) bool {
	for i := range etcd.Groups {
		if e.turns[i].Execution == execution {
			return true
		}
	}
	return false
}

func (b *book) putOutcome(key string, value []byte, revision, nowMS int64, live bool) error {
	table, n, err := b.keys.ParseOutcome(key)
	if err != nil {
		return err
	}
	e := b.entry(table)
	if revision <= e.outcomes[n].revision {
		return nil
	}
	o := outcome{value: value, revision: revision, seenMS: nowMS}
	for i := range e.outcomes { // a release leaves equal records for all its groups: share what was read from them
		if bytes.Equal(e.outcomes[i].value, value) {
			o.record, o.value = e.outcomes[i].record, e.outcomes[i].value
		}
	}
	if o.record == nil {
		record, err := schedule.ParseOutcome(value)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		o.record = &record
	}
	if !live {
		o.seenMS = min(o.record.EndedMS, nowMS) // left at its own time, as far as that can be believed
	}
	e.outcomes[n] = o
	if t := &e.turns[n]; t.gone && t.Execution == o.record.Execution {
		*t = turn{}
	}
	if live {
		e.noteOutcome(n, o.record, nowMS)
		if e.record == nil { // of a table that was removed while this execution was running: a scan finds that out
			e.wanted, e.scanAt = true, 0
		}
	}
	b.touch(e)
	return nil
}

func (b *book) putReady(key string, value []byte, revision int64) error {
	u, err := readyqueue.Parse(b.keys, key, value)
	if err != nil {
		return err
	}
	e := b.entry(u.Table)
	if revision < e.ready[key].revision {
		return nil
	}
	e.ready[key] = readyUnit{Unit: u, revision: revision}
	b.touch(e)
	return nil
}

func (b *book) putRequest(key string, value []byte, revision int64) error {
	_, table, err := b.keys.ParseRequests(key)
	if err != nil {
		return err
	}
	r := request{revision: revision}
	if err := json.Unmarshal(value, &r.Request); err != nil {
		return fmt.Errorf("request %s: %w", key, err)
	}
	e := b.entry(table)
	e.request = &r
	if revision > e.answered {
		e.wanted, e.scanAt = true, 0
	}
	b.touch(e)
	return nil
}

func (b *book) putTable(key string, value []byte) error {
	_, table, err := b.keys.ParseTable(key)
	if err != nil {
		return err
	}
	var r TableRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return fmt.Errorf("table record %s: %w", key, err)
	}
	if r.V != 1 {
		return fmt.Errorf("table record %s has version %d", key, r.V)
	}
	e := b.entry(table)
	b.setRecord(e, &r)
	b.touch(e)
	return nil
}

func (b *book) putProgress(key string, value []byte, revision int64) error {
	execution, err := b.keys.ParseProgress(key)
	if err != nil {
		return err
	}
	p := progress{revision: revision}
	if err := json.Unmarshal(value, &p.Progress); err != nil {
		return fmt.Errorf("progress %s: %w", key, err)
	}
	b.progress[execution] = p
	return nil
}

// delete notes that a key is gone.
func (b *book) delete(key string) {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, b.keys.Prefix+"/"), "/")
	switch kind {
	case "turns":
		b.deleteTurn(key)
	case "outcomes":
		if table, n, err := b.keys.ParseOutcome(key); err == nil {
			b.update(table, func(e *entry) { e.outcomes[n] = outcome{} })
		}
	case "ready":
		if k, err := b.keys.ParseReady(key); err == nil {
			b.update(k.Table, func(e *entry) { delete(e.ready, key) })
		}
	case "requests":
		if _, table, err := b.keys.ParseRequests(key); err == nil {
			b.update(table, func(e *entry) { e.request, e.answered = nil, 0 })
		}
	case "tables":
		if _, table, err := b.keys.ParseTable(key); err == nil {
			b.update(table, func(e *entry) { b.setRecord(e, nil) })
		}
	case "policies":
		b.policy, b.policyErr = "", nil
		b.setDefaults(schedule.DefaultPolicy())
	case "progress":
		if execution, err := b.keys.ParseProgress(key); err == nil {
			delete(b.progress, execution)
		}
	}
}

func (b *book) deleteTurn(key string) {
	table, n, err := b.keys.ParseTurn(key)
	if err != nil {
		return
	}
	b.update(table, func(e *entry) {
		t := &e.turns[n]
		if o := e.outcomes[n].record; t.Execution == "" || o != nil && o.Execution == t.Execution {
			*t = turn{}
			return
		}
		t.gone = true
		b.gone[goneTurns{table, t.Execution}] = struct{}{}
	})
}

// settled frees the turns of an execution that disappeared.
func (b *book) settled(g goneTurns) {
	b.update(g.table, func(e *entry) {
		for n := range e.turns {
			if t := &e.turns[n]; t.gone && t.Execution == g.execution {
				*t = turn{}
			}
		}
	})
}

// update changes an entry that exists.
func (b *book) update(table string, change func(*entry)) {
	e := b.tables[table]
	if e == nil {
		return
	}
	change(e)
	b.touch(e)
	b.forgetIfEmpty(e)
}
