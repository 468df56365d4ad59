package executor

import (
	"cmp"
	"errors"
	"slices"

	"tidemark/internal/ownership"
)

// Status is what /status of an executor shows.
type Status struct {
	Role       string           `json:"role"`
	ID         string           `json:"id"`
	Version    string           `json:"version"`
	Session    ownership.Report `json:"session"`
	Draining   bool             `json:"draining"`
	Slots      int              `json:"slots"`
	Memory     int64            `json:"memory"`
	Granted    int64            `json:"memory_granted"` // to the executions that run
	Active     int              `json:"active"`
	Owed       int              `json:"owed"`  // releases and outcomes that etcd does not know yet
	Ready      int              `json:"ready"` // units in the queue
	Executions []RunningStatus  `json:"executions"`
}

// RunningStatus is one execution in progress.
type RunningStatus struct {
	Execution string `json:"execution"`
	Table     string `json:"table"`
	Kind      string `json:"kind"`
	Turns     string `json:"turns"`
	Stage     string `json:"stage"`
	Sequence  int64  `json:"sequence"` // of completed work
	Memory    int64  `json:"memory"`   // granted
	Rows      int64  `json:"rows"`
	Bytes     int64  `json:"bytes"`
	RunningMS int64  `json:"running_ms"`
	IdleMS    int64  `json:"idle_ms"` // since the sequence rose
}

// Healthy is nil unless only a person can help.
func (e *Executor) Healthy() error {
	if failed := e.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}

// Ready is nil while the executor would claim a unit.
func (e *Executor) Ready() error {
	if e.drains.draining() {
		return errors.New("draining")
	}
	if _, held := e.session.Current(); !held {
		return errors.New("the session is " + e.session.Status().State.String())
	}
	return nil
}

// Status describes the executor; its type is Status.
func (e *Executor) Status() any {
	status := Status{
		Role: "executor", ID: e.config.ID, Version: e.config.Version,
		Session:  e.session.Status().Report(e.deps.Clock.Mono()),
		Draining: e.drains.draining(), Slots: e.config.Slots, Memory: e.config.Memory, Granted: e.granted(), Owed: e.turns.Owed(),
		Ready: e.queue.Len(), Executions: []RunningStatus{},
	}
	for _, x := range e.runningNow() {
		status.Executions = append(status.Executions, e.describe(x))
	}
	status.Active = len(status.Executions)
	return status
}

func (e *Executor) runningNow() []*execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	running := make([]*execution, 0, len(e.running))
	for _, x := range e.running {
		running = append(running, x)
	}
	slices.SortFunc(running, func(a, b *execution) int {
		return cmp.Or(cmp.Compare(a.started, b.started), cmp.Compare(a.turn.Execution, b.turn.Execution))
	})
	return running
}

func (e *Executor) describe(x *execution) RunningStatus {
	var p ownership.Progress
	p, last := x.progress()
	now := e.deps.Clock.Mono()
	return RunningStatus{
		Execution: x.turn.Execution, Table: x.turn.Table, Kind: string(x.unit.Kind), Turns: x.turn.Turns.String(),
		Stage: p.Stage, Sequence: p.Seq, Memory: x.budget, Rows: p.Rows, Bytes: p.Bytes,
		RunningMS: (now - x.started).Milliseconds(), IdleMS: (now - last).Milliseconds(),
	}
}
