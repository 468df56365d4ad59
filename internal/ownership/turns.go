package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
)

const (
	// attemptsMax and attemptPause bound how long one call insists on an answer; what is still open then is owed.
	attemptsMax  = 4
	attemptPause = 250 * time.Millisecond
)

var (
	// ErrTaken: the unit is not to be had now: it is gone (then ErrGone as well), or one of its turns is held.
	ErrTaken = errors.New("unit is not to be had")
	// ErrGone: somebody else claimed the unit, or its owner changed its mind. It never comes back as it was.
	ErrGone = fmt.Errorf("%w: its ready key is gone or has changed", ErrTaken)
	// ErrTurnLost: the turns were revoked or ran out. The outcome is not recorded.
	ErrTurnLost = errors.New("turns are not ours any more")
	// ErrOwed: a release is still owed to etcd, or a claim unsettled. Nothing is claimed until that is done.
	ErrOwed = errors.New("something already done is still owed to etcd")
)

// TurnError says what happened to the turns of which table.
type TurnError struct {
	Op    string // "claiming", "releasing", "reporting progress of"
	Table string
	Turns etcd.TurnSet
	Err   error
}

func (e *TurnError) Error() string {
	return fmt.Sprintf("%s turns %v of table %s: %v", e.Op, e.Turns, e.Table, e.Err)
}

func (e *TurnError) Unwrap() error { return e.Err }

// ReadyKV is one due unit as it stands in the ready queue.
type ReadyKV struct {
	etcd.ReadyKey
	Key         string
	Value       []byte // the unit, see schedule.Unit
	ModRevision int64
}

// Turn is the exclusive right of one execution to some turns of a table.
type Turn struct {
	Table     string
	Turns     etcd.TurnSet
	Execution string  // unique id
	Unit      ReadyKV // as claimed
	Grant     Grant   // of the session that the turns hang on

	value    string // of every turn key
	revision int64  // at which every turn key was written
}

// TurnValue is what a turn key holds.
type TurnValue struct {
	V         int             `json:"v"`
	Execution string          `json:"execution"`
	Executor  string          `json:"executor"`
	Token     string          `json:"token"` // of the session
	Unit      json.RawMessage `json:"unit,omitempty"`
	Turns     string          `json:"turns"` // all turns of the execution, as in the ready key
	StartedMS int64           `json:"started_ms"`
}

// Progress is how far an execution is. Seq rises by completed work only.
type Progress struct {
	V     int    `json:"v"`
	Seq   int64  `json:"seq"`
	Stage string `json:"stage"`
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"`
}

// Outcomes are the records to leave behind by a release, one per turn.
type Outcomes map[int][]byte

// Turns claims and releases for one executor. It is safe for concurrent use.
type Turns struct {
	kv       clientv3.KV
	keys     etcd.Keys
	session  *Session
	executor string
	clock    clock.Clock
	random   random.Source
	log      hclog.Logger

	claim sync.Mutex // one claim at a time: guards the following two
	// revision is the mod revision of the session key under token. A claim compares it, so putting the key again makes
	// every claim that is still under way void.
	revision int64
	token    string

	mu   sync.Mutex    // guards owed
	owed []owed        // at most one per execution: nothing is claimed while anything is owed
	debt chan struct{} // filled when something becomes owed
}

// NewTurns claims turns under a session.
func NewTurns(kv clientv3.KV, keys etcd.Keys, session *Session, executor string, c clock.Clock, r random.Source, log hclog.Logger) *Turns {
	return &Turns{kv: kv, keys: keys, session: session, executor: executor, clock: c, random: r, log: log, debt: make(chan struct{}, 1)}
}

// Claim takes a unit out of the ready queue and its turns for a new execution, in one txn: the ready key is as seen,
// every turn is free, and the session is ours. ErrTaken, ErrGone, ErrOwed and ErrNotHeld say why not, inside a TurnError;
// then nothing was claimed and nothing will be.
func (t *Turns) Claim(ctx context.Context, grant Grant, ready ReadyKV) (Turn, error) {
	fail := func(err error) (Turn, error) {
		return Turn{}, &TurnError{Op: "claiming", Table: ready.Table, Turns: ready.Turns, Err: err}
	}
	t.claim.Lock()
	defer t.claim.Unlock()
	if err := grant.Err(); err != nil {
		return fail(err)
	}
	if t.Owed() > 0 {
		return fail(ErrOwed)
	}
	ctx, cancel := within(ctx, grant)
	defer cancel()
	turn, err := t.newTurn(grant, ready)
	if err != nil {
		return fail(err)
	}
	for range 2 { // the session key may have been refreshed since its revision was learned
		if t.token != grant.Token {
			if err := t.once(ctx, func(ctx context.Context) error { return t.learnRevision(ctx, grant) }); err != nil {
				return fail(err)
			}
		}
		var answer *clientv3.TxnResponse
		err := t.once(ctx, func(ctx context.Context) (err error) {
			answer, err = etcd.Commit(ctx, t.kv, t.claimTxn(turn))
			return err
		})
		switch {
		case errors.Is(err, etcd.ErrUnknown):
			turn, err = t.settleClaim(ctx, turn, err)
			if err != nil {
				return fail(err)
			}
			return turn, nil
		case err != nil:
			return fail(err)
		case answer.Succeeded:
			turn.revision = answer.Header.Revision
			return turn, nil
		}
		session := answer.Responses[0].GetResponseRange()
		if len(session.Kvs) == 0 || clientv3.LeaseID(session.Kvs[0].Lease) != grant.Lease {
			return fail(ErrNotHeld)
		}
		if session.Kvs[0].ModRevision == t.revision {
			if unit := answer.Responses[1].GetResponseRange(); len(unit.Kvs) == 0 || unit.Kvs[0].ModRevision != ready.ModRevision {
				return fail(ErrGone)
			}
			break
		}
		t.revision = session.Kvs[0].ModRevision
	}
	return fail(ErrTaken)
}

