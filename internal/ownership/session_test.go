package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
	"tidemark/test/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testSessionTTL is long enough for a loaded machine to renew in time, and short enough to wait for a renewal.
const testSessionTTL = 6 * time.Second

var testKeys = etcd.KeysOf("test")

// runningSession is a session that is released when the test ends.
type runningSession struct {
	*Session
	stop context.CancelFunc
	end  chan error
}

func runSession(t *testing.T, client *clientv3.Client, key string, seed uint64, change ...func(*Options)) runningSession {
	t.Helper()
	o := Options{
		Key: key, Config: DefaultConfig(testSessionTTL), Clock: clock.System(), Random: random.Seeded(seed),
		Log: hclog.NewNullLogger(), Details: func() map[string]any { return map[string]any{"address": "host:1"} },
	}
	for _, c := range change {
		c(&o)
	}
	s, err := NewSession(client, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := runningSession{Session: s, stop: stop, end: make(chan error, 1)}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		r.end <- s.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-returned
	})
	return r
}

func wait(t *testing.T, s *Session) Grant {
	t.Helper()
	g, err := s.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestASessionKeyStandsUnderTheLeaseAndGoesWithIt(t *testing.T) {
	client := etcdtest.Start(t)
	s := runSession(t, client, testKeys.Executor("x"), 1)
	g := wait(t, s.Session)

	got, err := client.Get(t.Context(), s.Key())
	if err != nil || len(got.Kvs) != 1 || clientv3.LeaseID(got.Kvs[0].Lease) != g.Lease {
		t.Fatalf("%v, %v", got, err)
	}
	var value map[string]any
	if err := json.Unmarshal(got.Kvs[0].Value, &value); err != nil || value["token"] != g.Token || value["address"] != "host:1" || value["v"] != 1.0 {
		t.Fatalf("%s, %v", got.Kvs[0].Value, err)
	}

	s.stop()
	if err := <-s.end; err != nil {
		t.Fatal(err)
	}
	if got, err = client.Get(t.Context(), s.Key()); err != nil || len(got.Kvs) != 0 {
		t.Fatalf("after the release: %v, %v", got, err)
	}
}

func TestASecondProcessOfTheSameNameIsRefusedNamingTheFirst(t *testing.T) {
	client := etcdtest.Start(t)
	first := runSession(t, client, testKeys.Master("m"), 1)
	wait(t, first.Session)
	second := runSession(t, client, testKeys.Master("m"), 2, func(o *Options) {
		o.Config.RivalIsError, o.Config.StartWait = true, 0
	})
	err := <-second.end
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Holder != testKeys.Master("m")+" at host:1" {
		t.Fatalf("got %v", err)
	}
}

func TestAKilledProcessIsSucceededWhenItsLeaseRanOut(t *testing.T) {
	client := etcdtest.Start(t)
	// The predecessor is gone and only its lease is left.
	lease, err := client.Grant(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), testKeys.Master("m"), `{"v":1,"token":"gone"}`, clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	s := runSession(t, client, testKeys.Master("m"), 2, func(o *Options) {
		o.Config.RivalIsError, o.Config.StartWait = true, time.Minute
	})
	wait(t, s.Session)
}

func TestASessionWhoseLeaseOrKeyIsRemovedFencesAndComesBackUnderAnother(t *testing.T) {
	for name, remove := range map[string]func(context.Context, *clientv3.Client, *Session, Grant) error{
		"lease": func(ctx context.Context, c *clientv3.Client, _ *Session, g Grant) error {
			_, err := c.Revoke(ctx, g.Lease)
			return err
		},
		"key": func(ctx context.Context, c *clientv3.Client, s *Session, _ Grant) error {
			_, err := c.Delete(ctx, s.Key())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := etcdtest.Start(t)
			s := runSession(t, client, testKeys.Executor("x"), 1)
			fenced := make(chan error, 10)
			s.OnFence(func(cause error) { fenced <- cause })
			first := wait(t, s.Session)
			if err := remove(t.Context(), client, s.Session, first); err != nil {
				t.Fatal(err)
			}
			<-first.Context.Done()
			if cause := <-fenced; !errors.Is(cause, ErrLeaseLost) {
				t.Errorf("fenced for %v", cause)
			}
			second := wait(t, s.Session)
			if second.Token == first.Token || second.Lease == first.Lease {
				t.Errorf("came back under the same lease: %+v", second)
			}
		})
	}
}

func TestASessionStartsAfreshWhenEtcdIsReplacedByAnEmptyOne(t *testing.T) {
	server := etcdtest.New(t, etcdtest.Options{})
	client := server.Client(t)
	s := runSession(t, client, testKeys.Executor("x"), 1)
	first := wait(t, s.Session)
	server.Wipe(t)
	<-first.Context.Done()
	second := wait(t, s.Session)
	got, err := client.Get(t.Context(), s.Key())
	if err != nil || len(got.Kvs) != 1 || clientv3.LeaseID(got.Kvs[0].Lease) != second.Lease {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestChangedDetailsAreWrittenUnderTheSameLease(t *testing.T) {
	client := etcdtest.Start(t)
	draining := false
	s := runSession(t, client, testKeys.Executor("x"), 1, func(o *Options) {
		o.Details = func() map[string]any { return map[string]any{"draining": draining} }
	})
	g := wait(t, s.Session)
	draining = true
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := client.Get(t.Context(), s.Key())
	if err != nil || clientv3.LeaseID(got.Kvs[0].Lease) != g.Lease || got.Kvs[0].Version != 2 {
		t.Fatalf("%v, %v", got, err)
	}
}
