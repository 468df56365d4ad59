package ownership

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
)

// slotsAtOnce bounds the claims and releases that one pass has in flight.
const slotsAtOnce = 8

// SlotToken is the right to write for a slot. Every txn of its owner compares it.
type SlotToken struct {
	Slot  int    `json:"-"`
	Owner string `json:"owner"`
	Token string `json:"token"` // random, of this claim alone
	Epoch int64  `json:"epoch"` // one more than that of the owner before
}

// Compare holds while the slot is still owned under this token.
func (s SlotToken) Compare(keys etcd.Keys) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(keys.Slot(s.Slot)), "=", s.value())
}

func (s SlotToken) value() string {
	b, err := json.Marshal(struct {
		V int `json:"v"`
		SlotToken
	}{1, s})
	if err != nil {
		panic(fmt.Sprintf("ownership: encoding %+v: %v", s, err)) // two strings and a number always encode
	}
	return string(b)
}

// ShouldOwn is the master that should own a slot, by rendezvous hashing: when a master comes or goes, only the slots
// that it gains or had move. It is empty when there is no master.
func ShouldOwn(masters []string, slot int) string {
	owner, most := "", uint64(0)
	for _, m := range masters {
		if a := affinity(m, strconv.Itoa(slot)); owner == "" || a > most || a == most && m < owner {
			owner, most = m, a
		}
	}
	return owner
}

// Slots claims the slots that one master should own, and releases the others.
//
//  1. Mirror the live masters and the owned slots.
//  2. Claim each free slot that rendezvous hashing gives to this master: its key is absent, its epoch is as read, and
//     the session stands; put the key under the session's lease and bump the epoch, all in one txn.
//  3. Release each owned slot that it gives to another. A draining master should own none.
//  4. A slot found under our own lease is ours, however it came there: adopt it, or release it.
//
// An owner that lost a slot unknowingly notices at its next write, which compares the SlotToken.
type Slots struct {
	client  *clientv3.Client
	keys    etcd.Keys
	session *Session
	master  string
	total   int
	clock   clock.Clock
	random  random.Source
	log     hclog.Logger

	masters, slots *etcd.Follower
	wake           chan struct{} // a mirror changed, or draining
	changed        chan struct{}

	mu       sync.Mutex // guards the following
	live     map[string]liveMaster
	standing map[int]standingSlot
	fresh    [2]bool
	revision int64 // up to which standing is complete
	owned    map[int]ownedSlot
	tokens   map[int]SlotToken // those of owned, for Owned; nil until somebody asks
	draining bool
}

type liveMaster struct {
	draining bool
	revision int64
}

// standingSlot is a slot key as mirrored.
type standingSlot struct {
	token    SlotToken
	lease    clientv3.LeaseID
	revision int64
}

// ownedSlot is a slot that is ours, known since a revision.
type ownedSlot struct {
	token SlotToken
	since int64
}

// NewSlots makes the slots of a master in a cluster of so many; Run claims them. When the session's fence falls, nothing
// is owned any more before the loss is reported.
func NewSlots(client *clientv3.Client, keys etcd.Keys, session *Session, master string, total int, c clock.Clock, r random.Source, log hclog.Logger) *Slots {
	s := &Slots{
		client: client, keys: keys, session: session, master: master, total: total, clock: c, random: r, log: log,
		wake: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		live: map[string]liveMaster{}, standing: map[int]standingSlot{}, owned: map[int]ownedSlot{},
	}
	s.masters = etcd.NewFollower(client, keys.Masters(), masterMirror{s}, c, r, log)
	s.slots = etcd.NewFollower(client, keys.Slots(), slotMirror{s}, c, r, log)
	session.OnFence(func(error) { s.dropAll() })
	return s
}

// Owned are the tokens of the slots owned now, by slot. The map is shared by all who ask, and nobody may change it.
func (s *Slots) Owned() map[int]SlotToken {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens == nil {
		s.tokens = make(map[int]SlotToken, len(s.owned))
		for slot, own := range s.owned {
			s.tokens[slot] = own.token
		}
	}
	return s.tokens
}

// setOwned notes that a slot is ours. mu is held.
func (s *Slots) setOwned(slot int, own ownedSlot) {
	s.owned[slot], s.tokens = own, nil
	signal(s.changed)
}

// notOwned notes that a slot is not ours any more. mu is held.
func (s *Slots) notOwned(slot int) {
	delete(s.owned, slot)
	s.tokens = nil
	signal(s.changed)
}

// Changed delivers when Owned has changed since it last delivered. It has one receiver.
func (s *Slots) Changed() <-chan struct{} { return s.changed }

// Masters are the live masters, draining ones too, by name.
func (s *Slots) Masters() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.live))
}

// Drain releases every slot, and claims none until it is undone. The session's details must say "draining", so that the
// other masters take over.
func (s *Slots) Drain(draining bool) {
	s.mu.Lock()
	s.draining = draining
	s.mu.Unlock()
	signal(s.wake)
}

// Run claims and releases until ctx is done. What is owned then goes with the session.
func (s *Slots) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var g errgroup.Group
	defer func() {
		stop()
		_ = g.Wait() // followers end without an error
	}()
	for _, f := range []*etcd.Follower{s.masters, s.slots} {
		g.Go(func() error {
			f.Run(ctx)
			return nil
		})
	}
	for last := ""; ctx.Err() == nil; {
		grant, err := s.session.Wait(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return fmt.Errorf("slots of master %s: %w", s.master, err)
		}
		if grant.Token != last {
			s.masters.Doubt()
			s.slots.Doubt()
			last = grant.Token
		}
		if err := s.pass(ctx, grant); err != nil && ctx.Err() == nil {
			s.log.Warn("claiming slots", "error", err)
		}
		again, stopTimer := s.clock.After(random.Jitter(s.random, s.session.config.retryEvery()))
		select {
		case <-s.wake:
		case <-again:
		case <-ctx.Done():
		}
		stopTimer()
	}
	return nil
}

