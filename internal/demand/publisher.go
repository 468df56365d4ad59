package demand

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
)

const (
	// PublishTimeout bounds one publish, attempts and waits together.
	PublishTimeout = 5 * time.Second
	// attemptsMax bounds the rounds of one publish. One shard has one writer, at most one executor and one scan, so
	// more than three losses in a row need events faster than etcd answers.
	attemptsMax = 12
	// The wait after a lost round starts here and doubles up to the bound, with jitter.
	backoffMin = 2 * time.Millisecond
	backoffMax = 500 * time.Millisecond
)

// ErrContended: a publish lost every round against other publishes to the same shard. What it had to say is still
// true; a later event of the same source says it again.
var ErrContended = errors.New("demand record kept changing while it was published")

// PublishError says about which shard nothing could be published, and why.
type PublishError struct {
	Table, Shard string
	Key          string
	Err          error
}

func (e *PublishError) Error() string {
	return fmt.Sprintf("publishing demand of table %s, shard %s (key %s): %v", e.Table, e.Shard, e.Key, e.Err)
}

func (e *PublishError) Unwrap() error { return e.Err }

// SealedEvent is what a writer knows after a seal.
type SealedEvent struct {
	Table       string
	TableID     string
	Incarnation int64
	Shard       string
	Sealed      Mark
	SealedMS    int64 // when Sealed.Gen was sealed, milliseconds since 1970
}

// MergedEvent is what an executor knows after a commit.
type MergedEvent struct {
	Table       string
	TableID     string
	Incarnation int64
	Shard       string
	Merged      Mark
	NextMS      int64 // when Merged.Gen+1 was sealed, milliseconds since 1970; 0 when it was not
}

// Publisher joins events into stored records. It is safe for concurrent use and keeps nothing.
type Publisher struct {
	kv     clientv3.KV
	keys   etcd.Keys
	slots  int
	clock  clock.Clock
	random random.Source
}

// NewPublisher publishes to a cluster of so many slots.
func NewPublisher(kv clientv3.KV, keys etcd.Keys, slots int, c clock.Clock, r random.Source) *Publisher {
	return &Publisher{kv: kv, keys: keys, slots: slots, clock: c, random: r}
}

// PublishSealed reports a seal and returns the joined record: the writer learns its backlog for free.
func (p *Publisher) PublishSealed(ctx context.Context, ev SealedEvent) (Record, error) {
	return p.Publish(ctx, ev.Table, ev.Shard, Event{
		TableID: ev.TableID, Incarnation: ev.Incarnation, Source: Writer, AtMS: p.clock.Now().UnixMilli(),
		Sealed: &ev.Sealed, SealedTimes: []SealTime{{ev.Sealed.Gen, ev.SealedMS}},
	})
}

// PublishMerged reports a merged mark. Executors do so detached, see Detached.
func (p *Publisher) PublishMerged(ctx context.Context, ev MergedEvent) (Record, error) {
	return p.Publish(ctx, ev.Table, ev.Shard, p.merged(ev))
}

func (p *Publisher) merged(ev MergedEvent) Event {
	return Event{
		TableID: ev.TableID, Incarnation: ev.Incarnation, Source: Executor, AtMS: p.clock.Now().UnixMilli(),
		Merged: &ev.Merged, SealedTimes: []SealTime{{ev.Merged.Gen + 1, ev.NextMS}},
	}
}

// Publish joins an event into the shard's record and returns the joined record. If the join equals what is stored,
// nothing is written. An error is a *PublishError; a stored record of an unknown version is ErrFormat and stays as it
// is.
func (p *Publisher) Publish(ctx context.Context, table, shard string, ev Event) (Record, error) {
	joined, _, err := p.publish(ctx, table, shard, ev)
	return joined, err
}

// publish is Publish, and says whether it wrote.
//
//  1. Read the record and its mod revision.
//  2. Join. Unchanged: done.
//  3. Put the join if the mod revision is still the same; the answer to a lost race brings the record as it is now.
//  4. Lost: wait a little and go to 2. Nobody knows: go to 1, for the join may be repeated at will.
func (p *Publisher) publish(ctx context.Context, table, shard string, ev Event) (joined Record, wrote bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, PublishTimeout)
	defer cancel()
	key := p.keys.Demand(etcd.SlotOf(table, p.slots), table, shard)
	fail := func(err error) (Record, bool, error) {
		return Record{}, false, &PublishError{Table: table, Shard: shard, Key: key, Err: err}
	}

	var stored Record
	var revision int64
	known := false
	lastErr := ErrContended
	for attempt := range attemptsMax {
		if attempt > 0 {
			wait := min(backoffMin<<attempt, backoffMax)
			if err := p.clock.Sleep(ctx, random.Jitter(p.random, wait)); err != nil {
				return fail(errors.Join(err, lastErr))
			}
		}
		if !known {
			answer, err := p.kv.Get(ctx, key)
			if err != nil {
				lastErr = err
				continue
			}
			if stored, revision, err = recordIn(answer); err != nil {
				return fail(err)
			}
		}
		joined, changed := Join(stored, ev)
		if !changed {
			return stored, false, nil
		}
		answer, err := etcd.Commit(ctx, p.kv, etcd.Txn{
			If:   []clientv3.Cmp{etcd.Unchanged(key, revision)},
			Then: []clientv3.Op{clientv3.OpPut(key, string(joined.Encode()))},
			Else: []clientv3.Op{clientv3.OpGet(key)},
		})
		switch {
		case errors.Is(err, etcd.ErrNoSpace):
			return fail(err)
		case err != nil:
			known, lastErr = false, err
			continue
		case answer.Succeeded:
			return joined, true, nil
		}
		if stored, revision, err = recordIn((*clientv3.GetResponse)(answer.Responses[0].GetResponseRange())); err != nil {
			return fail(err)
		}
		known, lastErr = true, ErrContended
	}
	return fail(fmt.Errorf("after %d attempts: %w", attemptsMax, lastErr))
}

// recordIn is the one record in an answer and its mod revision; a missing key is the zero record at revision 0.
func recordIn(answer *clientv3.GetResponse) (Record, int64, error) {
	if len(answer.Kvs) == 0 {
		return Record{}, 0, nil
	}
	r, err := Parse(answer.Kvs[0].Value)
	return r, answer.Kvs[0].ModRevision, err
}
