package demand

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/test/etcd/etcdtest"
)

func runCache(t *testing.T, client *clientv3.Client, slots ...int) *Cache {
	t.Helper()
	c := NewCache(client, testKeys, clock.System(), random.Seeded(1), hclog.NewNullLogger())
	c.SetSlots(slots)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return c
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// tableIn names a table of a slot.
func tableIn(slot int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("table-", i); etcd.SlotOf(name, testSlots) == slot {
			return name
		}
	}
}

func publishSealed(t *testing.T, client *clientv3.Client, table, shard string, gen uint64) {
	t.Helper()
	ev := sealedEvent(gen, 1)
	ev.Table, ev.Shard = table, shard
	if _, err := newPublisher(client).PublishSealed(t.Context(), ev); err != nil {
		t.Fatal(err)
	}
}

func sealedIn(c *Cache, slot int, table string) map[string]uint64 {
	got := map[string]uint64{}
	view, _ := c.Table(slot, table)
	for _, s := range view.Shards {
		if s.Record.Sealed != nil {
			got[s.Name] = s.Record.Sealed.Gen
		}
	}
	return got
}

func TestTheCacheShowsOwnedSlotsAndSaysWhichTablesChanged(t *testing.T) {
	client := etcdtest.Start(t)
	mine, other := tableIn(1), tableIn(2)
	publishSealed(t, client, mine, "a", 5)
	publishSealed(t, client, other, "a", 7)
	c := runCache(t, client, 1)
	eventually(t, "the snapshot", func() bool { return c.Fresh(1) })
	<-c.Changed()
	if got := c.TakeChanged(); !slices.Equal(got, []string{mine}) {
		t.Fatalf("changed: %v", got)
	}
	if got := sealedIn(c, 1, mine); got["a"] != 5 {
		t.Fatalf("cached: %v", got)
	}

	publishSealed(t, client, other, "a", 8)
	publishSealed(t, client, mine, "b", 6)
	<-c.Changed()
	if got := c.TakeChanged(); !slices.Equal(got, []string{mine}) {
		t.Fatalf("changed: %v", got)
	}
	if got := sealedIn(c, 1, mine); got["a"] != 5 || got["b"] != 6 {
		t.Fatalf("cached: %v", got)
	}

	c.SetSlots([]int{1, 2})
	eventually(t, "the other slot", func() bool { return sealedIn(c, 2, other)["a"] == 8 })
	c.SetSlots([]int{2})
	if _, ok := c.Table(1, mine); ok || c.Fresh(1) {
		t.Error("a slot given up is still shown")
	}

	if _, err := client.Delete(t.Context(), testKeys.DemandOfTable(2, other), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a deleted table is gone, and named", func() bool {
		_, ok := c.Table(2, other)
		return !ok && slices.Contains(c.TakeChanged(), other)
	})
}

func TestAViewIsSharedUntilItsTableChanges(t *testing.T) {
	client := etcdtest.Start(t)
	table := tableIn(1)
	publishSealed(t, client, table, "b", 1)
	publishSealed(t, client, table, "a", 1)
	c := runCache(t, client, 1)
	eventually(t, "both shards", func() bool { return len(sealedIn(c, 1, table)) == 2 })
	first, _ := c.Table(1, table)
	again, _ := c.Table(1, table)
	if &first.Shards[0] != &again.Shards[0] || first.Shards[0].Name != "a" {
		t.Errorf("views %v and %v", first, again)
	}
	publishSealed(t, client, table, "a", 2)
	eventually(t, "the change", func() bool { return sealedIn(c, 1, table)["a"] == 2 })
	if first.Shards[0].Record.Sealed.Gen != 1 {
		t.Error("an old view was changed")
	}
}

func TestARecordThatIsNotUnderstoodIsShownAsUnknown(t *testing.T) {
	client := etcdtest.Start(t)
	table := tableIn(1)
	if _, err := client.Put(t.Context(), testKeys.Demand(1, table, "s"), `{"v":999}`); err != nil {
		t.Fatal(err)
	}
	c := runCache(t, client, 1)
	eventually(t, "it is shown", func() bool {
		view, ok := c.Table(1, table)
		return ok && errors.Is(view.Shards[0].Err, ErrFormat)
	})
	view, _ := c.Table(1, table)
	if _, known := view.Shards[0].Record.Pending(); known {
		t.Error("its pending is known")
	}
}

func TestTheCacheSurvivesCompactionByAFreshSnapshot(t *testing.T) {
	server := etcdtest.New(t, etcdtest.Options{})
	direct := server.Client(t)
	proxy := etcdtest.NewProxy(t, server.Address())
	table, gone := tableIn(1), tableIn(1)+"-gone"
	for etcd.SlotOf(gone, testSlots) != 1 {
		gone += "x"
	}
	publishSealed(t, direct, table, "s", 1)
	publishSealed(t, direct, gone, "s", 1)
	c := runCache(t, etcdtest.Dial(t, proxy.Address()), 1)
	eventually(t, "the snapshot", func() bool { return len(sealedIn(c, 1, gone)) == 1 })

	proxy.Set(false, false)
	proxy.Reset()
	publishSealed(t, direct, table, "s", 2)
	removed, err := direct.Delete(t.Context(), testKeys.DemandOfTable(1, gone), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := direct.Compact(t.Context(), removed.Header.Revision); err != nil {
		t.Fatal(err)
	}
	c.TakeChanged()
	proxy.Set(true, true)
	eventually(t, "a fresh snapshot", func() bool {
		return c.Fresh(1) && sealedIn(c, 1, table)["s"] == 2 && len(sealedIn(c, 1, gone)) == 0
	})
	changed := c.TakeChanged()
	slices.Sort(changed)
	if want := []string{table, gone}; !slices.Equal(changed, want) {
		t.Errorf("changed: %v, want %v", changed, want)
	}
	if c.Drift() != 0 {
		t.Errorf("drift %d", c.Drift())
	}
}

func TestTheCacheStartsAfreshWhenEtcdIsReplaced(t *testing.T) {
	server := etcdtest.New(t, etcdtest.Options{})
	client := server.Client(t)
	table := tableIn(1)
	publishSealed(t, client, table, "s", 9)
	c := runCache(t, client, 1)
	eventually(t, "the snapshot", func() bool { return sealedIn(c, 1, table)["s"] == 9 })
	server.Wipe(t)
	eventually(t, "it forgets", func() bool { return len(sealedIn(c, 1, table)) == 0 })
	publishSealed(t, client, table, "s", 9)
	eventually(t, "it learns again", func() bool { return sealedIn(c, 1, table)["s"] == 9 })
}
