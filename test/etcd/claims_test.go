package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/test/etcd/etcdtest"
)

// A turn and its ready key are one register: a unit is queued if there is none and nobody holds the turn; a claim takes the
// unit and the turn at once; a release, or the end of the holder's lease, frees the turn. Histories of real claims over a
// cluster that is hurt all the while are checked against that by porcupine. A holder's lease may end only after the holder
// has fenced itself, so a turn that is taken from a holder who still believes in it has no explanation.

const (
	claimRegisters = 3
	claimClients   = 4
	claimsLast     = 40 * time.Second
	// checkMax bounds the search of one history; it takes a second.
	checkMax = 3 * time.Minute
)

// claimOp is what somebody asked of a register.
type claimOp struct {
	register int
	kind     string // queue, claim, release, expire
	unit     int64  // queue and claim: which unit
	holder   int64  // claim, release, expire: which claim, from 1
}

// claimAnswer is how it ended.
type claimAnswer int

const (
	answerYes claimAnswer = iota
	answerNo
	answerUnknown // it was carried out once before the end of time, or never
)

// register is the state of one register; 0 is none and nobody.
type register struct{ unit, holder int64 }

var claimModel = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, claimRegisters)
		for _, o := range history {
			n := o.Input.(claimOp).register
			parts[n] = append(parts[n], o)
		}
		return parts
	},
	Init: func() []any { return []any{register{}} },
	Step: func(state, input, output any) []any {
		s, op := state.(register), input.(claimOp)
		next, possible := s.after(op)
		switch {
		case output == answerUnknown && possible:
			return []any{next, s}
		case output == answerUnknown, output == answerNo && !possible:
			return []any{s}
		case output == answerYes && possible:
			return []any{next}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v → %s", input, [...]string{"yes", "no", "unknown"}[output.(claimAnswer)])
	},
}).ToModel()

// after is the state after an operation, if it is possible.
func (s register) after(op claimOp) (register, bool) {
	switch op.kind {
	case "queue":
		return register{unit: op.unit}, s == register{}
	case "claim":
		return register{holder: op.holder}, s == register{unit: op.unit}
	default: // release, expire
		return register{unit: s.unit}, s.holder == op.holder
	}
}

// claimHistory collects operations.
type claimHistory struct {
	start time.Time

	mu      sync.Mutex // guards the following
	ops     []porcupine.Operation
	holders int64
	units   int64
	kinds   map[string]int
}

func (h *claimHistory) now() int64 { return int64(time.Since(h.start)) }

func (h *claimHistory) add(client int, op claimOp, answer claimAnswer, call, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: op, Output: answer, Call: call, Return: end})
	h.kinds[op.kind+[...]string{"", " refused", " unknown"}[answer]]++
}

// number draws from a counter.
func (h *claimHistory) number(of *int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	*of++
	return *of
}

// claimer is one executor without executions.
type claimer struct {
	*claimHistory
	id      int
	client  *clientv3.Client
	session *ownership.Session
	turns   *ownership.Turns
	random  *rand.Rand

	mu   sync.Mutex // guards held
	held map[int64]int
}

func readyOf(n int) etcd.ReadyKey {
	return etcd.ReadyKey{Class: 1, Order: "0", Table: "t", Turns: etcd.TurnsOf(n)}
}

// fenced notes that the session is over: from now on what it held may run out.
func (c *claimer) fenced(error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for holder, n := range c.held {
		c.add(c.id, claimOp{n, "expire", 0, holder}, answerUnknown, c.now(), math.MaxInt64)
	}
	clear(c.held)
}

