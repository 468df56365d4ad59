package observe

import (
	"fmt"
	"maps"
	"slices"

	"tidemark/internal/etcd"
	"tidemark/internal/schedule"
)

// Failure is what keeps a shard, a group or a table's maintenance from being done.
type Failure struct {
	Table      string `json:"table"`
	Shard      string `json:"shard"` // empty: the group's, or the log's
	Group      int    `json:"group"` // 16 is the log
	Subject    string `json:"subject"`
	Code       string `json:"code"`
	Class      string `json:"class"`
	Message    string `json:"message"`
	Remedy     string `json:"remedy"`
	Generation uint64 `json:"generation"` // 0 = no single one
	Attempts   int    `json:"attempts"`
	FailedMS   int64  `json:"failed_ms"`
	RetryMS    int64  `json:"retry_ms"`
	Attention  bool   `json:"attention"` // waiting will not cure it
	Executor   string `json:"executor"`
	Execution  string `json:"execution"`
}

// Failures is a page of everything that fails. Search looks at tables. Orders: attention (then the newest), table, failed, attempts.
func (o *Observer) Failures(q Query) (Page[Failure], error) {
	return paged(o.everyFailure(q.matches), q, failureOrders, func(f *Failure) string {
		return fmt.Sprintf("%s\x00%02d\x00%s", f.Table, f.Group, f.Shard)
	})
}

var failureOrders = []order[Failure]{
	{"attention", func(f *Failure) (int64, string) {
		if f.Attention {
			return -1 << 62, f.Table
		}
		return -f.FailedMS, ""
	}},
	{"table", func(f *Failure) (int64, string) { return 0, f.Table }},
	{"failed", func(f *Failure) (int64, string) { return f.FailedMS, "" }},
	{"attempts", func(f *Failure) (int64, string) { return int64(f.Attempts), "" }},
}

func (o *Observer) everyFailure(want func(table string) bool) []Failure {
	o.mu.Lock()
	defer o.mu.Unlock()
	rows := []Failure{}
	for name, t := range o.tables {
		if want(name) {
			rows = append(rows, t.failures()...)
		}
	}
	return rows
}

// FailuresOf are the failures of one table, in order of group and shard.
func (o *Observer) FailuresOf(name string) []Failure {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tables[name]
	if t == nil {
		return []Failure{}
	}
	return t.failures()
}

func (t *tableNotes) failures() []Failure {
	rows := []Failure{}
	t.eachFailure(func(n int, shard string, f schedule.Failure, out *schedule.Outcome) {
		row := Failure{
			Table: t.name, Shard: shard, Group: n, Subject: fmt.Sprintf("group %d", n), Code: f.Code, Class: string(f.Class), Message: f.Message,
			Remedy: f.Remedy(), Generation: f.Generation, Attempts: f.Count, FailedMS: f.FailedMS, RetryMS: f.FailedMS + f.Delay().Milliseconds(),
			Attention: f.NeedsAttention(), Executor: out.Executor, Execution: out.Execution,
		}
		switch {
		case shard != "":
			row.Subject = "shard " + shard
		case n == etcd.LogTurn:
			row.Subject = "the log"
		}
		rows = append(rows, row)
	})
	return rows
}

// eachFailure visits what still fails: a shard's failure is over once its mark has passed the failing generation.
func (t *tableNotes) eachFailure(visit func(n int, shard string, f schedule.Failure, out *schedule.Outcome)) {
	for n, out := range t.outcomes {
		if out == nil {
			continue
		}
		if out.Failure != nil {
			visit(n, "", *out.Failure, out)
		}
		for _, shard := range slices.Sorted(maps.Keys(out.Shards)) {
			f := out.Shards[shard]
			if s, ok := t.shards[shard]; ok && f.Generation > 0 && s.mergedKnown && s.merged.Gen >= f.Generation {
				continue
			}
			visit(n, shard, f, out)
		}
	}
}
