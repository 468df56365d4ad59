package readyqueue

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
)

// A change touches at most 17 present units, 17 new ones and 17 turns of one table, so it stays under the 100
// operations that Tidemark allows a transaction, and far under its bytes.

// ErrDeposed: the writer no longer owns the table's slot. Somebody else plans the table now.
var ErrDeposed = errors.New("the table's slot belongs to another master")

// ErrTurnHeld: a turn that the change covers has been claimed meanwhile. Decide again from what is there now.
var ErrTurnHeld = errors.New("a turn was claimed meanwhile")

// Fence proves ownership of a slot.
type Fence struct {
	Slot    int
	Compare clientv3.Cmp // that the slot's key still holds the writer's token
}

// Queue writes ready units. It holds no state and is safe for concurrent use.
type Queue struct {
	kv     clientv3.KV
	keys   etcd.Keys
	random random.Source
}

// New makes a writer of the cluster's ready queue.
func New(kv clientv3.KV, keys etcd.Keys, r random.Source) *Queue {
	return &Queue{kv: kv, keys: keys, random: r}
}

// Key is the ready key of a unit.
func Key(keys etcd.Keys, u schedule.Unit) string {
	return keys.Ready(etcd.ReadyKey{Class: int(u.Class), Order: u.Order, Table: u.Table, Turns: etcd.TurnSet(u.Groups)})
}

// Parse reads one ready key and its value. The key is what counts for class, order, table and groups: it is what
// executors are served by.
func Parse(keys etcd.Keys, key string, value []byte) (schedule.Unit, error) {
	k, err := keys.ParseReady(key)
	if err != nil {
		return schedule.Unit{}, err
	}
	u, err := schedule.ParseUnit(value)
	if err != nil {
		return schedule.Unit{}, fmt.Errorf("ready key %s: %w", key, err)
	}
	u.Class, u.Order, u.Table, u.Groups = schedule.Class(k.Class), k.Order, k.Table, schedule.Groups(k.Turns)
	return u, nil
}

// Apply carries out one table's change and returns the units as they were put, with their ids, and the revision at which
// they were. An error that is neither ErrDeposed nor ErrTurnHeld is etcd's; what became of the change is then not known,
// and the next pass over the table settles it.
func (q *Queue) Apply(ctx context.Context, fence Fence, change schedule.Change) (put []schedule.Unit, revision int64, err error) {
	txn := etcd.Txn{If: []clientv3.Cmp{fence.Compare}, Else: []clientv3.Op{clientv3.OpGet(q.keys.Slot(fence.Slot))}}
	for _, u := range change.Delete {
		txn.Then = append(txn.Then, clientv3.OpDelete(Key(q.keys, u)))
	}
	var covered schedule.Groups
	for _, u := range change.Put {
		u.ID = random.ID(q.random)
		value, err := u.Marshal()
		if err != nil {
			return nil, 0, fmt.Errorf("writing unit %s of table %s: %w", u.Groups, u.Table, err)
		}
		txn.Then = append(txn.Then, clientv3.OpPut(Key(q.keys, u), string(value)))
		put = append(put, u)
		covered |= u.Groups
	}
	for turn := range etcd.TurnSet(covered).All() {
		key := q.keys.Turn(put[0].Table, turn)
		txn.If = append(txn.If, etcd.Absent(key))
		txn.Else = append(txn.Else, clientv3.OpGet(key, clientv3.WithCountOnly()))
	}
	answer, err := etcd.Commit(ctx, q.kv, txn)
	if err != nil {
		return nil, 0, fmt.Errorf("queueing %d and unqueueing %d units: %w", len(change.Put), len(change.Delete), err)
	}
	if answer.Succeeded {
		return put, answer.Header.Revision, nil
	}
	for _, r := range answer.Responses[1:] {
		if r.GetResponseRange().GetCount() > 0 {
			return nil, 0, ErrTurnHeld
		}
	}
	return nil, 0, ErrDeposed
}
