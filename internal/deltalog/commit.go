package deltalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

const (
	// commitRounds bounds the races one commit may lose before it is planned again.
	commitRounds = 64
	// slowPut is how long a put may take, from the check before it to its answer, and still count by itself. Within
	// that time no cleanup can have deleted the number it was put under: log retention is an hour at least.
	slowPut = time.Minute
	// freshMax is how old the plan's snapshot may be for the first put to need no look at the log before it. The put itself
	// finds out if anybody was faster; and a request less is a tenth of what a small merge takes.
	freshMax = 3 * time.Second
	// peekVersions are read at once after a lost put: the winner's and those that may have followed.
	peekVersions = 8
	// peekBytesMax is the most that is read of a version of which nobody has said how large it is. A listing says so.
	peekBytesMax = 16 << 20
)

// CommitResult is what became of a commit.
type CommitResult struct {
	Version  int64
	Snapshot *Snapshot // at Version or later
	// Slow says that a put took long or that its outcome was once unknown. It is also set beside an error. Then the
	// execution deletes nothing, whatever the verdict: an old request may yet make its files visible.
	Slow bool
}

// Commit makes an intent the next version of the log:
//
//  1. Bring the snapshot up to date, unless it is seconds old, and Decide over everything since the plan.
//  2. Put the next version if absent, the very same bytes again while the answer is unknown.
//  3. Another's version is there: read it, and those after it, and decide again. Where many commit to one log at once, what
//     counts is how fast a loser is back with the next number: so that takes one round trip, not a listing and then a read.
//  4. The put took more than a minute since the log was last listed: believe only a snapshot loaded afterwards.
//
// Errors: ErrAlreadyMerged; *PlanAgainError, also for a put that turned out void; ErrInDoubt; *ForeignWriteError and
// *UnsupportedError, which stop the table; anything else means that nothing was committed.
func (l *Log) Commit(ctx context.Context, in Intent) (CommitResult, error) {
	var res CommitResult
	if err := in.check(l.table); err != nil {
		return res, err
	}
	cur := in.Read
	var since []Commit
	lost := false
	for range commitRounds {
		checked, err := cur.checked, error(nil)
		switch age := checked.age(l.clock); {
		case lost && age <= slowPut/2:
			cur, since, err = l.peek(ctx, in.Read, cur, since)
		case lost || age > freshMax:
			checked = now(l.clock)
			cur, since, err = l.advance(ctx, in.Read, cur, since)
		}
		if err != nil {
			return res, err
		}
		if done, err := l.settle(in, cur, since, &res); done || err != nil {
			return res, err
		}
		commit, err := in.commit(cur, l.clock.Now(), random.ID(l.random))
		if err != nil {
			return res, err
		}
		body, err := encodeCommit(commit)
		if err != nil {
			return res, fmt.Errorf("table %s: encoding version %d: %w", l.table, commit.Version, err)
		}
		outcome, err := l.put(ctx, commit.Version, body, in.Info.ExecutionID != "")
		res.Slow = res.Slow || outcome.wasUnknown || checked.age(l.clock) > slowPut
		switch {
		case err != nil:
			return res, err
		case outcome.lost:
			lost = true
			continue
		case checked.age(l.clock) > slowPut:
			return l.confirm(ctx, in, res)
		}
		next := *cur.apply(commit)
		next.checked, next.LoadedAt, next.etag = checked, checked.wall, outcome.etag
		res.Version, res.Snapshot = commit.Version, &next
		return res, nil
	}
	return res, &PlanAgainError{l.table, fmt.Sprintf("%d commits in a row were faster", commitRounds)}
}

// settle acts on the decision; done means that nothing is left to put.
func (l *Log) settle(in Intent, cur *Snapshot, since []Commit, res *CommitResult) (done bool, err error) {
	if err := cur.Foreign(); err != nil && in.Upsert && cur.Metadata.ID == in.TableID {
		return false, err
	}
	switch v := Decide(in, since); v.Kind {
	case Committed:
		res.Version, res.Snapshot = v.Version, cur
		return true, nil
	case AlreadyMerged:
		return false, fmt.Errorf("table %s: %w", l.table, ErrAlreadyMerged)
	case PlanAgain:
		return false, &PlanAgainError{l.table, v.Reason}
	}
	return false, nil
}

