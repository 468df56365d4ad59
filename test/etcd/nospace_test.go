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

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/test/etcd/etcdtest"
)

// fill writes until etcd is out of space, and makes room makes some again, as an operator would.
func fill(t *testing.T, client *clientv3.Client) {
	t.Helper()
	for i := range 10_000 {
		_, err := client.Put(t.Context(), fmt.Sprint("/ballast/", i), strings.Repeat("x", 100<<10))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("etcd never fills up")
}

func makeRoom(t *testing.T, client *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	removed, err := client.Delete(ctx, "/ballast/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(ctx, removed.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Defragment(ctx, client.Endpoints()[0]); err != nil {
		t.Fatal(err)
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, alarm := range alarms.Alarms {
		if _, err := client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFullEtcdLetsTurnsGoAndGetsItsOutcomesLater(t *testing.T) {
	server := etcdtest.New(t, etcdtest.Options{QuotaBytes: 16 << 20})
	client := server.Client(t)
	f := &fleet{t: t}
	session := f.session(client, keys.Executor("x"), 1)
	turns := ownership.NewTurns(client, keys, session, "x", clock.System(), random.Seeded(1), hclog.NewNullLogger())
	ctx, stop := context.WithCancel(context.Background())
	f.ctx = ctx
	t.Cleanup(func() {
		stop()
		f.wait.Wait()
	})
	f.run(session.Run)
	f.run(turns.Run)
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