func (t *Turns) newTurn(grant Grant, ready ReadyKV) (Turn, error) {
	turn := Turn{
		Table: ready.Table, Turns: ready.Turns, Execution: random.ID(t.random), Unit: ready, Grant: grant,
	}
	value := TurnValue{
		V: 1, Execution: turn.Execution, Executor: t.executor, Token: grant.Token,
		Turns: ready.Turns.String(), StartedMS: t.clock.Now().UnixMilli(),
	}
	if len(ready.Value) > 0 {
		value.Unit = ready.Value
	}
	b, err := json.Marshal(value)
	if err != nil {
		return Turn{}, fmt.Errorf("the unit at %s is not JSON: %w", ready.Key, err)
	}
	turn.value = string(b)
	return turn, nil
}

func (t *Turns) claimTxn(turn Turn) etcd.Txn {
	txn := etcd.Txn{
		If: []clientv3.Cmp{
			etcd.Unchanged(turn.Unit.Key, turn.Unit.ModRevision),
			t.session.Compare(turn.Grant),
			etcd.Unchanged(t.session.Key(), t.revision),
		},
		Then: []clientv3.Op{clientv3.OpDelete(turn.Unit.Key)},
		Else: []clientv3.Op{clientv3.OpGet(t.session.Key()), clientv3.OpGet(turn.Unit.Key, clientv3.WithKeysOnly())},
	}
	for n := range turn.Turns.All() {
		key := t.keys.Turn(turn.Table, n)
		txn.If = append(txn.If, etcd.Absent(key))
		txn.Then = append(txn.Then, clientv3.OpPut(key, turn.value, clientv3.WithLease(turn.Grant.Lease)))
	}
	return txn
}

// learnRevision reads the mod revision of the session key.
func (t *Turns) learnRevision(ctx context.Context, grant Grant) error {
	got, err := t.kv.Get(ctx, t.session.Key())
	if err != nil {
		return err
	}
	if len(got.Kvs) == 0 || clientv3.LeaseID(got.Kvs[0].Lease) != grant.Lease {
		return ErrNotHeld
	}
	t.revision, t.token = got.Kvs[0].ModRevision, grant.Token
	return nil
}

// settleClaim finds out about a claim that nobody answered. Without an answer to that either, the settlement is owed,
// and nothing is claimed before it.
func (t *Turns) settleClaim(ctx context.Context, turn Turn, cause error) (Turn, error) {
	t.token = "" // the session key's revision changes
	var stands bool
	err := t.insist(ctx, func(ctx context.Context) (err error) {
		turn.revision, stands, err = t.claimStands(ctx, turn)
		return err
	})
	switch {
	case errors.Is(err, ErrNotHeld):
		return Turn{}, err // the claim compares the session key, so it is void or hangs on a dead lease
	case err != nil:
		t.owe(owed{turn: turn, unsettled: true})
		return Turn{}, fmt.Errorf("%w: whether it was applied is unknown: %w", ErrOwed, cause)
	case stands:
		return turn, nil
	}
	return Turn{}, fmt.Errorf("it was not applied: %w", cause)
}

// claimStands says whether a claim was applied, and at which revision; if it was not, it never will be: putting the
// session key again, in the txn that looks, makes every earlier claim void.
func (t *Turns) claimStands(ctx context.Context, turn Turn) (int64, bool, error) {
	first := clientv3.OpGet(t.firstKey(turn))
	answer, err := etcd.Commit(ctx, t.kv, etcd.Txn{
		If:   []clientv3.Cmp{t.session.Compare(turn.Grant)},
		Then: []clientv3.Op{first, t.session.holder.put(turn.Grant.Token)},
	})
	if errors.Is(err, etcd.ErrNoSpace) {
		// Then nothing can be voided, but a claim that was applied can be seen.
		answer, err = etcd.Commit(ctx, t.kv, etcd.Txn{Then: []clientv3.Op{first}})
		if err == nil && len(answer.Responses[0].GetResponseRange().Kvs) == 0 {
			return 0, false, etcd.ErrNoSpace
		}
	}
	if err != nil {
		return 0, false, err
	}
	if !answer.Succeeded {
		return 0, false, ErrNotHeld
	}
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
		if string(kv.Value) == turn.value {
			return kv.ModRevision, true, nil
		}
	}
	return 0, false, nil
}

func (t *Turns) firstKey(turn Turn) string {
	for n := range turn.Turns.All() {
		return t.keys.Turn(turn.Table, n)
	}
	return ""
}