type putOutcome struct {
	lost       bool   // the number is another's for good
	wasUnknown bool   // a request may be under way still
	etag       string // of the version, if it is ours
}

// noting remembers whether the outcome of any put was unknown, even if a later one settled it.
type noting struct {
	objstore.Store
	unknown bool
}

func (n *noting) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	r := n.Store.PutIfAbsent(ctx, key, body)
	n.unknown = n.unknown || r.Outcome == objstore.Unknown
	return r
}

// put creates a version. Without an error it is ours, or lost. An intent that Decide recognises needs no reading back of a
// version that is there: it is lost, and if it should be ours, because something on the way has sent the request twice, the
// reading that follows says so.
func (l *Log) put(ctx context.Context, version int64, body []byte, recognised bool) (putOutcome, error) {
	key := l.key(commitName(version))
	store := &noting{Store: l.store}
	put := objstore.PutOnce
	if recognised {
		put = objstore.PutNext
	}
	r := put(ctx, store, key, body, l.retry())
	switch {
	case r.Outcome == objstore.Applied:
		return putOutcome{wasUnknown: store.unknown, etag: r.Info.ETag}, nil
	case r.Outcome == objstore.Refused && errors.Is(r.Err, objstore.ErrExists):
		return putOutcome{wasUnknown: store.unknown, lost: true}, nil
	case r.Outcome == objstore.Refused:
		return putOutcome{}, fmt.Errorf("table %s: version %d was not committed: %w", l.table, version, r.Err)
	}
	// One look settles it if the version is there by now: ours is committed; another's keeps ours out for good.
	found, info, err := l.store.Get(ctx, key)
	switch {
	case err == nil && bytes.Equal(found, body):
		return putOutcome{wasUnknown: true, etag: info.ETag}, nil
	case err == nil:
		return putOutcome{wasUnknown: true, lost: true}, nil
	}
	return putOutcome{wasUnknown: true}, fmt.Errorf("table %s: version %d: %w: %w", l.table, version, ErrInDoubt, r.Err)
}

// confirm decides about a slow put that succeeded: somebody may have committed its number, and a cleanup deleted it,
// before it landed. Only what a snapshot loaded afterwards holds has been committed.
func (l *Log) confirm(ctx context.Context, in Intent, res CommitResult) (CommitResult, error) {
	s, err := l.Snapshot(ctx)
	if err != nil {
		return res, fmt.Errorf("table %s: %w: the put was slow, and no snapshot could be loaded to confirm it: %w", l.table, ErrInDoubt, err)
	}
	switch in.standing(s) {
	case Committed:
		res.Version, res.Snapshot = s.Version, s
		return res, nil
	case AlreadyMerged:
		return res, fmt.Errorf("table %s: %w", l.table, ErrAlreadyMerged)
	}
	return res, &PlanAgainError{l.table, "the put took so long that its version had been committed by another and cleaned up before: it is void"}
}

// standing says whether a snapshot shows the intent as committed, its marks as merged by somebody else, or neither.
func (in *Intent) standing(s *Snapshot) VerdictKind {
	if s.Metadata.ID != in.TableID && (in.Metadata == nil || s.Metadata.ID != in.Metadata.ID) {
		return PlanAgain
	}
	for _, a := range in.Adds {
		if _, live := s.File(a.Path); live {
			return Committed
		}
		if _, dead := s.Tombstone(a.Path); dead {
			return Committed
		}
	}
	if len(in.Marks) > 0 {
		for id, m := range in.Marks {
			if v, _ := s.Txn(id); v < m.To {
				return PlanAgain
			}
		}
		if len(in.Adds) > 0 {
			return AlreadyMerged
		}
		return Committed
	}
	if len(in.Adds) > 0 {
		return PlanAgain
	}
	if in.Metadata != nil {
		if s.Metadata.Equal(in.Metadata.normal()) {
			return Committed
		}
		return PlanAgain
	}
	for _, r := range in.Removes {
		if _, live := s.File(r.Path); live {
			return PlanAgain
		}
	}
	return Committed
}

