package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/executor"
	"tidemark/internal/master"
	"tidemark/internal/objstore"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/internal/table"
	"tidemark/test/etcd/etcdtest"
)

const (
	slots     = 8
	masters   = 2
	executors = 3
	ttl       = 3 * time.Second
	// settleMax is a bound for a broken fleet. A healthy one settles in seconds, or in 30 when a mark that it published
	// got lost.
	settleMax = 2 * time.Minute
)

var keys = etcd.KeysOf("fleet")

// wrong is a clock that is so much ahead of the others, or behind them.
type wrong struct {
	clock.Clock
	ahead time.Duration
}

func (c wrong) Now() time.Time { return c.Clock.Now().Add(c.ahead) }

// wrongBy gives every process of a kind a clock of its own: the first is right, the others are an hour ahead and an hour
// behind. It must change no ownership, mark or deletion.
func wrongBy(i int) clock.Clock {
	return wrong{clock.System(), [3]time.Duration{0, time.Hour, -time.Hour}[i%3]}
}

// fleet is masters, executors and writers over one etcd and a root in memory.
type fleet struct {
	t       testing.TB
	cluster *etcdtest.Cluster
	store   *objstore.Memory
	clock   clock.Clock
	random  random.Source
	mem     memory.Allocator
	log     hclog.Logger
	ctx     context.Context
	wait    sync.WaitGroup
	clients []*clientv3.Client // closed once nothing runs any more
	streams []*stream
}

// startFleet starts everything; it ends with the test.
func startFleet(t testing.TB, cluster *etcdtest.Cluster) *fleet {
	ctx, stop := context.WithCancel(context.Background())
	f := &fleet{
		t: t, cluster: cluster, store: objstore.NewMemory(clock.System()), clock: clock.System(), random: random.New(),
		mem: memory.NewGoAllocator(), ctx: ctx,
		log: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: testWriter{t}}),
	}
	t.Cleanup(func() {
		stop()
		f.wait.Wait()
		for _, client := range f.clients {
			_ = client.Close()
		}
	})
	for i := range masters {
		f.master(fmt.Sprint("m-", i), wrongBy(i))
	}
	for i := range executors {
		f.executor(fmt.Sprint("x-", i), wrongBy(i))
	}
	return f
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// dial connects as the commands do.
func (f *fleet) dial() *clientv3.Client {
	f.t.Helper()
	client, err := etcd.Dial(f.ctx, etcd.DialOptions{Endpoints: f.cluster.Endpoints(), Timeout: 30 * time.Second})
	if err != nil {
		f.t.Fatal(err)
	}
	f.clients = append(f.clients, client)
	return client
}

// run runs a part until the test ends; none may end before.
func (f *fleet) run(name string, part func(context.Context) error) {
	f.wait.Go(func() {
		if err := part(f.ctx); f.ctx.Err() == nil {
			f.t.Errorf("%s ended: %v", name, err)
		}
	})
}

func (f *fleet) master(id string, c clock.Clock) {
	m, err := master.New(master.Config{
		ID: id, Cluster: "fleet", Slots: slots, Keys: keys, Client: f.dial(), Store: f.store, Clock: c, Random: f.random,
		Log: f.log.Named(id), Lease: ownership.DefaultConfig(ttl), BeatWatch: time.Second,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.run(id, m.Run)
}

func (f *fleet) executor(id string, c clock.Clock) {
	e, err := executor.New(executor.Config{ID: id, Slots: 2, Memory: 2 * executor.MemoryMin, Lease: ownership.DefaultConfig(ttl)}, executor.Deps{
		Client: f.dial(), Keys: keys, Store: f.store, Clock: c, Random: f.random, Mem: f.mem,
		Log: f.log.Named(id), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.run(id, func(ctx context.Context) error { return e.Run(ctx, nil) })
}

func (f *fleet) tableDeps() table.Deps { return table.Deps{Clock: f.clock, Random: f.random} }

// settles waits until etcd says of every stream that all it has sealed is merged, and nothing is queued or held; then it
// reads the tables.
func (f *fleet) settles(t *testing.T) {
	t.Helper()
	begin, said := time.Now(), false
	for {
		behind := f.behind()
		if len(behind) == 0 {
			break
		}
		switch waited := time.Since(begin); {
		case waited > settleMax:
			t.Fatalf("never settled:\n%s", strings.Join(behind, "\n"))
		case waited > 5*time.Second && !said:
			t.Logf("still behind:\n%s", strings.Join(behind, "\n"))
			said = true
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("settled after %v", time.Since(begin).Round(10*time.Millisecond))
	for _, s := range f.streams {
		s.check(t)
	}
}

// behind says what is not settled, as etcd has it at one revision.
func (f *fleet) behind() (behind []string) {
	ctx, cancel := context.WithTimeout(f.ctx, 5*time.Second)
	defer cancel()
	all, err := f.cluster.Admin().Get(ctx, keys.Prefix+"/", clientv3.WithPrefix())
	if err != nil {
		return []string{err.Error()}
	}
	standing := map[string][]byte{}
	for _, kv := range all.Kvs {
		key := string(kv.Key)
		standing[key] = kv.Value
		if strings.HasPrefix(key, keys.ReadyAll()) || strings.HasPrefix(key, keys.TurnsAll()) {
			behind = append(behind, key)
		}
	}
	for _, s := range f.streams {
		for shard, sealed := range s.sealed {
			r, err := demand.Parse(standing[keys.Demand(etcd.SlotOf(s.table, slots), s.table, shard)])
			switch {
			case err != nil:
				behind = append(behind, fmt.Sprintf("%s of %s: sealed %d, no demand: %v", shard, s.table, sealed, err))
			case r.Sealed == nil || r.Merged == nil || r.Sealed.Gen != sealed || r.Merged.Gen != sealed:
				behind = append(behind, fmt.Sprintf("%s of %s: sealed %d, demand is %s", shard, s.table, sealed, r.Encode()))
			}
		}
	}
	slices.Sort(behind)
	return behind
}

// revokeAll ends every lease at once, as a leader does that was too slow to hear of their renewals.
func (f *fleet) revokeAll(t *testing.T) {
	t.Helper()
	all, err := f.cluster.Admin().Leases(t.Context())
	// The story before may have left somebody in quarantine whom nobody needed to settle it.
	for begin := time.Now(); err == nil && len(all.Leases) < masters+executors; all, err = f.cluster.Admin().Leases(t.Context()) {
		if time.Since(begin) > settleMax {
			t.Fatalf("%d leases of %d processes", len(all.Leases), masters+executors)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range all.Leases {
		if _, err := f.cluster.Admin().Revoke(t.Context(), lease.ID); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Fatal(err)
		}
	}
}

// touch writes every demand record again as it is, past the network: a watch that is cut off misses all of them.
func (f *fleet) touch(t *testing.T) {
	t.Helper()
	all, err := f.cluster.Admin().Get(t.Context(), keys.Prefix+"/demand/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		if _, err := f.cluster.Admin().Put(t.Context(), string(kv.Key), string(kv.Value)); err != nil {
			t.Fatal(err)
		}
	}
}

// during has everybody write until what is done meanwhile has been done, and everybody seal once more when it is over:
// what could not be published before is said again then.
func (f *fleet) during(meanwhile func()) {
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for _, s := range f.streams {
		writers.Go(func() { s.write(stop) })
	}
	meanwhile()
	close(stop)
	writers.Wait()
}