func (c *claimer) loop(ctx context.Context) {
	for ctx.Err() == nil {
		grant, err := c.session.Wait(ctx)
		if err != nil {
			return
		}
		n := c.random.IntN(claimRegisters)
		key := keys.Ready(readyOf(n))
		asking, cancel := context.WithTimeout(ctx, time.Second)
		got, err := c.client.Get(asking, key)
		cancel()
		if err != nil || len(got.Kvs) == 0 {
			time.Sleep(time.Duration(c.random.Int64N(int64(20 * time.Millisecond))))
			continue
		}
		unit, err := strconv.ParseInt(string(got.Kvs[0].Value), 10, 64)
		if err != nil {
			panic(err) // only the queuer writes there
		}
		c.once(ctx, grant, n, unit, ownership.ReadyKV{ReadyKey: readyOf(n), Key: key, Value: got.Kvs[0].Value, ModRevision: got.Kvs[0].ModRevision})
	}
}

// once claims one unit, and gives its turn back after a moment.
func (c *claimer) once(ctx context.Context, grant ownership.Grant, n int, unit int64, ready ownership.ReadyKV) {
	op := claimOp{n, "claim", unit, c.number(&c.holders)}
	c.mu.Lock()
	c.held[op.holder] = n // whatever is said of it, it may stand when the session ends
	c.mu.Unlock()
	forget := func() {
		c.mu.Lock()
		delete(c.held, op.holder)
		c.mu.Unlock()
	}
	call := c.now()
	turn, err := c.turns.Claim(ctx, grant, ready)
	end := c.now()
	switch {
	case err == nil:
		c.add(c.id, op, answerYes, call, end)
	case errors.Is(err, ownership.ErrTaken):
		forget()
		c.add(c.id, op, answerNo, call, end)
		return
	case errors.Is(err, ownership.ErrOwed), errors.Is(err, ownership.ErrNotHeld):
		// It may have been applied: then it is given back once that is known, or runs out.
		c.add(c.id, op, answerUnknown, call, math.MaxInt64)
		c.add(c.id, claimOp{n, "release", 0, op.holder}, answerUnknown, end, math.MaxInt64)
		return
	default:
		forget() // not applied, and it never will be
		return
	}
	time.Sleep(time.Duration(c.random.Int64N(int64(100 * time.Millisecond))))
	op.kind = "release"
	call = c.now()
	err = c.turns.Release(ctx, turn, ownership.Outcomes{n: []byte(`{"v":1}`)})
	end = c.now()
	switch {
	case err == nil:
		forget()
		c.add(c.id, op, answerYes, call, end)
	case errors.Is(err, ownership.ErrTurnLost):
		forget()
		c.add(c.id, op, answerNo, call, end)
	default:
		c.add(c.id, op, answerUnknown, call, math.MaxInt64)
	}
}

// queue keeps a unit in every register.
func (h *claimHistory) queue(ctx context.Context, client *clientv3.Client, id int, r *rand.Rand) {
	for ctx.Err() == nil {
		n := r.IntN(claimRegisters)
		op := claimOp{n, "queue", h.number(&h.units), 0}
		key := keys.Ready(readyOf(n))
		asking, cancel := context.WithTimeout(ctx, time.Second)
		call := h.now()
		answer, err := client.Txn(asking).If(etcd.Absent(key), etcd.Absent(keys.Turn("t", n))).
			Then(clientv3.OpPut(key, strconv.FormatInt(op.unit, 10))).Commit()
		end := h.now()
		cancel()
		switch {
		case err != nil:
			h.add(id, op, answerUnknown, call, math.MaxInt64)
		case answer.Succeeded:
			h.add(id, op, answerYes, call, end)
		}
		// A refusal says nothing that matters, and would make up most of the history.
		time.Sleep(time.Duration(r.Int64N(int64(30 * time.Millisecond))))
	}
}

