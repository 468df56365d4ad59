package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
	"tidemark/internal/random"
)

// owed is something that was done and that etcd does not know yet.
type owed struct {
	turn      Turn
	outcomes  Outcomes
	unsettled bool          // a claim that may stand; if so, its turns are given back
	released  bool          // the turns are given back, only the outcomes are missing
	asked     bool          // a release went out that nobody answered
	revisions map[int]int64 // of the outcome records at the release: a newer one is not overwritten
}

// Release gives the turns back and leaves one outcome record per turn, in one txn whose size does not depend on the
// number of shards. It carries no demand.
//
// When etcd is out of space the turns are given back alone, and the outcomes are put later. When nobody answers, the
// whole release is owed and repeated by Run; it may be repeated at will, for it compares that the turns are still ours.
// Both are ErrOwed inside a TurnError. ErrTurnLost says that the turns were revoked, ErrNotHeld that the session was
// fenced: then the turns run out, and nothing is recorded.
func (t *Turns) Release(ctx context.Context, turn Turn, outcomes Outcomes) error {
	o := owed{turn: turn, outcomes: maps.Clone(outcomes)}
	err := t.settle(ctx, &o)
	if errors.Is(err, ErrOwed) {
		t.owe(o)
	}
	if err != nil {
		return &TurnError{Op: "releasing", Table: turn.Table, Turns: turn.Turns, Err: err}
	}
	return nil
}

// Progress records how far an execution is, as long as its turns are ours; ErrTurnLost if they are not.
func (t *Turns) Progress(ctx context.Context, turn Turn, p Progress) error {
	fail := func(err error) error {
		return &TurnError{Op: "reporting progress of", Table: turn.Table, Turns: turn.Turns, Err: err}
	}
	if err := turn.Grant.Err(); err != nil {
		return fail(err)
	}
	ctx, cancel := within(ctx, turn.Grant)
	defer cancel()
	ctx, timeout := context.WithTimeout(ctx, t.session.config.RequestTimeout)
	defer timeout()
	p.V = 1
	value, err := json.Marshal(p)
	if err != nil {
		return fail(err)
	}
	answer, err := etcd.Commit(ctx, t.kv, etcd.Txn{
		If:   t.stillOurs(turn),
		Then: []clientv3.Op{clientv3.OpPut(t.keys.Progress(turn.Execution), string(value), clientv3.WithLease(turn.Grant.Lease))},
	})
	if err != nil {
		return fail(err)
	}
	if !answer.Succeeded {
		return fail(ErrTurnLost)
	}
	return nil
}

// Owed is how much is owed to etcd. While it is not 0, nothing is claimed.
func (t *Turns) Owed() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.owed)
}

// Run settles what is owed whenever the session is held, until ctx is done.
func (t *Turns) Run(ctx context.Context) error {
	for {
		select {
		case <-t.debt:
		case <-ctx.Done():
			return nil
		}
		for t.Owed() > 0 {
			if _, err := t.session.Wait(ctx); err != nil {
				return nil
			}
			t.settleAll(ctx)
			if t.Owed() == 0 {
				break
			}
			if t.clock.Sleep(ctx, random.Jitter(t.random, t.session.config.retryEvery())) != nil {
				return nil
			}
		}
	}
}

func (t *Turns) owe(o owed) {
	t.mu.Lock()
	t.owed = append(t.owed, o)
	t.mu.Unlock()
	t.log.Warn("owed to etcd", "table", o.turn.Table, "turns", o.turn.Turns.String(), "execution", o.turn.Execution)
	select {
	case t.debt <- struct{}{}:
	default:
	}
}

// settleAll tries each debt once and keeps those that remain. Only Run calls it, and others only add.
func (t *Turns) settleAll(ctx context.Context) {
	t.mu.Lock()
	open := slices.Clone(t.owed)
	t.mu.Unlock()
	var remain []owed
	for _, o := range open {
		err := t.settle(ctx, &o)
		if errors.Is(err, ErrOwed) {
			remain = append(remain, o)
			continue
		}
		t.log.Info("no longer owed to etcd", "table", o.turn.Table, "execution", o.turn.Execution, "result", err)
	}
	t.mu.Lock()
	t.owed = append(remain, t.owed[len(open):]...)
	t.mu.Unlock()
}

// settle does what is owed. ErrOwed: it is still owed, or what remains of it in o.
func (t *Turns) settle(ctx context.Context, o *owed) error {
	if o.released {
		return t.putOutcomes(ctx, o)
	}
	if err := o.turn.Grant.Err(); err != nil {
		return err // the turns run out by themselves
	}
	ctx, cancel := within(ctx, o.turn.Grant)
	defer cancel()
	if o.unsettled {
		var stands bool
		err := t.once(ctx, func(ctx context.Context) (err error) {
			o.turn.revision, stands, err = t.claimStands(ctx, o.turn)
			return err
		})
		switch {
		case errors.Is(err, ErrNotHeld):
			return err
		case err != nil:
			return fmt.Errorf("%w: %w", ErrOwed, err)
		case !stands:
			return nil
		}
		o.unsettled = false
	}
	return t.release(ctx, o)
}

