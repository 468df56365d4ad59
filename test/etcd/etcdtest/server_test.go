package etcdtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"tidemark/test/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAServerAnswersAndForgetsEverythingWhenWiped(t *testing.T) {
	server := etcdtest.New(t, etcdtest.Options{})
	client := server.Client(t)
	ctx := t.Context()

	first, err := client.Put(ctx, "k", "v")
	if err != nil {
		t.Fatal(err)
	}

	server.Restart(t)
	got, err := client.Get(ctx, "k")
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("after a restart: %v, %v", got, err)
	}

	server.Wipe(t)
	got, err = client.Get(ctx, "k")
	if err != nil || len(got.Kvs) != 0 {
		t.Fatalf("after a wipe: %v, %v", got, err)
	}
	if got.Header.ClusterId == first.Header.ClusterId || got.Header.Revision >= first.Header.Revision {
		t.Fatalf("a wiped server looks like the old one: %v", got.Header)
	}
}

func TestEveryTestHasItsOwnServer(t *testing.T) {
	a, b := etcdtest.Start(t), etcdtest.Start(t)
	if _, err := a.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	got, err := b.Get(t.Context(), "k")
	if err != nil || len(got.Kvs) != 0 {
		t.Fatalf("another test's key: %v, %v", got, err)
	}
}
