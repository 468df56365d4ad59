package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/test/etcd/etcdtest"
)

// floor is an etcd with a ready queue, and executors that claim from it.
type floor struct {
	t      *testing.T
	client *clientv3.Client
}

type executor struct {
	*Turns
	session *Session
	grant   Grant
	kv      *etcdtest.FaultyKV
}

func newFloor(t *testing.T) floor { return floor{t, etcdtest.Start(t)} }

func (f floor) executor(name string) executor {
	f.t.Helper()
	s := runSession(f.t, f.client, testKeys.Executor(name), uint64(len(name)+int(name[0])))
	kv := etcdtest.NewFaultyKV(f.client)
	turns := NewTurns(kv, testKeys, s.Session, name, clock.System(), random.Seeded(uint64(name[0])), hclog.NewNullLogger())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- turns.Run(ctx) }()
	f.t.Cleanup(func() {
		stop()
		<-ended
	})
	return executor{turns, s.Session, wait(f.t, s.Session), kv}
}

func (f floor) queue(u etcd.ReadyKey) ReadyKV {
	f.t.Helper()
	ready := ReadyKV{ReadyKey: u, Key: testKeys.Ready(u), Value: []byte(`{"v":1}`)}
	put, err := f.client.Put(f.t.Context(), ready.Key, string(ready.Value))
	if err != nil {
		f.t.Fatal(err)
	}
	ready.ModRevision = put.Header.Revision
	return ready
}