// release sends the release until it is answered.
func (t *Turns) release(ctx context.Context, o *owed) error {
	err := t.insist(ctx, func(ctx context.Context) error {
		answer, err := etcd.Commit(ctx, t.kv, t.releaseTxn(*o))
		switch {
		case errors.Is(err, etcd.ErrNoSpace):
			return t.releaseAlone(ctx, o)
		case err != nil:
			o.asked = true
			return err
		case answer.Succeeded, o.asked && t.recorded(answer, o.outcomes):
			return nil
		}
		return ErrTurnLost
	})
	switch held := o.turn.Grant.Err(); {
	case err == nil || errors.Is(err, ErrTurnLost) || errors.Is(err, ErrOwed):
		return err
	case held != nil:
		return held
	}
	return fmt.Errorf("%w: %w", ErrOwed, err)
}

// recorded says whether the outcomes that a refused release met are its own.
func (t *Turns) recorded(answer *clientv3.TxnResponse, outcomes Outcomes) bool {
	for i, n := range slices.Sorted(maps.Keys(outcomes)) {
		got := answer.Responses[i].GetResponseRange()
		if len(got.Kvs) == 0 || string(got.Kvs[0].Value) != string(outcomes[n]) {
			return false
		}
	}
	return len(outcomes) > 0
}

// stillOurs compares that every turn key is as the claim wrote it.
func (t *Turns) stillOurs(turn Turn) []clientv3.Cmp {
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.Value(t.firstKey(turn)), "=", turn.value)}
	for n := range turn.Turns.All() {
		cmps = append(cmps, etcd.Unchanged(t.keys.Turn(turn.Table, n), turn.revision))
	}
	return cmps
}

func (t *Turns) deletes(turn Turn) []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpDelete(t.keys.Progress(turn.Execution))}
	for n := range turn.Turns.All() {
		ops = append(ops, clientv3.OpDelete(t.keys.Turn(turn.Table, n)))
	}
	return ops
}

func (t *Turns) reads(table string, outcomes Outcomes) []clientv3.Op {
	var ops []clientv3.Op
	for _, n := range slices.Sorted(maps.Keys(outcomes)) {
		ops = append(ops, clientv3.OpGet(t.keys.Outcome(table, n)))
	}
	return ops
}

func (t *Turns) releaseTxn(o owed) etcd.Txn {
	txn := etcd.Txn{If: t.stillOurs(o.turn), Then: t.deletes(o.turn), Else: t.reads(o.turn.Table, o.outcomes)}
	for n, record := range o.outcomes {
		txn.Then = append(txn.Then, clientv3.OpPut(t.keys.Outcome(o.turn.Table, n), string(record)))
	}
	return txn
}

// releaseAlone deletes the turns and remembers which outcome records stood there.
func (t *Turns) releaseAlone(ctx context.Context, o *owed) error {
	reads := t.reads(o.turn.Table, o.outcomes)
	answer, err := etcd.Commit(ctx, t.kv, etcd.Txn{If: t.stillOurs(o.turn), Then: append(reads, t.deletes(o.turn)...), Else: reads})
	if err != nil {
		o.asked = true
		return err
	}
	o.revisions = map[int]int64{}
	for i, n := range slices.Sorted(maps.Keys(o.outcomes)) {
		for _, kv := range answer.Responses[i].GetResponseRange().Kvs {
			o.revisions[n] = kv.ModRevision
			if string(kv.Value) == string(o.outcomes[n]) {
				// The release that met the full disk was applied after all.
				delete(o.outcomes, n)
			}
		}
	}
	if !answer.Succeeded && !o.asked && len(o.outcomes) > 0 {
		return ErrTurnLost
	}
	o.released = true
	if len(o.outcomes) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the turns are given back, their outcomes are not recorded: %w", ErrOwed, etcd.ErrNoSpace)
}

// putOutcomes puts owed outcomes, unless newer ones were recorded meanwhile.
func (t *Turns) putOutcomes(ctx context.Context, o *owed) error {
	for _, n := range slices.Sorted(maps.Keys(o.outcomes)) {
		key := t.keys.Outcome(o.turn.Table, n)
		err := t.once(ctx, func(ctx context.Context) error {
			_, err := etcd.Commit(ctx, t.kv, etcd.Txn{
				If:   []clientv3.Cmp{etcd.Unchanged(key, o.revisions[n])},
				Then: []clientv3.Op{clientv3.OpPut(key, string(o.outcomes[n]))},
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("%w: %w", ErrOwed, err)
		}
		// Applied, or refused: then a newer outcome stands there, or this very one after a lost answer.
		delete(o.outcomes, n)
	}
	return nil
}

// insist repeats a request that may be repeated until it is answered, within bounds.
func (t *Turns) insist(ctx context.Context, request func(context.Context) error) error {
	var err error
	for attempt := range attemptsMax {
		if attempt > 0 {
			if slept := t.clock.Sleep(ctx, random.Jitter(t.random, attemptPause)); slept != nil {
				return errors.Join(slept, err)
			}
		}
		if err = t.once(ctx, request); err == nil || slices.ContainsFunc(answers, func(a error) bool { return errors.Is(err, a) }) {
			return err
		}
	}
	return err
}

// answers are errors that say how things are, so asking again is of no use.
var answers = []error{ErrNotHeld, ErrTurnLost, ErrOwed}

// once bounds one request.
func (t *Turns) once(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.session.config.RequestTimeout)
	defer cancel()
	return request(ctx)
}

// within ends a context together with the grant: a fenced process sends nothing more.
func within(ctx context.Context, g Grant) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.Context, func() { cancel(context.Cause(g.Context)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
