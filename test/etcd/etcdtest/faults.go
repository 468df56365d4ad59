package etcdtest

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Fault spoils one txn.
type Fault int

// The faults of a txn.
const (
	None        Fault = iota
	LoseAnswer        // it is applied, but the caller gets no answer
	LoseRequest       // it is not applied, and the caller gets no answer either
	NoSpace           // it is not applied: etcd says that it is out of space
	NoSpaceDone       // it is applied, and etcd says that it is out of space, as it does to the txn that fills it
	LateRequest       // the caller gets no answer, and it arrives when the test calls Deliver
)

// ErrNoAnswer is what a caller gets instead of an answer.
var ErrNoAnswer = errors.New("etcdtest: no answer")

// FaultyKV is a KV whose txns a test can spoil. It is safe for concurrent use.
type FaultyKV struct {
	clientv3.KV

	mu     sync.Mutex // guards the following
	faults []Fault
	rest   Fault // once faults are used up
	late   []func()
	before func()
	txns   int
}

// NewFaultyKV wraps a KV that works.
func NewFaultyKV(kv clientv3.KV) *FaultyKV { return &FaultyKV{KV: kv} }

// Next spoils the next txns, one fault each.
func (f *FaultyKV) Next(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, faults...)
}

// Then spoils every txn after those that Next named, until Heal.
func (f *FaultyKV) Then(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rest = fault
}

// Heal spoils nothing any more.
func (f *FaultyKV) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults, f.rest = nil, None
}

// Before runs before every txn from now on, as a rival would.
func (f *FaultyKV) Before(run func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = run
}

// Txns is the number of txns begun.
func (f *FaultyKV) Txns() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.txns
}

// Txn begins a txn, spoiled if the test said so.
func (f *FaultyKV) Txn(ctx context.Context) clientv3.Txn {
	f.mu.Lock()
	f.txns++
	fault := f.rest
	if len(f.faults) > 0 {
		fault, f.faults = f.faults[0], f.faults[1:]
	}
	before := f.before
	f.mu.Unlock()
	if before != nil {
		before()
	}
	if fault == LateRequest {
		ctx = context.WithoutCancel(ctx)
	}
	return &faultyTxn{Txn: f.KV.Txn(ctx), kv: f, fault: fault}
}

// Deliver lets the late requests arrive.
func (f *FaultyKV) Deliver() {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for _, arrive := range late {
		arrive()
	}
}

type faultyTxn struct {
	clientv3.Txn
	kv    *FaultyKV
	fault Fault
}

func (t *faultyTxn) If(c ...clientv3.Cmp) clientv3.Txn {
	t.Txn = t.Txn.If(c...)
	return t
}

func (t *faultyTxn) Then(o ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Then(o...)
	return t
}

func (t *faultyTxn) Else(o ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(o...)
	return t
}

func (t *faultyTxn) Commit() (*clientv3.TxnResponse, error) {
	switch t.fault {
	case LoseAnswer, NoSpaceDone:
		if _, err := t.Txn.Commit(); err != nil {
			return nil, err
		}
	case LateRequest:
		t.kv.mu.Lock()
		t.kv.late = append(t.kv.late, func() { _, _ = t.Txn.Commit() })
		t.kv.mu.Unlock()
	}
	switch t.fault {
	case None:
		return t.Txn.Commit()
	case NoSpace, NoSpaceDone:
		return nil, rpctypes.ErrNoSpace
	}
	return nil, ErrNoAnswer
}
