package observe

import (
	"cmp"
	"slices"

	"tidemark/internal/etcd"
	"tidemark/internal/schedule"
)

// Table is one table as etcd shows it.
type Table struct {
	Table              string       `json:"table"`
	TableID            string       `json:"table_id"` // empty until a master has scanned it
	Incarnation        int64        `json:"incarnation"`
	Mode               string       `json:"mode"`
	State              string       `json:"state"` // "active", "paused", … ; "unknown" until a master has scanned it
	Slot               int          `json:"slot"`
	Owner              string       `json:"owner"` // the master; empty while nobody owns the slot
	Shards             int          `json:"shards"`
	UnknownShards      int          `json:"unknown_shards"` // of which a mark is unknown; they add nothing to what is pending
	PendingGenerations uint64       `json:"pending_generations"`
	PendingBytes       int64        `json:"pending_bytes"`
	PendingRows        int64        `json:"pending_rows"`
	MergedRows         int64        `json:"merged_rows"` // ever, by its shards' marks
	OldestMS           int64        `json:"oldest_ms"`   // when the oldest pending generation was sealed, or a bound on that; 0 = nothing pending, or unknown
	RowsPerSecond      float64      `json:"rows_per_second"`
	Class              string       `json:"class"` // of its units in the ready queue; empty = none
	Executions         int          `json:"executions"`
	Failures           int          `json:"failures"`
	Attention          int          `json:"attention"` // failures that waiting will not cure
	Behind             bool         `json:"behind"`    // waited longer than max_wait, or critical_generations pending
	Requested          bool         `json:"requested"` // somebody asked for a merge
	LogVersion         int64        `json:"log_version"`
	Last               *LastOutcome `json:"last_outcome"`
}

// LastOutcome is how the latest execution of a table ended.
type LastOutcome struct {
	Execution string `json:"execution"`
	Executor  string `json:"executor"`
	Kind      string `json:"kind"`
	Result    string `json:"result"`
	Code      string `json:"code"` // of its failure
	EndedMS   int64  `json:"ended_ms"`
}

// Tables is a page of tables. Orders: name, pending, bytes, age, rate, shards, state, last.
func (o *Observer) Tables(q Query) (Page[Table], error) {
	return paged(o.everyTable(q.matches), q, tableOrders, func(t *Table) string { return t.Table })
}

var tableOrders = []order[Table]{
	{"name", func(t *Table) (int64, string) { return 0, t.Table }},
	{"pending", func(t *Table) (int64, string) { return int64(t.PendingGenerations), "" }},
	{"bytes", func(t *Table) (int64, string) { return t.PendingBytes, "" }},
	{"age", func(t *Table) (int64, string) { return sinceForOrder(t.OldestMS), "" }},
	{"rate", func(t *Table) (int64, string) { return int64(t.RowsPerSecond), "" }},
	{"shards", func(t *Table) (int64, string) { return int64(t.Shards), "" }},
	{"state", func(t *Table) (int64, string) { return 0, t.State }},
	{"last", func(t *Table) (int64, string) {
		if t.Last == nil {
			return 0, ""
		}
		return t.Last.EndedMS, ""
	}},
}

// sinceForOrder orders times as ages: the earliest is the greatest, and none is the least.
func sinceForOrder(ms int64) int64 {
	if ms == 0 {
		return 0
	}
	return 1<<62 - ms
}

// Table is one table; false if nothing is known of that name.
func (o *Observer) Table(name string) (Table, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tables[name]
	if t == nil || !t.shown() {
		return Table{}, false
	}
	return o.describe(t, o.NowMS()), true
}

// shown says whether there is a table to speak of: outcomes alone outlive a dropped one.
func (t *tableNotes) shown() bool { return t.record != nil || len(t.shards) > 0 }

func (o *Observer) everyTable(want func(string) bool) []Table {
	o.mu.Lock()
	defer o.mu.Unlock()
	nowMS := o.NowMS()
	rows := make([]Table, 0, len(o.tables))
	for name, t := range o.tables {
		if t.shown() && want(name) {
			rows = append(rows, o.describe(t, nowMS))
		}
	}
	return rows
}

// describe makes a table's row. mu is held.
func (o *Observer) describe(t *tableNotes, nowMS int64) Table {
	s := t.summed()
	row := Table{
		Table: t.name, State: "unknown", Shards: s.shards, UnknownShards: s.unknown, PendingGenerations: s.gens, PendingBytes: s.bytes,
		PendingRows: s.rows, MergedRows: s.mergedRows, OldestMS: s.oldestMS, RowsPerSecond: t.rate, Requested: t.request,
	}
	if o.cluster.Slots > 0 {
		row.Slot = etcd.SlotOf(t.name, o.cluster.Slots)
		row.Owner = o.slots[row.Slot]
	}
	if r := t.record; r != nil {
		row.TableID, row.Incarnation, row.Mode, row.LogVersion = r.TableID, r.Incarnation, r.Mode, r.LogVersion
		row.State = cmp.Or(r.State, "active")
	}
	var running []string
	for _, x := range t.turns {
		if x != "" && !slices.Contains(running, x) {
			running = append(running, x)
		}
	}
	row.Executions = len(running)
	row.Class = t.class()
	var last *schedule.Outcome
	for _, out := range t.outcomes {
		if out != nil && (row.Last == nil || out.EndedMS > row.Last.EndedMS || out.EndedMS == row.Last.EndedMS && tells(out) > tells(last)) {
			last = out
			row.Last = &LastOutcome{Execution: out.Execution, Executor: out.Executor, Kind: string(out.Kind), Result: string(out.Result), EndedMS: out.EndedMS}
			if out.Failure != nil {
				row.Last.Code = out.Failure.Code
			}
		}
	}
	t.eachFailure(func(_ int, _ string, f schedule.Failure, _ *schedule.Outcome) {
		row.Failures++
		if f.NeedsAttention() {
			row.Attention++
		}
	})
	waited := s.oldestMS != 0 && nowMS-s.oldestMS > t.policy.MaxWait.Milliseconds()
	row.Behind = s.gens > 0 && (waited || int64(s.gens) >= t.policy.CriticalGenerations)
	return row
}

