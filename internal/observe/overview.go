package observe

import (
	"cmp"
	"slices"
	"time"

	"tidemark/internal/schedule"
)

// attentionShown and behindShown bound the lists of an overview; the full ones are elsewhere.
const (
	attentionShown = 10
	behindShown    = 5
)

// Overview answers: are we behind, where, and why.
type Overview struct {
	NowMS   int64 `json:"now_ms"`
	Fresh   bool  `json:"fresh"` // false: etcd cannot be followed now, and this may be old
	Cluster struct {
		Name  string `json:"name"`
		ID    string `json:"id"`
		Root  string `json:"root"`
		Slots int    `json:"slots"`
	} `json:"cluster"`
	Verdict            Verdict      `json:"verdict"`
	PendingGenerations uint64       `json:"pending_generations"`
	PendingBytes       int64        `json:"pending_bytes"`
	PendingRows        int64        `json:"pending_rows"`
	OldestMS           int64        `json:"oldest_ms"` // seal time; 0 = nothing pending
	OldestTable        string       `json:"oldest_table"`
	RowsPerSecond      float64      `json:"rows_per_second"`
	MergedRows         int64        `json:"merged_rows"`
	Tables             int          `json:"tables"`
	PausedTables       int          `json:"paused_tables"`
	BehindTables       int          `json:"behind_tables"`
	Shards             int          `json:"shards"`
	UnknownShards      int          `json:"unknown_shards"`
	Ready              []ClassSums  `json:"ready"` // by class, the most urgent first
	Executions         int          `json:"executions"`
	Executors          ExecutorSums `json:"executors"`
	Masters            int          `json:"masters"`
	SlotsOwned         int          `json:"slots_owned"`
	Failures           int          `json:"failures"`
	Attention          int          `json:"attention"`
	NeedAttention      []Failure    `json:"need_attention"` // the first few
	Behind             []Table      `json:"behind"`         // the tables that have waited longest, the first few
}

// Verdict is the answer in a word and the number it rests on.
type Verdict string

// The verdicts, worst first.
const (
	Blind     Verdict = "blind"     // the mirror is not complete
	Unowned   Verdict = "unowned"   // slots without a master
	Unserved  Verdict = "unserved"  // work is pending and no executor is there to do it
	Attention Verdict = "attention" // something fails that waiting will not cure
	Behind    Verdict = "behind"    // a table has waited longer than its policy's max_wait, or has too much pending
	KeepingUp Verdict = "keeping_up"
	CaughtUp  Verdict = "caught_up" // nothing is pending
)

// ClassSums are the units of one class in the ready queue.
type ClassSums struct {
	Class    string `json:"class"`
	Units    int    `json:"units"`
	Bytes    int64  `json:"bytes"`
	OldestMS int64  `json:"oldest_ms"` // since when the longest waiting waits; 0 = none
}

// ExecutorSums add all executors up.
type ExecutorSums struct {
	Count        int   `json:"count"`
	Draining     int   `json:"draining"`
	Slots        int   `json:"slots"`
	Active       int   `json:"active"`
	MemoryBytes  int64 `json:"memory_bytes"`
	ClaimedBytes int64 `json:"claimed_bytes"`
}

// classCount is the number of classes.
const classCount = 4

// overviewFor is how long an overview may be shown again while nothing changes: ages in it are told in whole seconds.
const overviewFor = time.Second

// overviewMade is the overview that was made last. It is never changed.
type overviewMade struct {
	overview Overview
	changes  int64
	at       time.Duration // monotonic
}

// Overview adds everything up. Every page needs it for its head, so what was made a moment ago is given out again.
func (o *Observer) Overview() Overview {
	o.mu.Lock()
	made, changes, now := o.overview, o.changes, o.mono()
	o.mu.Unlock()
	if made.changes == changes && made.at != 0 && now-made.at < overviewFor {
		return made.overview
	}
	v := o.makeOverview()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.overview = overviewMade{v, changes, now}
	return v
}