func (f floor) get(key string, opts ...clientv3.OpOption) *clientv3.GetResponse {
	f.t.Helper()
	got, err := f.client.Get(f.t.Context(), key, opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	return got
}

// held is the execution behind each held turn of a table.
func (f floor) held(table string) map[int]string {
	f.t.Helper()
	held := map[int]string{}
	for _, kv := range f.get(testKeys.TurnsOfTable(table), clientv3.WithPrefix()).Kvs {
		_, turn, err := testKeys.ParseTurn(string(kv.Key))
		if err != nil {
			f.t.Fatal(err)
		}
		var v TurnValue
		if err := json.Unmarshal(kv.Value, &v); err != nil {
			f.t.Fatal(err)
		}
		held[turn] = v.Execution
	}
	return held
}

func (f floor) outcome(table string, turn int) string {
	f.t.Helper()
	got := f.get(testKeys.Outcome(table, turn))
	if len(got.Kvs) == 0 {
		return ""
	}
	return string(got.Kvs[0].Value)
}

func (f floor) eventually(what string, holds func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			f.t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

var wholeTable = etcd.ReadyKey{Class: 1, Order: "0001", Table: "a/b", Turns: etcd.AllGroups}

func TestAClaimMovesTheUnitIntoTurnsAndAReleaseLeavesOneOutcomePerGroup(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	ready := f.queue(wholeTable)

	turn, err := x.Claim(t.Context(), x.grant, ready)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.get(ready.Key).Kvs) != 0 {
		t.Error("the unit is still queued")
	}
	if held := f.held("a/b"); len(held) != 16 || held[7] != turn.Execution {
		t.Errorf("held: %v", held)
	}
	if err := x.Progress(t.Context(), turn, Progress{Seq: 3, Stage: "read", Rows: 10}); err != nil {
		t.Fatal(err)
	}
	if got := f.get(testKeys.Progress(turn.Execution)); string(got.Kvs[0].Value) != `{"v":1,"seq":3,"stage":"read","rows":10,"bytes":0}` ||
		got.Kvs[0].Lease != int64(x.grant.Lease) {
		t.Errorf("progress: %v", got.Kvs[0])
	}

	outcomes := Outcomes{}
	for n := range turn.Turns.All() {
		outcomes[n] = fmt.Appendf(nil, `{"v":1,"turn":%d}`, n)
	}
	if err := x.Release(t.Context(), turn, outcomes); err != nil {
		t.Fatal(err)
	}
	if held := f.held("a/b"); len(held) != 0 || len(f.get(testKeys.Progress(turn.Execution)).Kvs) != 0 {
		t.Errorf("after the release: %v", held)
	}
	for n := range turn.Turns.All() {
		if got := f.outcome("a/b", n); got != string(outcomes[n]) {
			t.Errorf("outcome of %d: %s", n, got)
		}
	}
}

func TestOfManyClaimsOfOneUnitOneWins(t *testing.T) {
	f := newFloor(t)
	executors := []executor{f.executor("x"), f.executor("y"), f.executor("z")}
	for round := range 10 {
		u := wholeTable
		u.Table = fmt.Sprint("table-", round)
		ready := f.queue(u)
		won := make(chan Turn, len(executors))
		var g errgroup.Group
		for _, x := range executors {
			g.Go(func() error {
				turn, err := x.Claim(t.Context(), x.grant, ready)
				if err == nil {
					won <- turn
					return nil
				}
				if !errors.Is(err, ErrTaken) {
					return err
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if len(won) != 1 {
			t.Fatalf("%d executors won", len(won))
		}
		if turn := <-won; f.held(u.Table)[0] != turn.Execution {
			t.Fatal("the winner does not hold the turn")
		}
	}
}

func TestOverlappingUnitsExcludeEachOtherAndDisjointOnesDoNot(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	unit := func(order string, turns etcd.TurnSet) ReadyKV {
		return f.queue(etcd.ReadyKey{Class: 1, Order: order, Table: "t", Turns: turns})
	}
	if _, err := x.Claim(t.Context(), x.grant, unit("1", 0x00ff)); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Claim(t.Context(), x.grant, unit("2", 0x0180)); !errors.Is(err, ErrTaken) || errors.Is(err, ErrGone) {
		t.Errorf("an overlapping unit: %v", err)
	}
	if _, err := x.Claim(t.Context(), x.grant, unit("3", 0xff00)); err != nil {
		t.Errorf("a disjoint unit: %v", err)
	}
	if _, err := x.Claim(t.Context(), x.grant, unit("4", etcd.LogOnly)); err != nil {
		t.Errorf("the log beside them: %v", err)
	}
}

func TestAUnitThatChangedSinceItWasSeenIsNotClaimed(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	seen := f.queue(wholeTable)
	f.queue(wholeTable)
	_, err := x.Claim(t.Context(), x.grant, seen)
	var turnErr *TurnError
	if !errors.Is(err, ErrGone) || !errors.As(err, &turnErr) || turnErr.Table != "a/b" {
		t.Fatalf("got %v", err)
	}
}

func TestAClaimGoesThroughAfterTheSessionKeyWasRefreshed(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	if _, err := x.Claim(t.Context(), x.grant, f.queue(etcd.ReadyKey{Class: 1, Order: "1", Table: "t", Turns: 1})); err != nil {
		t.Fatal(err)
	}
	if err := x.session.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Claim(t.Context(), x.grant, f.queue(etcd.ReadyKey{Class: 1, Order: "1", Table: "t", Turns: 2})); err != nil {
		t.Fatal(err)
	}
}

func TestAClaimWhoseAnswerWasLostIsAdopted(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	x.kv.Next(etcdtest.LoseAnswer)
	turn, err := x.Claim(t.Context(), x.grant, f.queue(wholeTable))
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Release(t.Context(), turn, nil); err != nil {
		t.Fatalf("the adopted turn cannot be released: %v", err)
	}
	if held := f.held("a/b"); len(held) != 0 {
		t.Fatalf("held: %v", held)
	}
}

func TestAClaimThatArrivesAfterItWasSettledIsVoid(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	ready := f.queue(wholeTable)
	x.kv.Next(etcdtest.LateRequest)
	if _, err := x.Claim(t.Context(), x.grant, ready); err == nil {
		t.Fatal("claimed by a request that did not arrive")
	}
	x.kv.Deliver()
	if held := f.held("a/b"); len(held) != 0 || len(f.get(ready.Key).Kvs) != 1 {
		t.Fatalf("it took effect after all: %v", held)
	}
	// The unit can be claimed again at once.
	if _, err := x.Claim(t.Context(), x.grant, ready); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsClaimedWhileAnUnansweredClaimIsUnsettledAndItsTurnsAreGivenBack(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	ready := f.queue(wholeTable)
	x.kv.Next(etcdtest.LoseAnswer) // applied; the settlement finds no answer
	x.kv.Then(etcdtest.LoseRequest)
	if _, err := x.Claim(t.Context(), x.grant, ready); !errors.Is(err, ErrOwed) {
		t.Fatalf("got %v", err)
	}
	if x.Owed() != 1 || len(f.held("a/b")) != 16 {
		t.Fatalf("%d owed, held %v", x.Owed(), f.held("a/b"))
	}
	x.kv.Heal()
	f.eventually("the turns are given back without a nudge", func() bool { return x.Owed() == 0 })
	if held := f.held("a/b"); len(held) != 0 {
		t.Fatalf("held: %v", held)
	}
	if _, err := x.Claim(t.Context(), x.grant, f.queue(wholeTable)); err != nil {
		t.Fatal(err)
	}
}

func TestAReleaseWhoseAnswerWasLostIsAppliedOnce(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	turn, err := x.Claim(t.Context(), x.grant, f.queue(wholeTable))
	if err != nil {
		t.Fatal(err)
	}
	x.kv.Next(etcdtest.LoseAnswer)
	if err := x.Release(t.Context(), turn, Outcomes{0: []byte(`{"v":1,"mine":true}`)}); err != nil {
		t.Fatal(err)
	}
	if got := f.get(testKeys.Outcome("a/b", 0)); got.Kvs[0].Version != 1 {
		t.Errorf("recorded %d times", got.Kvs[0].Version)
	}
}

func TestAReleaseThatNobodyAnswersIsOwedAndDoneLater(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	turn, err := x.Claim(t.Context(), x.grant, f.queue(wholeTable))
	if err != nil {
		t.Fatal(err)
	}
	x.kv.Then(etcdtest.LoseRequest)
	if err := x.Release(t.Context(), turn, Outcomes{0: []byte(`{"v":1}`)}); !errors.Is(err, ErrOwed) {
		t.Fatalf("got %v", err)
	}
	if _, err := x.Claim(t.Context(), x.grant, f.queue(etcd.ReadyKey{Class: 1, Order: "1", Table: "t", Turns: 1})); !errors.Is(err, ErrOwed) {
		t.Errorf("claimed while a release is owed: %v", err)
	}
	x.kv.Heal()
	f.eventually("the release is done", func() bool { return x.Owed() == 0 })
	if f.outcome("a/b", 0) != `{"v":1}` || len(f.held("a/b")) != 0 {
		t.Errorf("outcome %q, held %v", f.outcome("a/b", 0), f.held("a/b"))
	}
}

func TestRevokedTurnsCannotBeReleasedAndLeaveNoOutcome(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	turn, err := x.Claim(t.Context(), x.grant, f.queue(wholeTable))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.Delete(t.Context(), testKeys.TurnsOfTable("a/b"), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if err := x.Progress(t.Context(), turn, Progress{Seq: 1}); !errors.Is(err, ErrTurnLost) {
		t.Errorf("progress: %v", err)
	}
	if err := x.Release(t.Context(), turn, Outcomes{0: []byte(`{"v":1}`)}); !errors.Is(err, ErrTurnLost) {
		t.Errorf("release: %v", err)
	}
	if got := f.outcome("a/b", 0); got != "" {
		t.Errorf("an outcome was recorded: %s", got)
	}
}

func TestInAFullEtcdTurnsAreGivenBackAndTheOutcomesAreRecordedLater(t *testing.T) {
	for name, fault := range map[string]etcdtest.Fault{"turned away": etcdtest.NoSpace, "applied by the txn that filled it": etcdtest.NoSpaceDone} {
		t.Run(name, func(t *testing.T) {
			f := newFloor(t)
			x := f.executor("x")
			turn, err := x.Claim(t.Context(), x.grant, f.queue(wholeTable))
			if err != nil {
				t.Fatal(err)
			}
			x.kv.Next(fault)
			err = x.Release(t.Context(), turn, Outcomes{0: []byte(`{"v":1}`), 1: []byte(`{"v":1,"n":1}`)})
			if fault == etcdtest.NoSpace && (!errors.Is(err, ErrOwed) || !errors.Is(err, etcd.ErrNoSpace)) ||
				fault == etcdtest.NoSpaceDone && err != nil {
				t.Fatalf("got %v", err)
			}
			if held := f.held("a/b"); len(held) != 0 {
				t.Errorf("held: %v", held)
			}
			f.eventually("the outcomes are recorded", func() bool { return x.Owed() == 0 })
			if f.outcome("a/b", 0) != `{"v":1}` || f.outcome("a/b", 1) != `{"v":1,"n":1}` {
				t.Errorf("outcomes %q and %q", f.outcome("a/b", 0), f.outcome("a/b", 1))
			}
		})
	}
}

func TestAFencedExecutorClaimsAndReleasesNothing(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	turn, err := x.Claim(t.Context(), x.grant, f.queue(wholeTable))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.Revoke(t.Context(), x.grant.Lease); err != nil {
		t.Fatal(err)
	}
	<-x.grant.Context.Done()
	before := x.kv.Txns()
	if _, err := x.Claim(t.Context(), x.grant, f.queue(wholeTable)); !errors.Is(err, ErrNotHeld) {
		t.Errorf("claim: %v", err)
	}
	if err := x.Release(t.Context(), turn, Outcomes{0: []byte(`{}`)}); !errors.Is(err, ErrNotHeld) {
		t.Errorf("release: %v", err)
	}
	if err := x.Progress(t.Context(), turn, Progress{}); !errors.Is(err, ErrNotHeld) {
		t.Errorf("progress: %v", err)
	}
	if x.kv.Txns() != before || x.Owed() != 0 {
		t.Errorf("%d txns were sent after the fence, %d owed", x.kv.Txns()-before, x.Owed())
	}
}

func TestTheTurnsOfAKilledExecutorRunOutWithItsLease(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	if _, err := x.Claim(t.Context(), x.grant, f.queue(wholeTable)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.Revoke(t.Context(), x.grant.Lease); err != nil {
		t.Fatal(err)
	}
	if held := f.held("a/b"); len(held) != 0 {
		t.Errorf("held: %v", held)
	}
	y := f.executor("y")
	if _, err := y.Claim(t.Context(), y.grant, f.queue(wholeTable)); err != nil {
		t.Fatal(err)
	}
}
