package ownership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/test/sim/simetcd"
)

// cable carries requests to a simulated etcd until it is cut. What is sent while it is cut arrives if it is a txn, and is
// answered in no case: its sender waits as long as it likes to.
type cable struct {
	mu   sync.Mutex // guards the following
	cut  bool
	sent []time.Time // requests, cut or not
}

func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

// between counts the requests that were sent between two times after the start.
func (c *cable) between(start time.Time, from, to time.Duration) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.sent {
		if after := at.Sub(start); after > from && after < to {
			n++
		}
	}
	return n
}

func (c *cable) Call(ctx context.Context, request simetcd.Request, apply func() (proto.Message, error)) (proto.Message, error) {
	c.mu.Lock()
	cut := c.cut
	c.sent = append(c.sent, time.Now())
	c.mu.Unlock()
	if !cut {
		return apply()
	}
	if request.Method == "Txn" {
		_, _ = apply()
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (c *cable) Open(ctx context.Context, fail func(error)) (simetcd.Stream, error) {
	return simetcd.Direct{}.Open(ctx, fail)
}

// A cut of 2.5 s at a TTL of 3 s, over a renewal and a claim that reached etcd: held, quarantined, held. The claim is owed,
// nothing is asked or claimed in quarantine, and everything goes on without anybody's help.
func TestACutOverARenewalAndAClaimIsQuarantinedAndWhatIsOwedGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		defer simetcd.EnterBubble()()
		server := simetcd.NewServer(7, 1, func(d time.Duration, f func()) { time.AfterFunc(d, f) })
		defer server.Close()
		line := &cable{}
		client, err := simetcd.Dial(server, line)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		session, err := NewSession(client, Options{
			Key: testKeys.Executor("x"), Config: exclusive(testTTL), Clock: clock.System(), Random: random.Seeded(1), Log: hclog.NewNullLogger(),
		})
		if err != nil {
			t.Fatal(err)
		}
		var states []State
		note := func() { states = append(states, session.Status().State) }
		turns := NewTurns(client, testKeys, session, "x", clock.System(), random.Seeded(2), hclog.NewNullLogger())
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = session.Run(ctx) })
		running.Go(func() { _ = turns.Run(ctx) })
		defer func() {
			stop()
			running.Wait()
		}()
		f := floor{t, client}

		begun := time.Now()
		grant, err := session.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		note()
		unit := f.queue(etcd.ReadyKey{Class: 1, Order: "1", Table: "t", Turns: etcd.TurnsOf(3)})
		if err := turns.learnRevision(t.Context(), grant); err != nil { // as an executor that has claimed before knows it
			t.Fatal(err)
		}
		after(900 * time.Millisecond)
		line.set(true)
		time.AfterFunc(2500*time.Millisecond, func() { line.set(false) })
		_, err = turns.Claim(t.Context(), grant, unit)
		if !errors.Is(err, ErrOwed) && !errors.Is(err, ErrNotHeld) {
			t.Errorf("the claim: %v", err)
		}
		if kvs, _ := server.Standing(testKeys.TurnsOfTable("t")); len(kvs) != 1 {
			t.Errorf("the claim did not reach etcd: %v", kvs)
		}
		<-grant.Context.Done()
		synctest.Wait()
		note()
		if at := time.Since(begun); at != 2*time.Second {
			t.Errorf("fenced at %v", at)
		}

		second, err := session.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		note()
		if at := time.Since(begun); at != 5*time.Second || second.Token == grant.Token {
			t.Errorf("held again at %v under token %s, before %s", at, second.Token, grant.Token)
		}
		if want := []State{Held, Quarantined, Held}; !slices.Equal(states, want) {
			t.Errorf("states %v, want %v", states, want)
		}
		if n := line.between(begun, 2*time.Second, 5*time.Second); n != 0 {
			t.Errorf("%d requests were sent in quarantine", n)
		}
		after(testTTL) // time enough for what is owed
		if n := turns.Owed(); n != 0 {
			t.Errorf("%d still owed", n)
		}
		if kvs, _ := server.Standing(testKeys.TurnsOfTable("t")); len(kvs) != 0 {
			t.Errorf("turns of the lost tenure stand: %v", kvs)
		}
		turn, err := turns.Claim(t.Context(), second, f.queue(etcd.ReadyKey{Class: 1, Order: "1", Table: "t", Turns: etcd.TurnsOf(3)}))
		if err != nil {
			t.Fatal(err)
		}
		if err := turns.Release(t.Context(), turn, Outcomes{3: []byte(`{"v":1}`)}); err != nil {
			t.Fatal(err)
		}
	})
}

