package observe

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"tidemark/internal/schedule"
)

// Executor is one live executor.
type Executor struct {
	Executor     string `json:"executor"`
	Address      string `json:"address"`
	Version      string `json:"version"`
	Slots        int    `json:"slots"`
	Active       int    `json:"active"` // executions
	MemoryBytes  int64  `json:"memory_bytes"`
	ClaimedBytes int64  `json:"claimed_bytes"` // pending bytes of the units it runs, as they were queued
	Draining     bool   `json:"draining"`      // it claims nothing, whoever asked
	DrainAsked   bool   `json:"drain_asked"`   // a request to drain stands in etcd; it outlives a restart
}

// Master is one live master.
type Master struct {
	Master    string `json:"master"`
	Address   string `json:"address"`
	Version   string `json:"version"`
	StartedMS int64  `json:"started_ms"`
	Slots     []int  `json:"slots"` // that it owns
}

// Turn is one execution and the turns that it holds.
type Turn struct {
	Execution     string  `json:"execution"`
	Executor      string  `json:"executor"`
	Table         string  `json:"table"`
	Kind          string  `json:"kind"`
	Class         string  `json:"class"`
	Turns         string  `json:"turns"` // as in its ready key
	Groups        int     `json:"groups"`
	Stage         string  `json:"stage"`
	Sequence      int64   `json:"sequence"`   // of completed work
	Rows          int64   `json:"rows"`       // written
	Bytes         int64   `json:"bytes"`      // uploaded
	TotalRows     int64   `json:"total_rows"` // pending when it began; 0 = unknown
	Fraction      float64 `json:"fraction"`   // completed; below 1 until it is released, 0 = unknown
	RowsPerSecond float64 `json:"rows_per_second"`
	LeftMS        int64   `json:"left_ms"` // estimate; -1 = none
	StartedMS     int64   `json:"started_ms"`
	IdleMS        int64   `json:"idle_ms"` // since its sequence rose, as this process saw it
}

// putProcess notes an executor, a master or a slot's owner. mu is held.
func (o *Observer) putProcess(kind, key string, value []byte) {
	switch kind {
	case "executors":
		var v struct {
			Address, Version string
			Slots            int
			Memory           int64
			Draining         bool
		}
		if name, err := o.keys.ParseExecutor(key); err == nil && json.Unmarshal(value, &v) == nil {
			o.executors[name] = Executor{Executor: name, Address: v.Address, Version: v.Version, Slots: v.Slots, MemoryBytes: v.Memory, Draining: v.Draining}
		}
	case "masters":
		var v struct {
			Address, Version string
			StartedMS        int64 `json:"started_ms"`
		}
		if name, err := o.keys.ParseMaster(key); err == nil && json.Unmarshal(value, &v) == nil {
			o.masters[name] = Master{Master: name, Address: v.Address, Version: v.Version, StartedMS: v.StartedMS}
		}
	case "drains":
		if name, err := o.keys.ParseDrain(key); err == nil {
			o.drains[name] = true
		}
	case "slots":
		var v struct{ Owner string }
		if slot, err := o.keys.ParseSlot(key); err == nil && json.Unmarshal(value, &v) == nil {
			o.slots[slot] = v.Owner
		}
	}
}

func (o *Observer) deleteProcess(kind, key string) {
	switch kind {
	case "executors":
		if name, err := o.keys.ParseExecutor(key); err == nil {
			delete(o.executors, name)
		}
	case "masters":
		if name, err := o.keys.ParseMaster(key); err == nil {
			delete(o.masters, name)
		}
	case "drains":
		if name, err := o.keys.ParseDrain(key); err == nil {
			delete(o.drains, name)
		}
	case "slots":
		if slot, err := o.keys.ParseSlot(key); err == nil {
			delete(o.slots, slot)
		}
	}
}

// Executors are all live executors, by name.
func (o *Observer) Executors() []Executor {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.executorsLocked()
}

func (o *Observer) executorsLocked() []Executor {
	active, claimed := map[string]int{}, map[string]int64{}
	for _, x := range o.executions {
		active[x.turn.Executor]++
		claimed[x.turn.Executor] += x.unit.Bytes
	}
	rows := make([]Executor, 0, len(o.executors))
	for name, e := range o.executors {
		e.Active, e.ClaimedBytes, e.DrainAsked = active[name], claimed[name], o.drains[name]
		rows = append(rows, e)
	}
	slices.SortFunc(rows, func(a, b Executor) int { return strings.Compare(a.Executor, b.Executor) })
	return rows
}

// Masters are all live masters, by name.
func (o *Observer) Masters() []Master {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mastersLocked()
}

func (o *Observer) mastersLocked() []Master {
	owned := map[string][]int{}
	for slot, owner := range o.slots {
		owned[owner] = append(owned[owner], slot)
	}
	rows := make([]Master, 0, len(o.masters))
	for name, m := range o.masters {
		m.Slots = append([]int{}, owned[name]...)
		slices.Sort(m.Slots)
		rows = append(rows, m)
	}
	slices.SortFunc(rows, func(a, b Master) int { return strings.Compare(a.Master, b.Master) })
	return rows
}

// Turns are all executions that hold turns of the table, or of all tables for "", the longest running first.
func (o *Observer) Turns(table string) []Turn {
	o.mu.Lock()
	defer o.mu.Unlock()
	rows := make([]Turn, 0, len(o.executions))
	for id, x := range o.executions {
		if table == "" || table == x.table {
			rows = append(rows, o.describeTurn(id, x))
		}
	}
	slices.SortFunc(rows, func(a, b Turn) int {
		return cmp.Or(cmp.Compare(a.StartedMS, b.StartedMS), cmp.Compare(a.Execution, b.Execution))
	})
	return rows
}

// almost is the most that a running execution is shown to have done: what is left is its commit and release.
const almost = 0.99

func (o *Observer) describeTurn(id string, x *executionNotes) Turn {
	t := Turn{
		Execution: id, Executor: x.turn.Executor, Table: x.table, Kind: string(x.unit.Kind), Class: x.unit.Class.String(), Turns: x.turn.Turns,
		Groups: x.unit.Groups.Len(), Stage: "claimed", TotalRows: x.total, StartedMS: x.turn.StartedMS, LeftMS: -1,
	}
	if x.unit.Groups == schedule.Log {
		t.Groups = 0
	}
	p, ok := o.progress[id]
	if !ok {
		return t
	}
	t.Stage, t.Sequence, t.Rows, t.Bytes = p.Stage, p.Seq, p.Rows, p.Bytes
	t.IdleMS = (o.mono() - p.rose).Milliseconds()
	if seconds := float64(o.NowMS()-t.StartedMS) / 1000; seconds > 0.5 {
		t.RowsPerSecond = float64(p.Rows) / seconds
	}
	if x.total > 0 {
		t.Fraction = min(float64(p.Rows)/float64(x.total), almost)
		if t.RowsPerSecond > 0 && p.Rows < x.total {
			t.LeftMS = int64(float64(x.total-p.Rows) / t.RowsPerSecond * 1000)
		}
	}
	return t
}
