package etcd

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/random"
	"tidemark/test/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mapMirror is the plainest mirror.
type mapMirror struct {
	mu        sync.Mutex // guards the following
	values    map[string]string
	revisions map[string]int64
	fresh     bool
	stale     int    // how often it went stale
	signs     int    // how often it was fresh since it was last stale
	deaf      string // the next Put of this key is lost
}

func newMapMirror() *mapMirror {
	return &mapMirror{values: map[string]string{}, revisions: map[string]int64{}}
}

func (m *mapMirror) Put(kv *mvccpb.KeyValue) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deaf == string(kv.Key) {
		m.deaf = ""
		return
	}
	m.values[string(kv.Key)], m.revisions[string(kv.Key)] = string(kv.Value), kv.ModRevision
}

func (m *mapMirror) Delete(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
	delete(m.revisions, key)
}

func (m *mapMirror) All() iter.Seq2[string, int64] { return maps.All(m.revisions) }

func (m *mapMirror) Fresh(int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh = true
	m.signs++
}

func (m *mapMirror) Stale(error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh, m.signs = false, 0
	m.stale++
}

func (m *mapMirror) is(want map[string]string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fresh && maps.Equal(m.values, want)
}

func (m *mapMirror) wentStale() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stale
}

func follow(t *testing.T, client *clientv3.Client, prefix string, m Mirror, change ...func(*Follower)) *Follower {
	t.Helper()
	f := NewFollower(client, prefix, m, clock.System(), random.Seeded(1), hclog.NewNullLogger())
	for _, c := range change {
		c(f)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return f
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

func put(t *testing.T, client *clientv3.Client, key, value string) int64 {
	t.Helper()
	answer, err := client.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

func remove(t *testing.T, client *clientv3.Client, key string) {
	t.Helper()
	if _, err := client.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

func TestAFollowerMirrorsWhatStandsAndWhatChanges(t *testing.T) {
	client := etcdtest.Start(t)
	put(t, client, "p/a", "1")
	put(t, client, "q/a", "other prefix")
	m := newMapMirror()
	follow(t, client, "p/", m)
	eventually(t, "the snapshot", func() bool { return m.is(map[string]string{"p/a": "1"}) })
	put(t, client, "p/b", "2")
	put(t, client, "p/a", "3")
	eventually(t, "puts", func() bool { return m.is(map[string]string{"p/a": "3", "p/b": "2"}) })
	remove(t, client, "p/a")
	eventually(t, "a delete", func() bool { return m.is(map[string]string{"p/b": "2"}) })
}

func TestAWatchThatWasCompactedAwayIsSurvivedByAFreshSnapshot(t *testing.T) {
	server := etcdtest.New(t, etcdtest.Options{})
	direct := server.Client(t)
	proxy := etcdtest.NewProxy(t, server.Address())
	put(t, direct, "p/stays", "1")
	put(t, direct, "p/goes", "1")
	m := newMapMirror()
	follow(t, etcdtest.Dial(t, proxy.Address()), "p/", m)
	eventually(t, "the snapshot", func() bool { return m.is(map[string]string{"p/stays": "1", "p/goes": "1"}) })

	proxy.Set(false, false)
	proxy.Reset()
	remove(t, direct, "p/goes")
	rev := put(t, direct, "p/comes", "2")
	if _, err := direct.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	proxy.Set(true, true)
	eventually(t, "a fresh snapshot", func() bool { return m.is(map[string]string{"p/stays": "1", "p/comes": "2"}) })
	if m.wentStale() == 0 {
		t.Error("it never said that it was stale")
	}
}

func TestAnEtcdReplacedByAnEmptyOneIsNoticedWithoutAnyEvent(t *testing.T) {
	for name, sameID := range map[string]bool{"another cluster id": false, "a lower revision only": true} {
		t.Run(name, func(t *testing.T) {
			server := etcdtest.New(t, etcdtest.Options{SameClusterID: sameID})
			client := server.Client(t)
			for i := range 20 {
				put(t, client, "p/a", fmt.Sprint(i))
			}
			m := newMapMirror()
			follow(t, client, "p/", m, func(f *Follower) { f.signEvery = 50 * time.Millisecond })
			eventually(t, "the snapshot", func() bool { return m.is(map[string]string{"p/a": "19"}) })
			server.Wipe(t)
			eventually(t, "it is empty too", func() bool { return m.is(map[string]string{}) })
			put(t, client, "p/b", "new")
			eventually(t, "it follows the new one", func() bool { return m.is(map[string]string{"p/b": "new"}) })
		})
	}
}

func TestASilentEtcdMakesTheMirrorStaleUntilItAnswersAgain(t *testing.T) {
	server := etcdtest.New(t, etcdtest.Options{})
	direct := server.Client(t)
	proxy := etcdtest.NewProxy(t, server.Address())
	m := newMapMirror()
	follow(t, etcdtest.Dial(t, proxy.Address()), "p/", m, func(f *Follower) { f.signEvery = 50 * time.Millisecond })
	eventually(t, "the snapshot", func() bool { return m.is(map[string]string{}) })
	proxy.Set(true, false) // requests pass, answers do not
	eventually(t, "it is stale", func() bool { return m.wentStale() > 0 })
	put(t, direct, "p/a", "1")
	proxy.Set(true, true)
	eventually(t, "it is fresh again", func() bool { return m.is(map[string]string{"p/a": "1"}) })
}

// An idle fleet writes nothing to etcd for minutes.
func TestAnEtcdInWhichNothingIsWrittenStillGivesSigns(t *testing.T) {
	client := etcdtest.Start(t)
	put(t, client, "p/a", "1") // the newest revision is one that the watch begins with
	m := newMapMirror()
	follow(t, client, "p/", m, func(f *Follower) { f.signEvery = 20 * time.Millisecond })
	// A snapshot that nothing follows is one sign.
	eventually(t, "signs", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.signs >= 3
	})
}

func TestWhatTheWatchMissedIsCountedAsDriftAndRepaired(t *testing.T) {
	client := etcdtest.Start(t)
	m := newMapMirror()
	f := follow(t, client, "p/", m, func(f *Follower) {
		f.signEvery, f.rereadEvery = 20*time.Millisecond, 50*time.Millisecond
	})
	eventually(t, "the snapshot", func() bool { return m.is(map[string]string{}) })
	m.mu.Lock()
	m.deaf = "p/missed"
	m.mu.Unlock()
	put(t, client, "p/missed", "1")
	put(t, client, "p/seen", "1")
	eventually(t, "the missed key", func() bool { return m.is(map[string]string{"p/missed": "1", "p/seen": "1"}) })
	if f.Drift() != 1 {
		t.Errorf("drift %d, want 1", f.Drift())
	}
}

func TestChangesDuringARereadAreNoDrift(t *testing.T) {
	client := etcdtest.Start(t)
	m := newMapMirror()
	f := follow(t, client, "p/", m, func(f *Follower) {
		f.signEvery, f.rereadEvery = 20*time.Millisecond, 2*time.Millisecond
	})
	for i := range 300 {
		key := fmt.Sprint("p/", i%7)
		put(t, client, key, "1")
		if i%3 == 0 {
			remove(t, client, key)
		}
	}
	put(t, client, "p/end", "1")
	eventually(t, "the end", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.values["p/end"] != ""
	})
	if f.Drift() != 0 {
		t.Errorf("drift %d though nothing was missed", f.Drift())
	}
}