func (o *Observer) makeOverview() Overview {
	rows := o.everyTable(func(string) bool { return true })
	failures := o.everyFailure(func(string) bool { return true })

	o.mu.Lock()
	defer o.mu.Unlock()
	v := Overview{NowMS: o.NowMS(), Fresh: o.fresh, NeedAttention: []Failure{}, Behind: []Table{}, Executions: len(o.executions),
		Masters: len(o.masters), SlotsOwned: len(o.slots), Failures: len(failures), Tables: len(rows)}
	v.Cluster.Name, v.Cluster.ID, v.Cluster.Root, v.Cluster.Slots = o.cluster.Name, o.cluster.ID, o.cluster.Root, o.cluster.Slots
	for i := range rows {
		v.add(&rows[i])
	}
	o.addQueue(&v)
	for _, e := range o.executorsLocked() {
		v.Executors.Count++
		if e.Draining {
			v.Executors.Draining++
		}
		v.Executors.Slots += e.Slots
		v.Executors.Active += e.Active
		v.Executors.MemoryBytes += e.MemoryBytes
		v.Executors.ClaimedBytes += e.ClaimedBytes
	}
	v.addAttention(failures)
	v.addBehind(rows)
	v.Verdict = v.verdict()
	return v
}

func (v *Overview) add(t *Table) {
	v.PendingGenerations += t.PendingGenerations
	v.PendingBytes += t.PendingBytes
	v.PendingRows += t.PendingRows
	v.RowsPerSecond += t.RowsPerSecond
	v.MergedRows += t.MergedRows
	v.Shards += t.Shards
	v.UnknownShards += t.UnknownShards
	if t.State == "paused" {
		v.PausedTables++
	}
	if t.Behind && t.State != "paused" {
		v.BehindTables++
	}
	if t.OldestMS != 0 && (v.OldestMS == 0 || t.OldestMS < v.OldestMS) {
		v.OldestMS, v.OldestTable = t.OldestMS, t.Table
	}
}

func (o *Observer) addQueue(v *Overview) {
	v.Ready = make([]ClassSums, classCount)
	for i := range v.Ready {
		v.Ready[i].Class = schedule.Class(i).String()
	}
	for _, t := range o.tables {
		for _, u := range t.ready {
			if int(u.Class) < 0 || int(u.Class) >= classCount {
				continue
			}
			c := &v.Ready[u.Class]
			c.Units++
			c.Bytes += u.Bytes
			if c.OldestMS == 0 || u.SinceMS < c.OldestMS {
				c.OldestMS = u.SinceMS
			}
		}
	}
}

func (v *Overview) addAttention(failures []Failure) {
	for _, f := range failures {
		if f.Attention {
			v.Attention++
			v.NeedAttention = append(v.NeedAttention, f)
		}
	}
	slices.SortFunc(v.NeedAttention, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.FailedMS, a.FailedMS), cmp.Compare(a.Table, b.Table), cmp.Compare(a.Subject, b.Subject))
	})
	v.NeedAttention = v.NeedAttention[:min(attentionShown, len(v.NeedAttention))]
}

func (v *Overview) addBehind(rows []Table) {
	slices.SortFunc(rows, func(a, b Table) int {
		return cmp.Or(cmp.Compare(sinceForOrder(b.OldestMS), sinceForOrder(a.OldestMS)), cmp.Compare(a.Table, b.Table))
	})
	for _, t := range rows {
		if len(v.Behind) == behindShown || t.PendingGenerations == 0 {
			break
		}
		v.Behind = append(v.Behind, t)
	}
}

func (v *Overview) verdict() Verdict {
	switch {
	case !v.Fresh:
		return Blind
	case v.SlotsOwned < v.Cluster.Slots || v.Cluster.Slots == 0:
		return Unowned
	case v.PendingGenerations > 0 && v.Executors.Count == v.Executors.Draining:
		return Unserved
	case v.Attention > 0:
		return Attention
	case v.BehindTables > 0:
		return Behind
	case v.PendingGenerations > 0:
		return KeepingUp
	}
	return CaughtUp
}
