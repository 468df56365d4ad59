package demand

import (
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/test/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSlots = 4

var testKeys = etcd.KeysOf("test")

func newPublisher(kv clientv3.KV) *Publisher {
	return NewPublisher(kv, testKeys, testSlots, clock.System(), random.Seeded(1))
}

func testKey(table, shard string) string {
	return testKeys.Demand(etcd.SlotOf(table, testSlots), table, shard)
}

func sealedEvent(gen, epoch uint64) SealedEvent {
	return SealedEvent{Table: "t", TableID: "id", Incarnation: 1, Shard: "s", Sealed: Mark{Gen: gen, Epoch: epoch, Bytes: int64(gen) * 10}, SealedMS: int64(gen)}
}

func mergedEvent(gen, epoch uint64) MergedEvent {
	return MergedEvent{Table: "t", TableID: "id", Incarnation: 1, Shard: "s", Merged: Mark{Gen: gen, Epoch: epoch, Bytes: int64(gen) * 10}}
}

func get(t *testing.T, kv clientv3.KV, key string) *clientv3.GetResponse {
	t.Helper()
	got, err := kv.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAWriterAndAnExecutorPublishingAtOnceBothSurvive(t *testing.T) {
	client := etcdtest.Start(t)
	p := newPublisher(client)
	for round := range 20 {
		shard := fmt.Sprintf("s-%d", round)
		g, ctx := errgroup.WithContext(t.Context())
		g.Go(func() error {
			ev := sealedEvent(25, 1)
			ev.Shard = shard
			_, err := p.PublishSealed(ctx, ev)
			return err
		})
		g.Go(func() error {
			ev := mergedEvent(18, 1)
			ev.Shard = shard
			_, err := p.PublishMerged(ctx, ev)
			return err
		})
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		r, err := Parse(get(t, client, testKey("t", shard)).Kvs[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		if n, known := r.Pending(); n != 7 || !known || r.PendingBytes() != 70 {
			t.Fatalf("%s: pending %d (known %v) of %+v", shard, n, known, r)
		}
	}
}

func TestALowerMarkIsANoOpAtTheSameRevision(t *testing.T) {
	client := etcdtest.Start(t)
	p := newPublisher(client)
	if _, err := p.PublishSealed(t.Context(), sealedEvent(25, 1)); err != nil {
		t.Fatal(err)
	}
	before := get(t, client, testKey("t", "s"))
	lower := sealedEvent(24, 1)
	lower.SealedMS = 0
	for _, ev := range []SealedEvent{lower, sealedEvent(25, 1)} {
		r, err := p.PublishSealed(t.Context(), ev)
		if err != nil || r.Sealed.Gen != 25 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	after := get(t, client, testKey("t", "s"))
	if after.Header.Revision != before.Header.Revision || after.Kvs[0].Version != 1 {
		t.Fatalf("an unchanged join wrote: %v, then %v", before, after)
	}
}

func TestAnUnknownShardGetsAFreshRecord(t *testing.T) {
	client := etcdtest.Start(t)
	r, err := newPublisher(client).PublishMerged(t.Context(), mergedEvent(3, 1))
	if err != nil || r.Merged.Gen != 3 || r.Sealed != nil || r.Source != Executor {
		t.Fatalf("%+v, %v", r, err)
	}
	stored, err := Parse(get(t, client, testKey("t", "s")).Kvs[0].Value)
	if err != nil || !stored.Equal(r) {
		t.Fatalf("stored %+v (%v), replied %+v", stored, err, r)
	}
}

func TestARecordOfAnUnknownVersionIsNeverOverwritten(t *testing.T) {
	client := etcdtest.Start(t)
	const future = `{"v":999,"marks":"elsewhere"}`
	if _, err := client.Put(t.Context(), testKey("t", "s"), future); err != nil {
		t.Fatal(err)
	}
	_, err := newPublisher(client).PublishSealed(t.Context(), sealedEvent(25, 1))
	var failed *PublishError
	if !errors.Is(err, ErrFormat) || !errors.As(err, &failed) || failed.Key != testKey("t", "s") {
		t.Fatalf("got %v", err)
	}
	if kv := get(t, client, testKey("t", "s")).Kvs[0]; string(kv.Value) != future || kv.Version != 1 {
		t.Fatalf("the record was touched: %s", kv.Value)
	}
}

func TestEpochOneMergedAndEpochTwoSealedLeaveTwentyPendingInEveryOrder(t *testing.T) {
	client := etcdtest.Start(t)
	p := newPublisher(client)
	sealed := func(shard string) error {
		ev := sealedEvent(60, 2)
		ev.Shard = shard
		_, err := p.PublishSealed(t.Context(), ev)
		return err
	}
	merged := func(shard string) error {
		ev := mergedEvent(40, 1)
		ev.Shard = shard
		_, err := p.PublishMerged(t.Context(), ev)
		return err
	}
	for shard, order := range map[string][]func(string) error{"sm": {sealed, merged}, "ms": {merged, sealed}} {
		for _, publish := range order {
			if err := publish(shard); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Parse(get(t, client, testKey("t", shard)).Kvs[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		if n, known := r.Pending(); n != 20 || !known {
			t.Errorf("%s: pending %d, known %v", shard, n, known)
		}
	}
}

func TestAPublishThatLosesEveryRoundEndsInAnError(t *testing.T) {
	client := etcdtest.Start(t)
	gen := uint64(0)
	kv := etcdtest.NewFaultyKV(client)
	kv.Before(func() { // another source is always faster
		gen++
		if _, err := newPublisher(client).PublishSealed(t.Context(), sealedEvent(gen, 1)); err != nil {
			t.Error(err)
		}
	})
	if _, err := newPublisher(kv).PublishMerged(t.Context(), mergedEvent(1, 1)); !errors.Is(err, ErrContended) {
		t.Fatalf("got %v", err)
	}
	if gen != attemptsMax {
		t.Errorf("%d rounds, want %d", gen, attemptsMax)
	}
}

func TestAPublishWhoseAnswerWasLostIsAppliedOnce(t *testing.T) {
	client := etcdtest.Start(t)
	kv := etcdtest.NewFaultyKV(client)
	kv.Next(etcdtest.LoseAnswer)
	r, err := newPublisher(kv).PublishSealed(t.Context(), sealedEvent(5, 1))
	if err != nil || r.Sealed.Gen != 5 {
		t.Fatalf("%+v, %v", r, err)
	}
	if kv := get(t, client, testKey("t", "s")).Kvs[0]; kv.Version != 1 {
		t.Fatalf("written %d times", kv.Version)
	}
}

func TestAPublishInAFullEtcdFailsAtOnceAndSaysSo(t *testing.T) {
	client := etcdtest.Start(t)
	kv := etcdtest.NewFaultyKV(client)
	kv.Next(etcdtest.NoSpace)
	if _, err := newPublisher(kv).PublishSealed(t.Context(), sealedEvent(5, 1)); !errors.Is(err, etcd.ErrNoSpace) || kv.Txns() != 1 {
		t.Fatalf("after %d txns: %v", kv.Txns(), err)
	}
}
