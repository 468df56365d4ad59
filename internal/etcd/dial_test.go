package etcd

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tidemark/test/etcd/etcdtest"
)

func TestDialAnswersOrNamesTheEndpoints(t *testing.T) {
	server := etcdtest.New(t, etcdtest.Options{})
	client, err := Dial(t.Context(), DialOptions{Endpoints: []string{server.Address()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}

	server.Stop(t)
	_, err = Dial(t.Context(), DialOptions{Endpoints: []string{server.Address(), "127.0.0.1:1"}, Timeout: 200 * time.Millisecond})
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), server.Address()+", 127.0.0.1:1") {
		t.Fatalf("got %v", err)
	}
	if _, err := Dial(t.Context(), DialOptions{}); err == nil {
		t.Fatal("dialled no endpoints")
	}
}