// A renewal and the deadline ready together count as the renewal.
func TestARenewalAnsweredAtTheDeadlineCounts(t *testing.T) {
	tokens := 0
	m := NewMachine(DefaultConfig(testTTL), 0,
		func() string { tokens++; return fmt.Sprint("token-", tokens) },
		func(d time.Duration) time.Duration { return d })
	m.Tick(0)
	m.Answer(0, m.seq, Answer{Kind: Ours})
	m.Tick(time.Second) // sends the renewal
	actions := m.Answer(2*time.Second, m.seq, Answer{Kind: Ours})
	if len(actions) != 1 || actions[0].Kind != Extend || actions[0].Deadline != 3*time.Second {
		t.Errorf("%+v", actions)
	}
	if actions = m.Tick(2 * time.Second); len(actions) != 1 || actions[0].Kind != Send || m.Status().State != Held {
		t.Errorf("%+v in %+v", actions, m.Status())
	}
}

// weighing counts what the txns of a KV consist of.
type weighing struct {
	clientv3.KV
	ops  int
	keys []string
}

func (w *weighing) Txn(ctx context.Context) clientv3.Txn {
	w.ops, w.keys = 0, nil
	return &weighedTxn{w.KV.Txn(ctx), w}
}

type weighedTxn struct {
	clientv3.Txn
	of *weighing
}

func (t *weighedTxn) If(c ...clientv3.Cmp) clientv3.Txn  { t.Txn = t.Txn.If(c...); return t }
func (t *weighedTxn) Else(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(o...); return t }
func (t *weighedTxn) Then(o ...clientv3.Op) clientv3.Txn {
	for _, op := range o {
		t.of.keys = append(t.of.keys, string(op.KeyBytes()))
	}
	t.of.ops += len(o)
	t.Txn = t.Txn.Then(o...)
	return t
}

func TestAReleaseCarriesNoDemandAndIsBoundedByTheGroups(t *testing.T) {
	f := newFloor(t)
	x := f.executor("x")
	weighed := &weighing{KV: f.client}
	x.kv.KV = weighed
	turn, err := x.Claim(t.Context(), x.grant, f.queue(wholeTable))
	if err != nil {
		t.Fatal(err)
	}
	outcomes := Outcomes{}
	for n := range turn.Turns.All() {
		outcomes[n] = []byte(`{"v":1}`)
	}
	if err := x.Release(t.Context(), turn, outcomes); err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{testKeys.Progress(turn.Execution): true}
	for n := range turn.Turns.All() {
		allowed[testKeys.Turn(turn.Table, n)], allowed[testKeys.Outcome(turn.Table, n)] = true, true
	}
	if weighed.ops != len(allowed) {
		t.Errorf("%d operations, want %d: a turn and an outcome per group and the progress", weighed.ops, len(allowed))
	}
	for _, key := range weighed.keys {
		if !allowed[key] {
			t.Errorf("the release writes %s", key)
		}
	}
}

func TestALeaseIsReportedInEveryState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		time.Sleep(time.Millisecond)
		x := let(t, server, exclusive(testTTL))
		says := func(state string, unrenewed, quarantine time.Duration, reacquisitions int) {
			t.Helper()
			r := x.Status().Report(x.clock.Mono())
			if r.State != state || r.Reason == "" || r.UnrenewedMS == nil || *r.UnrenewedMS != unrenewed.Milliseconds() ||
				r.QuarantineMS != quarantine.Milliseconds() || r.Reacquisitions != reacquisitions {
				t.Errorf("at %v: %+v", x.clock.Mono(), r)
			}
		}
		after(1500 * time.Millisecond)
		says("held", 500*time.Millisecond, 0, 0)
		server.set(func(s *leaseServer) { s.cut = true })
		after(2 * time.Second)
		says("quarantined", 2500*time.Millisecond, 2500*time.Millisecond, 0)
		server.set(func(s *leaseServer) { s.cut = false })
		after(3 * time.Second)
		says("held", 500*time.Millisecond, 0, 1)
	})
}