// tells orders outcomes of one execution by how much they say: it leaves one for each group, and most groups of a small
// table have nothing to do.
func tells(o *schedule.Outcome) int {
	switch {
	case o.Result == schedule.ResultFailed || o.Result == schedule.ResultLost:
		return 2
	case o.Result == schedule.ResultMerged:
		return 1
	}
	return 0
}

// class is that of the most urgent unit in the queue.
func (t *tableNotes) class() string {
	first := schedule.Class(-1)
	for _, u := range t.ready {
		if first < 0 || u.Class < first {
			first = u.Class
		}
	}
	if first < 0 {
		return ""
	}
	return first.String()
}

// Shard is one shard with both its marks.
type Shard struct {
	Shard              string `json:"shard"`
	Group              int    `json:"group"`
	Sealed             *Mark  `json:"sealed"` // null: nobody has reported it
	Merged             *Mark  `json:"merged"`
	PendingGenerations uint64 `json:"pending_generations"`
	PendingBytes       int64  `json:"pending_bytes"`
	PendingRows        int64  `json:"pending_rows"`
	OldestMS           int64  `json:"oldest_ms"`
	OldestExact        bool   `json:"oldest_exact"` // otherwise it was sealed no later than that
	UpdatedMS          int64  `json:"updated_ms"`
	Source             string `json:"source"`  // who reported last
	Failure            string `json:"failure"` // code; empty = none
}

// Mark is a generation with everything up to it.
type Mark struct {
	Generation uint64 `json:"generation"`
	Epoch      uint64 `json:"epoch"`
	Bytes      int64  `json:"bytes"`
	Rows       int64  `json:"rows"`
}

// Shards is a page of a table's shards. Orders: name, pending, bytes, age, sealed.
func (o *Observer) Shards(name string, q Query) (Page[Shard], error) {
	return paged(o.everyShard(name, q), q, shardOrders, func(s *Shard) string { return s.Shard })
}

var shardOrders = []order[Shard]{
	{"name", func(s *Shard) (int64, string) { return 0, s.Shard }},
	{"pending", func(s *Shard) (int64, string) { return int64(s.PendingGenerations), "" }},
	{"bytes", func(s *Shard) (int64, string) { return s.PendingBytes, "" }},
	{"age", func(s *Shard) (int64, string) { return sinceForOrder(s.OldestMS), "" }},
	{"sealed", func(s *Shard) (int64, string) {
		if s.Sealed == nil {
			return -1, ""
		}
		return int64(s.Sealed.Generation), ""
	}},
}

func (o *Observer) everyShard(name string, q Query) []Shard {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tables[name]
	if t == nil {
		return nil
	}
	return t.describeShards(q.matches)
}

// TableShard is a shard and whose it is.
type TableShard struct {
	Table string `json:"table"`
	Shard
}

// EveryShard is a page of all tables' shards. Search looks at tables. Orders: as those of Shards, and table, the first.
func (o *Observer) EveryShard(q Query) (Page[TableShard], error) {
	orders := []order[TableShard]{{"table", func(s *TableShard) (int64, string) { return 0, s.Table }}}
	for _, of := range shardOrders {
		orders = append(orders, order[TableShard]{of.name, func(s *TableShard) (int64, string) { return of.of(&s.Shard) }})
	}
	var rows []TableShard
	o.mu.Lock()
	for name, t := range o.tables {
		if q.matches(name) {
			for _, s := range t.describeShards(func(string) bool { return true }) {
				rows = append(rows, TableShard{name, s})
			}
		}
	}
	o.mu.Unlock()
	return paged(rows, q, orders, func(s *TableShard) string { return s.Table + "\x00" + s.Shard.Shard })
}

// describeShards makes the rows of the table's shards that are wanted. mu is held.
func (t *tableNotes) describeShards(want func(shard string) bool) []Shard {
	rows := make([]Shard, 0, len(t.shards))
	for shard, s := range t.shards {
		if !want(shard) {
			continue
		}
		row := Shard{
			Shard: shard, Group: etcd.GroupOf(shard), PendingGenerations: s.pending, PendingBytes: s.pendingBytes, PendingRows: s.pendingRows,
			OldestMS: s.oldestMS, OldestExact: s.exact, UpdatedMS: s.updatedMS, Source: string(s.source),
		}
		if s.sealedKnown {
			row.Sealed = &Mark{s.sealed.Gen, s.sealed.Epoch, s.sealed.Bytes, s.sealed.Rows}
		}
		if s.mergedKnown {
			row.Merged = &Mark{s.merged.Gen, s.merged.Epoch, s.merged.Bytes, s.merged.Rows}
		}
		if out := t.outcomes[row.Group]; out != nil {
			if f, ok := out.Shards[shard]; ok && !(f.Generation > 0 && s.merged.Gen >= f.Generation) {
				row.Failure = f.Code
			} else if out.Failure != nil {
				row.Failure = out.Failure.Code
			}
		}
		rows = append(rows, row)
	}
	return rows
}
