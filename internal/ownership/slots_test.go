package ownership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/test/etcd/etcdtest"
)

const testSlots = 32

func owners(masters ...string) []string {
	owners := make([]string, testSlots)
	for slot := range owners {
		owners[slot] = ShouldOwn(masters, slot)
	}
	return owners
}

func TestAMasterThatComesOrGoesMovesOnlyItsOwnSlots(t *testing.T) {
	masters := []string{"m-1", "m-2", "m-3", "m-4"}
	for n := 1; n < len(masters); n++ {
		before, after := owners(masters[:n]...), owners(masters[:n+1]...)
		moves := 0
		for slot := range before {
			if before[slot] != after[slot] {
				moves++
				if after[slot] != masters[n] {
					t.Errorf("slot %d moved from %s to %s when %s came", slot, before[slot], after[slot], masters[n])
				}
			}
		}
		if moves == 0 || moves > 2*testSlots/(n+1) {
			t.Errorf("%d of %d slots moved to master %d", moves, testSlots, n+1)
		}
	}
	if got := ShouldOwn(nil, 3); got != "" {
		t.Errorf("without masters slot 3 belongs to %q", got)
	}
}

type runningMaster struct {
	*Slots
	session  runningSession
	draining *atomic.Bool
	stop     func()
}

func startMaster(t *testing.T, client *clientv3.Client, name string) runningMaster {
	t.Helper()
	draining := &atomic.Bool{}
	seed := uint64(name[len(name)-1])
	var slots *Slots
	session := runSession(t, client, testKeys.Master(name), seed, func(o *Options) {
		o.Details = func() map[string]any { return map[string]any{"address": name, "draining": draining.Load()} }
	})
	slots = NewSlots(client, testKeys, session.Session, name, testSlots, clock.System(), random.Seeded(seed), hclog.NewNullLogger())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- slots.Run(ctx) }()
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-ended; err != nil && !errors.Is(err, ErrReleased) {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return runningMaster{slots, session, draining, stop}
}

// standing are the owners of all slots in etcd, and their epochs.
func standing(t *testing.T, client *clientv3.Client) ([]string, []int64) {
	t.Helper()
	got, err := client.Get(t.Context(), testKeys.Slots(), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	names, epochs := make([]string, testSlots), make([]int64, testSlots)
	mirror := slotMirror{&Slots{keys: testKeys, standing: map[int]standingSlot{}, wake: make(chan struct{}, 1), log: hclog.NewNullLogger()}}
	for _, kv := range got.Kvs {
		mirror.Put(kv)
	}
	for slot, s := range mirror.standing {
		names[slot], epochs[slot] = s.token.Owner, s.token.Epoch
	}
	return names, epochs
}

func settled(t *testing.T, client *clientv3.Client, masters ...runningMaster) {
	t.Helper()
	names := make([]string, len(masters))
	for i, m := range masters {
		names[i] = m.master
	}
	floor{t, client}.eventually(fmt.Sprintf("slots settle on %v", names), func() bool {
		stand, _ := standing(t, client)
		if !slices.Equal(stand, owners(names...)) {
			return false
		}
		total := 0
		for _, m := range masters {
			for _, token := range m.Owned() {
				total++
				if stand[token.Slot] != m.master {
					return false
				}
			}
		}
		return total == testSlots
	})
}

func TestSlotsFollowMastersThatJoinDrainAndDie(t *testing.T) {
	client := etcdtest.Start(t)
	one := startMaster(t, client, "m-1")
	settled(t, client, one)
	two := startMaster(t, client, "m-2")
	settled(t, client, one, two)
	three := startMaster(t, client, "m-3")
	settled(t, client, one, two, three)
	_, before := standing(t, client)

	two.draining.Store(true)
	two.Drain(true)
	if err := two.session.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	settled(t, client, one, three)
	if owned := two.Owned(); len(owned) != 0 {
		t.Errorf("a draining master owns %v", owned)
	}
	_, after := standing(t, client)
	for slot, owner := range owners("m-1", "m-2", "m-3") {
		if moved := owner == "m-2"; moved != (after[slot] == before[slot]+1) || !moved && after[slot] != before[slot] {
			t.Errorf("slot %d of %s went from epoch %d to %d", slot, owner, before[slot], after[slot])
		}
	}

	// A master dies: its lease is gone, and it cannot come back.
	three.session.stop()
	three.stop()
	settled(t, client, one)
}

func TestADeposedMastersWritesAreRefused(t *testing.T) {
	client := etcdtest.Start(t)
	m := startMaster(t, client, "m-1")
	settled(t, client, m)
	token := m.Owned()[0]
	write := func() error {
		_, err := etcd.WriteChunks(t.Context(), client, []clientv3.Cmp{token.Compare(testKeys)}, []clientv3.Op{clientv3.OpPut("record", "x")})
		return err
	}
	if err := write(); err != nil {
		t.Fatalf("the owner's write: %v", err)
	}
	if _, err := client.Delete(t.Context(), testKeys.Slot(token.Slot)); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, etcd.ErrFence) {
		t.Fatalf("a deposed owner's write: %v", err)
	}
	floor{t, client}.eventually("the slot is claimed under another token", func() bool {
		for _, own := range m.Owned() {
			if own.Slot == token.Slot && own.Token != token.Token && own.Epoch == token.Epoch+1 {
				return true
			}
		}
		return false
	})
}

func TestAFencedMasterOwnsNothingBeforeTheLossIsReportedAndComesBack(t *testing.T) {
	client := etcdtest.Start(t)
	m := startMaster(t, client, "m-1")
	settled(t, client, m)
	grant := wait(t, m.session.Session)
	m.session.OnFence(func(error) {
		if owned := m.Owned(); len(owned) != 0 {
			t.Errorf("owned when the loss is reported: %v", owned)
		}
	})
	if _, err := client.Revoke(t.Context(), grant.Lease); err != nil {
		t.Fatal(err)
	}
	<-grant.Context.Done()
	settled(t, client, m)
}

func TestASlotFoundUnderOnesOwnLeaseIsAdopted(t *testing.T) {
	client := etcdtest.Start(t)
	session := runSession(t, client, testKeys.Master("m-1"), 1)
	grant := wait(t, session.Session)
	// A claim of this session whose answer was lost.
	lost := SlotToken{Slot: 5, Owner: "m-1", Token: "lost", Epoch: 1}
	if _, err := client.Put(t.Context(), testKeys.Slot(5), lost.value(), clientv3.WithLease(grant.Lease)); err != nil {
		t.Fatal(err)
	}
	slots := NewSlots(client, testKeys, session.Session, "m-1", testSlots, clock.System(), random.Seeded(1), hclog.NewNullLogger())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- slots.Run(ctx) }()
	defer func() {
		stop()
		<-ended
	}()
	floor{t, client}.eventually("it is owned", func() bool { return slots.Owned()[5] == lost })
}
