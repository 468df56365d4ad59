package writer

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/table"
	"tidemark/test/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shiftedClock is ahead of another by a fixed time.
type shiftedClock struct {
	clock.Clock
	by time.Duration
}

func (c *shiftedClock) Mono() time.Duration { return c.Clock.Mono() + c.by }

func TestSealsArePublishedToTheEtcdOfTheConfigurationOnceItHasACluster(t *testing.T) {
	client := etcdtest.Start(t)
	keys := etcd.Keys{Prefix: "/tidemark/writers"}
	s := objstore.NewMemory(clock.System())
	tbl := createTable(t, s, "events", eventsSchema, table.CreateOptions{})
	// The first publish fails, and the second must not wait until publishPause has passed.
	now := &shiftedClock{Clock: clock.System()}
	w := mustClaim(t, Config{Etcd: client.Endpoints(), Prefix: keys.Prefix}, Deps{Store: s, Clock: now})
	mustAppend(t, w, ids(t, 1, 3))
	if sealed := mustSeal(t, w); !errors.Is(sealed.Unpublished, etcd.ErrNoCluster) {
		t.Fatalf("no master has made a cluster yet: %+v", sealed)
	}
	cluster, err := json.Marshal(etcd.Cluster{V: 1, Name: "writers", ID: "id", Slots: 16})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), keys.Cluster(), string(cluster)); err != nil {
		t.Fatal(err)
	}
	now.by = publishPause
	if sealed := mustSeal(t, w); sealed.Unpublished != nil || sealed.Pending != 2 {
		t.Fatalf("%+v", sealed)
	}
	got, err := client.Get(t.Context(), keys.Demand(etcd.SlotOf("events", 16), "events", "rollout-0"))
	if err != nil || len(got.Kvs) != 1 {
		t.Fatal(got, err)
	}
	record, err := demand.Parse(got.Kvs[0].Value)
	if err != nil || record.TableID != tbl.ID || record.Sealed.Gen != 2 || record.Sealed.Rows != 3 || record.Merged != nil {
		t.Fatalf("%+v, %v", record, err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAnEtcdThatDoesNotAnswerIsOneErrorNamingItsEndpoints(t *testing.T) {
	_, d, _ := events(t)
	_, err := ClaimWith(t.Context(), Config{Table: "events", Shard: "a", Etcd: []string{"127.0.0.1:1"}}, d)
	if !errors.Is(err, etcd.ErrUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Fatal(err)
	}
}
