package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/test/etcd/etcdtest"
)

// fill writes until etcd is out of space.
func fill(t *testing.T, client *clientv3.Client) {
	t.Helper()
	for i := range 10_000 {
		_, err := client.Put(t.Context(), fmt.Sprint("/ballast/", i), strings.Repeat("x", 500<<10))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("etcd never fills up")
}

// empty deletes what fill wrote, which takes no space off the disk by itself.
func empty(t *testing.T, client *clientv3.Client) {
	t.Helper()
	if _, err := client.Delete(t.Context(), "/ballast/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
}

// disarm has etcd take writes again.
func disarm(t *testing.T, client *clientv3.Client) {
	t.Helper()
	alarms, err := client.AlarmList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, alarm := range alarms.Alarms {
		if _, err := client.AlarmDisarm(t.Context(), (*clientv3.AlarmMember)(alarm)); err != nil {
			t.Fatal(err)
		}
	}
}

// makeRoom makes room in a single member, as an operator would.
func makeRoom(t *testing.T, client *clientv3.Client) {
	t.Helper()
	empty(t, client)
	now, err := client.Get(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Defragment(t.Context(), client.Endpoints()[0]); err != nil {
		t.Fatal(err)
	}
	disarm(t, client)
}

func TestAFullEtcdLetsTurnsGoAndGetsItsOutcomesLater(t *testing.T) {
	server := etcdtest.New(t, etcdtest.Options{QuotaBytes: 16 << 20})
	client := server.Client(t)
	session, err := ownership.NewSession(client, ownership.Options{
		Key: keys.Executor("x"), Config: ownership.DefaultConfig(ttl), Clock: clock.System(), Random: random.Seeded(1), Log: hclog.NewNullLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	turns := ownership.NewTurns(client, keys, session, "x", clock.System(), random.Seeded(1), hclog.NewNullLogger())
	ctx, stop := context.WithCancel(context.Background())
	var running errgroup.Group
	running.Go(func() error { return session.Run(ctx) })
	running.Go(func() error { return turns.Run(ctx) })
	t.Cleanup(func() {
		stop()
		if err := running.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	grant, err := session.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	queue := func(table string) ownership.ReadyKV {
		u := etcd.ReadyKey{Class: 1, Order: "0", Table: table, Turns: etcd.AllGroups}
		put, err := client.Put(t.Context(), keys.Ready(u), `{"v":1}`)
		if err != nil {
			t.Fatal(err)
		}
		return ownership.ReadyKV{ReadyKey: u, Key: keys.Ready(u), Value: []byte(`{"v":1}`), ModRevision: put.Header.Revision}
	}
	turn, err := turns.Claim(t.Context(), grant, queue("running"))
	if err != nil {
		t.Fatal(err)
	}
	waiting := queue("waiting")

	fill(t, client)
	p := demand.NewPublisher(client, keys, slots, clock.System(), random.Seeded(1))
	if _, err := p.PublishSealed(t.Context(), demand.SealedEvent{Table: "t", TableID: "t", Incarnation: 1, Shard: "s", Sealed: demand.Mark{Gen: 1}}); !errors.Is(err, etcd.ErrNoSpace) {
		t.Errorf("publishing into a full etcd: %v", err)
	}
	if err := turns.Release(t.Context(), turn, ownership.Outcomes{0: []byte(`{"v":1}`)}); !errors.Is(err, ownership.ErrOwed) || !errors.Is(err, etcd.ErrNoSpace) {
		t.Errorf("releasing into a full etcd: %v", err)
	}
	if held, err := client.Get(t.Context(), keys.TurnsOfTable("running"), clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || held.Count != 0 {
		t.Errorf("%d turns are still held, %v", held.Count, err)
	}
	if _, err := turns.Claim(t.Context(), grant, waiting); !errors.Is(err, ownership.ErrOwed) {
		t.Errorf("claiming while an outcome is owed: %v", err)
	}
	if grant.Err() != nil {
		t.Errorf("the session did not survive: %v", grant.Err())
	}

	makeRoom(t, client)
	for deadline := time.Now().Add(time.Minute); turns.Owed() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the outcome is still owed")
		}
	}
	got, err := client.Get(t.Context(), keys.Outcome("running", 0))
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != `{"v":1}` {
		t.Fatalf("outcome: %v, %v", got, err)
	}
	if grant, err = session.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := turns.Claim(t.Context(), grant, waiting); err != nil {
		t.Errorf("claiming once there is room: %v", err)
	}
}
