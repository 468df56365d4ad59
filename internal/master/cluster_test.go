package master

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/rootlock"
	"tidemark/test/etcd/etcdtest"
)

func testClaimer(client *clientv3.Client, store objstore.Store, name string, seed uint64) *claimer {
	return &claimer{kv: client, keys: etcd.KeysOf(name), store: store, clock: clock.System(), rand: random.Seeded(seed),
		log: hclog.NewNullLogger(), watch: 50 * time.Millisecond}
}

func TestTheFirstClusterClaimsTheRootAndOthersOfItFindTheSameRecord(t *testing.T) {
	client, store := etcdtest.Start(t), objstore.NewMemory(clock.System())
	first, err := testClaimer(client, store, "a", 1).claim(t.Context(), "a", 64, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := testClaimer(client, store, "a", 2).claim(t.Context(), "a", 8, nil)
	if err != nil || second != first || first.Slots != 64 || first.ID == "" {
		t.Fatalf("first %+v, second %+v, %v", first, second, err)
	}
}

func TestAClusterOfAnotherNameIsRefusedNamingTheHolder(t *testing.T) {
	client, store := etcdtest.Start(t), objstore.NewMemory(clock.System())
	first, err := testClaimer(client, store, "a", 1).claim(t.Context(), "a", 64, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = testClaimer(client, store, "b", 2).claim(t.Context(), "b", 64, nil)
	var refused *rootlock.HeldError
	if !errors.As(err, &refused) || refused.Record.Cluster != "a" || !strings.Contains(err.Error(), "tidemark root unlock --root mem:// --id "+first.ID) {
		t.Fatal(err)
	}
}

func TestAClusterWhoseEtcdWasReplacedTakesItsRootOverUnderANewId(t *testing.T) {
	client, store := etcdtest.Start(t), objstore.NewMemory(clock.System())
	first, err := testClaimer(client, store, "a", 1).claim(t.Context(), "a", 64, nil)
	if err != nil {
		t.Fatal(err)
	}
	wipe(t, client, "a")
	second, err := testClaimer(client, store, "a", 2).claim(t.Context(), "a", 64, nil)
	if err != nil || second.ID == first.ID {
		t.Fatalf("%+v, %v", second, err)
	}
}

func TestARunningMasterPutsItsIdBackIntoAWipedEtcd(t *testing.T) {
	client, store := etcdtest.Start(t), objstore.NewMemory(clock.System())
	c := testClaimer(client, store, "a", 1)
	first, err := c.claim(t.Context(), "a", 64, nil)
	if err != nil {
		t.Fatal(err)
	}
	wipe(t, client, "a")
	again, err := c.claim(t.Context(), "a", 64, &first)
	if err != nil || again != first {
		t.Fatalf("%+v, %v", again, err)
	}
}

// Two clusters with one name, each with its own etcd: the one that lives keeps the root.
func TestATakeoverIsRefusedWhileTheHolderGivesSignsOfLife(t *testing.T) {
	client, store := etcdtest.Start(t), objstore.NewMemory(clock.System())
	first, err := testClaimer(client, store, "a", 1).claim(t.Context(), "a", 64, nil)
	if err != nil {
		t.Fatal(err)
	}
	wipe(t, client, "a")
	rival := testClaimer(client, store, "a", 2)
	rival.clock = beatingClock{Clock: rival.clock, beat: func() {
		if err := beat(t.Context(), store, first.ID, objstore.Retry{Clock: clock.System(), Random: random.Seeded(3)}); err != nil {
			t.Error(err)
		}
	}}
	_, err = rival.claim(t.Context(), "a", 64, nil)
	var refused *rootlock.HeldError
	if !errors.As(err, &refused) || refused.Record.ID != first.ID {
		t.Fatal(err)
	}
}

// Of two masters that are started at once on a new root one claims it, makes the record and begins to give signs of life
// while the other, which came between, watches: those are of its own cluster.
func TestAMasterThatStartsBesideTheFirstJoinsIt(t *testing.T) {
	client, store := etcdtest.Start(t), objstore.NewMemory(clock.System())
	first, err := testClaimer(client, store, "a", 1).claim(t.Context(), "a", 64, nil)
	if err != nil {
		t.Fatal(err)
	}
	wipe(t, client, "a") // as it was between the first one's two writes
	second := testClaimer(client, store, "a", 2)
	second.clock = beatingClock{Clock: second.clock, beat: func() {
		if err := second.createRecord(t.Context(), first); err != nil {
			t.Error(err)
		}
		if err := beat(t.Context(), store, first.ID, objstore.Retry{Clock: clock.System(), Random: random.Seeded(3)}); err != nil {
			t.Error(err)
		}
	}}
	if got, err := second.claim(t.Context(), "a", 64, nil); err != nil || got != first {
		t.Fatalf("%+v, %v", got, err)
	}
}

// beatingClock lets the other cluster live while this one waits.
type beatingClock struct {
	clock.Clock
	beat func()
}

func (c beatingClock) Sleep(ctx context.Context, d time.Duration) error {
	c.beat()
	return c.Clock.Sleep(ctx, time.Millisecond)
}

func TestAnUnlockedRootStopsItsMasterAndIsFreeForAnotherCluster(t *testing.T) {
	client, store := etcdtest.Start(t), objstore.NewMemory(clock.System())
	a, b := testClaimer(client, store, "a", 1), testClaimer(client, store, "b", 2)
	first, err := a.claim(t.Context(), "a", 64, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rootlock.Unlock(t.Context(), rootlock.UnlockOptions{Store: store, Clock: clock.System(), Random: random.Seeded(3)}, first.ID); err != nil {
		t.Fatal(err)
	}
	var refused *rootlock.HeldError
	if _, err := a.claim(t.Context(), "a", 64, &first); !errors.As(err, &refused) {
		t.Errorf("a running master claims the root that was taken from it: %v", err)
	}
	second, err := b.claim(t.Context(), "b", 64, nil)
	if err != nil || second.ID == first.ID {
		t.Fatalf("%+v, %v", second, err)
	}
	if _, err := a.claim(t.Context(), "a", 64, &first); !errors.As(err, &refused) || refused.Record.ID != second.ID {
		t.Error(err)
	}
}

func TestAClusterNeverTakesOverFromAStandaloneServerHoweverSilent(t *testing.T) {
	client, store := etcdtest.Start(t), objstore.NewMemory(clock.System())
	lock := rootlock.Record{Kind: rootlock.Standalone, Cluster: "a", ID: "x", Holder: "host", LeaseMS: 2000}
	if r := store.PutIfAbsent(t.Context(), rootlock.RootKey, lock.Encode()); r.Err != nil {
		t.Fatal(r.Err)
	}
	var refused *rootlock.HeldError
	if _, err := testClaimer(client, store, "a", 1).claim(t.Context(), "a", 64, nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "standalone server host (id x)") {
		t.Fatal(err)
	}
	// The master inside that server finds the record that the server has made.
	record := etcd.Cluster{V: 1, Name: "a", ID: "x", Slots: 64}
	c := testClaimer(client, store, "a", 2)
	if err := c.createRecord(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	for _, held := range []*etcd.Cluster{nil, &record} {
		if got, err := c.claim(t.Context(), "a", 64, held); err != nil || got.ID != "x" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	wipe(t, client, "a")
	if got, err := c.claim(t.Context(), "a", 64, &record); err != nil || got.ID != "x" {
		t.Errorf("it does not put its record back: %+v, %v", got, err)
	}
}

func TestBeatsMoveAndAreCleanedUp(t *testing.T) {
	store := objstore.NewMemory(clock.System())
	retry := objstore.Retry{Clock: clock.System(), Random: random.Seeded(1)}
	for want := uint64(1); want <= 5; want++ {
		if err := beat(t.Context(), store, "id", retry); err != nil {
			t.Fatal(err)
		}
		if got, err := lastBeat(t.Context(), store, "id"); got != want || err != nil {
			t.Fatalf("beat %d is %d, %v", want, got, err)
		}
	}
	if beats, err := rootlock.Beats(t.Context(), store, "id"); len(beats) != 2 || err != nil {
		t.Fatalf("beats %v, %v", beats, err)
	}
}

func wipe(t *testing.T, client *clientv3.Client, cluster string) {
	t.Helper()
	if _, err := client.Delete(t.Context(), etcd.KeysOf(cluster).Prefix+"/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
}