// pass claims and releases what should be, once.
func (s *Slots) pass(ctx context.Context, grant Grant) error {
	ctx, cancel := within(ctx, grant)
	defer cancel()
	claim, release := s.plan(grant)
	if len(claim)+len(release) == 0 {
		return nil
	}
	epochs, err := s.epochs(ctx, len(claim))
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(slotsAtOnce)
	for _, slot := range claim {
		g.Go(func() error { return s.claim(ctx, grant, slot, epochs[slot]) })
	}
	for _, token := range release {
		g.Go(func() error { return s.release(ctx, token) })
	}
	return g.Wait()
}

// plan compares what stands with what should be. Slots that stand under our lease are adopted right away.
func (s *Slots) plan(grant Grant) (claim []int, release []SlotToken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh != [2]bool{true, true} {
		return nil, nil
	}
	masters := s.claimants()
	for slot := range s.total {
		standing, stands := s.standing[slot]
		own, owns := s.owned[slot]
		if owns && own.since <= s.revision && standing.token != own.token {
			s.notOwned(slot) // somebody removed it
			owns = false
		}
		mine := ShouldOwn(masters, slot) == s.master
		underOurLease := stands && standing.lease == grant.Lease && grant.Lease != clientv3.NoLease
		switch {
		case mine && !owns && underOurLease:
			s.setOwned(slot, ownedSlot{standing.token, standing.revision})
		case mine && !owns && !stands:
			claim = append(claim, slot)
		case !mine && owns:
			release = append(release, own.token)
		case !mine && underOurLease:
			release = append(release, standing.token)
		}
	}
	return claim, release
}

// claimants are the masters that may own slots.
func (s *Slots) claimants() []string {
	var names []string
	for name, m := range s.live {
		if !m.draining && name != s.master {
			names = append(names, name)
		}
	}
	if !s.draining {
		names = append(names, s.master) // its own key may not be mirrored yet
	}
	return names
}

// epochKey is a slot's durable counter as read.
type epochKey struct {
	epoch    int64
	revision int64
}

// epochs reads the counters of all slots, unless none is claimed.
func (s *Slots) epochs(ctx context.Context, claims int) (map[int]epochKey, error) {
	epochs := map[int]epochKey{}
	if claims == 0 {
		return epochs, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.session.config.RequestTimeout)
	defer cancel()
	_, err := etcd.ReadPages(ctx, s.client, s.keys.SlotEpochs(), func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			slot, err := s.keys.ParseSlotEpoch(string(kv.Key))
			if err != nil {
				return err
			}
			epoch, err := strconv.ParseInt(string(kv.Value), 10, 64)
			if err != nil {
				return fmt.Errorf("epoch of slot %d: %w", slot, err)
			}
			epochs[slot] = epochKey{epoch, kv.ModRevision}
		}
		return nil
	})
	return epochs, err
}

func (s *Slots) claim(ctx context.Context, grant Grant, slot int, before epochKey) error {
	ctx, cancel := context.WithTimeout(ctx, s.session.config.RequestTimeout)
	defer cancel()
	token := SlotToken{Slot: slot, Owner: s.master, Token: random.ID(s.random), Epoch: before.epoch + 1}
	answer, err := etcd.Commit(ctx, s.client, etcd.Txn{
		If: []clientv3.Cmp{
			etcd.Absent(s.keys.Slot(slot)), etcd.Unchanged(s.keys.SlotEpoch(slot), before.revision), s.session.Compare(grant),
		},
		Then: []clientv3.Op{
			clientv3.OpPut(s.keys.Slot(slot), token.value(), clientv3.WithLease(grant.Lease)),
			clientv3.OpPut(s.keys.SlotEpoch(slot), strconv.FormatInt(token.Epoch, 10)),
		},
	})
	if err != nil {
		// A claim that was applied, or will be, stands under our lease: the mirror shows it, and a pass adopts it.
		return fmt.Errorf("claiming slot %d: %w", slot, err)
	}
	if !answer.Succeeded {
		return nil // the mirror will show why
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if grant.Err() == nil { // the fence may have fallen since
		s.setOwned(slot, ownedSlot{token, answer.Header.Revision})
	}
	return nil
}

// release gives a slot up, first here and then in etcd.
func (s *Slots) release(ctx context.Context, token SlotToken) error {
	s.mu.Lock()
	if s.owned[token.Slot].token == token {
		s.notOwned(token.Slot)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.session.config.RequestTimeout)
	defer cancel()
	_, err := etcd.Commit(ctx, s.client, etcd.Txn{
		If:   []clientv3.Cmp{token.Compare(s.keys)},
		Then: []clientv3.Op{clientv3.OpDelete(s.keys.Slot(token.Slot))},
	})
	if err != nil {
		return fmt.Errorf("releasing slot %d: %w", token.Slot, err)
	}
	return nil
}

func (s *Slots) dropAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.owned)
	s.tokens = nil
	signal(s.changed)
	signal(s.wake)
}

func (s *Slots) setFresh(i int, fresh bool, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh && !s.fresh[i] {
		signal(s.wake)
	}
	s.fresh[i] = fresh
	if fresh && i == 1 {
		s.revision = revision
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