// check refuses an intent that could never be committed, before anything is sent.
func (in *Intent) check(table string) error {
	p, m := in.Read.Protocol, in.Read.Metadata
	if err := writable(table, p, m); err != nil {
		return err
	}
	if in.Protocol != nil || in.Metadata != nil {
		if in.Protocol != nil {
			p = *in.Protocol
		}
		if in.Metadata != nil {
			m = in.Metadata.normal()
		}
		if err := writable(table, p, m); err != nil {
			return err
		}
	}
	for id, c := range in.Marks {
		if was, _ := in.Read.Txn(id); was != c.From || c.To <= c.From {
			return fmt.Errorf("table %s: %s cannot go from %d to %d: the plan's snapshot has %d", table, shardOf(id), c.From, c.To, was)
		}
	}
	for _, r := range in.Removes {
		if _, ok := in.Read.File(r.Path); !ok {
			return fmt.Errorf("table %s: %s cannot be removed: it is not in the plan's snapshot", table, r.Path)
		}
	}
	if ro, err := ParseProperties(m.Configuration); err == nil && ro.AppendOnly &&
		slices.ContainsFunc(in.Removes, func(r Remove) bool { return r.DataChange }) {
		return &UnsupportedError{table, "delta.appendOnly", "rows may not be removed or changed; set it to false first"}
	}
	return nil
}

// commit is the intent as the version after cur.
func (in *Intent) commit(cur *Snapshot, at time.Time, nonce string) (Commit, error) {
	c := Commit{Version: cur.Version + 1, Info: in.Info, Protocol: in.Protocol, Adds: slices.Clone(in.Adds)}
	c.Info.Timestamp, c.Info.Engine = at.UnixMilli(), Engine
	c.Info.nonce, c.Info.readVersion, c.Info.blindAppend = nonce, in.Read.Version, len(in.Removes) == 0 && !in.Upsert
	if in.Metadata != nil {
		m := in.Metadata.normal()
		c.Metadata = &m
	}
	for i := range c.Adds {
		if c.Adds[i].ModificationTime == 0 {
			c.Adds[i].ModificationTime = at.UnixMilli()
		}
	}
	for _, r := range in.Removes {
		if f, ok := in.Read.File(r.Path); ok {
			full := RemoveOf(f, at, r.DataChange)
			if r.DeletionTimestamp != 0 {
				full.DeletionTimestamp = r.DeletionTimestamp
			}
			r = full
		}
		c.Removes = append(c.Removes, r)
	}
	for _, id := range slices.Sorted(maps.Keys(in.Marks)) {
		c.Txns = append(c.Txns, Txn{AppID: id, Version: in.Marks[id].To, LastUpdated: at.UnixMilli()})
	}
	sortCommit(&c)
	return c, c.check()
}

// Create makes version 0 of a new table. If a log is there already the error is ErrExists.
func (l *Log) Create(ctx context.Context, p Protocol, m Metadata, info CommitInfo) (*Snapshot, error) {
	m = m.normal()
	if err := writable(l.table, p, m); err != nil {
		return nil, err
	}
	checked := now(l.clock)
	list, err := l.list(ctx, 0)
	if err != nil {
		return nil, err
	}
	if len(list.files) > 0 {
		return nil, fmt.Errorf("table %s under %s: %w", l.table, l.store.URL(), ErrExists)
	}
	c := Commit{Version: 0, Info: info, Protocol: &p, Metadata: &m}
	c.Info.Timestamp, c.Info.Engine, c.Info.nonce, c.Info.readVersion = l.clock.Now().UnixMilli(), Engine, random.ID(l.random), -1
	body, err := encodeCommit(c)
	if err != nil {
		return nil, err
	}
	outcome, err := l.put(ctx, 0, body, false)
	switch {
	case err != nil:
		return nil, err
	case outcome.lost:
		return nil, fmt.Errorf("table %s under %s: %w", l.table, l.store.URL(), ErrExists)
	case checked.age(l.clock) > slowPut:
		s, err := l.Snapshot(ctx)
		if err == nil && s.Metadata.ID != m.ID {
			err = fmt.Errorf("table %s under %s: %w", l.table, l.store.URL(), ErrExists)
		}
		return s, err
	}
	s := (&Snapshot{table: l.table, Version: -1, Checkpoint: -1}).apply(c)
	s.checked, s.LoadedAt, s.etag = checked, checked.wall, outcome.etag
	return s, nil
}