func TestClaimsAreLinearizable(t *testing.T) {
	if os.Getenv("TIDEMARK_TEST_ETCD") == "" {
		t.Skip("runs for a minute: make test-etcd")
	}
	cluster := etcdtest.NewCluster(t, 3, quotaBytes)
	f := &fleet{t: t, cluster: cluster, ctx: t.Context(), clock: clock.System(), random: random.New()}
	h := &claimHistory{start: time.Now(), kinds: map[string]int{}}
	ctx, stop := context.WithCancel(t.Context())
	var wait, sessions sync.WaitGroup
	keeping, end := context.WithCancel(context.Background())
	for i := range claimClients {
		c := &claimer{claimHistory: h, id: i, client: f.dial(), random: rand.New(rand.NewPCG(uint64(i), 1)), held: map[int64]int{}}
		name := fmt.Sprint("x-", i)
		var err error
		c.session, err = ownership.NewSession(c.client, ownership.Options{
			Key: keys.Executor(name), Config: ownership.DefaultConfig(ttl), Clock: f.clock, Random: f.random, Log: hclog.NewNullLogger(),
			Details: func() map[string]any { return map[string]any{} },
		})
		if err != nil {
			t.Fatal(err)
		}
		c.session.OnFence(c.fenced)
		c.turns = ownership.NewTurns(c.client, keys, c.session, name, f.clock, f.random, hclog.NewNullLogger())
		sessions.Go(func() { _ = c.session.Run(keeping) })
		sessions.Go(func() { _ = c.turns.Run(keeping) })
		wait.Go(func() { c.loop(ctx) })
	}
	queuer := f.dial()
	wait.Go(func() { h.queue(ctx, queuer, claimClients, rand.New(rand.NewPCG(99, 1))) })
	hurt(t, cluster, claimsLast)
	stop()
	wait.Wait()
	end()
	sessions.Wait()
	for _, client := range f.clients {
		_ = client.Close()
	}
	t.Logf("%d operations: %v", len(h.ops), h.kinds)
	if h.kinds["claim"] < 100 || h.kinds["expire unknown"] == 0 {
		t.Errorf("too little has happened")
	}
	if result := porcupine.CheckOperationsTimeout(claimModel, h.ops, checkMax); result != porcupine.Ok {
		t.Errorf("the history of claims is %s", result)
	}
}

// hurt does one thing after the other to the cluster, with rests.
func hurt(t *testing.T, cluster *etcdtest.Cluster, last time.Duration) {
	r := rand.New(rand.NewPCG(7, 1))
	harms := []func(){
		cluster.CutAnswers,
		cluster.CutRequests,
		func() { cluster.Isolate(cluster.Leader(t)) },
		func() { cluster.Delay(150 * time.Millisecond) },
		func() { cluster.Kill(cluster.Leader(t)) },
		func() { cluster.Mute(cluster.Leader(t)) },
	}
	for began, i := time.Now(), 0; time.Since(began) < last; i++ {
		harms[i%len(harms)]()
		time.Sleep(time.Second + time.Duration(r.Int64N(int64(2*ttl))))
		cluster.Mend()
		cluster.Restart(t)
		cluster.Ready(t)
		time.Sleep(time.Second)
	}
}

// The check finds what must not be.
func TestAHistoryInWhichTwoHoldOneTurnIsNotLinearizable(t *testing.T) {
	at := func(client int, op claimOp, answer claimAnswer, call, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: op, Output: answer, Call: call, Return: end}
	}
	history := []porcupine.Operation{
		at(9, claimOp{0, "queue", 1, 0}, answerYes, 0, 1),
		at(1, claimOp{0, "claim", 1, 1}, answerYes, 2, 3),
		at(9, claimOp{0, "queue", 2, 0}, answerUnknown, 4, math.MaxInt64),
		at(2, claimOp{0, "claim", 2, 2}, answerYes, 6, 7),
		at(1, claimOp{0, "release", 0, 1}, answerNo, 8, 9),
	}
	if porcupine.CheckOperations(claimModel, history) {
		t.Error("a turn was taken from its holder")
	}
	// Unless the holder had fenced itself before.
	if fenced := append(history, at(1, claimOp{0, "expire", 0, 1}, answerUnknown, 3, math.MaxInt64)); !porcupine.CheckOperations(claimModel, fenced) {
		t.Error("a turn that has run out cannot be claimed")
	}
}
