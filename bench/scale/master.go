package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/master"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

// runMaster is the other process: it makes a fleet in a store in memory and runs two masters over it, one after the other.
// The first finds etcd empty, the second finds what the first left. It says a line of JSON when either has taken over,
// and obeys a line on its input: "hush" stops the scans, the end of the input stops the master.
//
// A profile of each takeover, and one of what follows, is written to a directory, if one is given.
func runMaster(ctx context.Context, endpoint string, tables int, profiles string) error {
	store := &hushed{Store: objstore.NewMemory(clock.System())}
	begin := time.Now()
	if err := createFleet(ctx, store, tables); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "made %d tables in memory in %v\n", tables, time.Since(begin).Round(time.Second))
	shards := tables * fleetShards / fleetTables
	traffic := &traffic{}
	looking := map[string]time.Duration{"m-1": time.Second, "m-2": 50 * time.Millisecond}
	for _, id := range []string{"m-1", "m-2"} {
		base := heap()
		cpu, err := cpuOf(os.Getpid())
		if err != nil {
			return err
		}
		m, err := startMaster(ctx, id, endpoint, store, traffic)
		if err != nil {
			return err
		}
		var took time.Duration
		if err := profiled(profiles, id, func() (err error) {
			took, err = m.await(ctx, looking[id], tables, shards)
			return err
		}); err != nil {
			return err
		}
		used, err := cpuOf(os.Getpid())
		if err != nil {
			return err
		}
		say(report{Master: id, TakeoverSeconds: took.Seconds(), CPUSeconds: (used - cpu).Seconds(), HeapBytes: int64(heap()) - int64(base)})
		if id == "m-1" {
			if err := m.stop(); err != nil {
				return err
			}
			continue
		}
		if err := profiled(profiles, "steady", func() error {
			lines := bufio.NewScanner(os.Stdin)
			for lines.Scan() {
				store.hush.Store(lines.Text() == "hush")
			}
			return lines.Err()
		}); err != nil {
			return err
		}
		last := report{Master: id, ResponseBytes: traffic.response.Load(), TxnBytes: traffic.txn.Load(), HeapBytes: int64(heap()) - int64(base)}
		last.Passes, last.PassSeconds = m.value("tidemark_planner_passes_total"), m.value("tidemark_planner_seconds_total")
		say(last)
		return m.stop()
	}
	return nil
}

// profiled runs f under the CPU profiler.
func profiled(dir, name string, f func() error) error {
	if dir == "" {
		return f()
	}
	out, err := os.Create(filepath.Join(dir, name+".pprof"))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return err
	}
	defer func() {
		pprof.StopCPUProfile()
		_ = out.Close()
	}()
	return f()
}

// report is what the master's process says.
type report struct {
	Master                  string
	TakeoverSeconds         float64
	CPUSeconds              float64 // of the process meanwhile, looking included
	HeapBytes               int64   // of the master alone, not of its store
	ResponseBytes, TxnBytes int64   // the largest of each
	Passes, PassSeconds     float64
}

func say(r report) {
	b, err := json.Marshal(r)
	if err == nil {
		_, err = fmt.Println(string(b))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "saying a report:", err)
	}
}

// runningMaster is one master in this process.
type runningMaster struct {
	master   *master.Master
	client   *clientv3.Client
	registry *prometheus.Registry
	began    time.Time
	cancel   context.CancelFunc
	done     chan error
}

func startMaster(ctx context.Context, id, endpoint string, store objstore.Store, t *traffic) (*runningMaster, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialOptions: []grpc.DialOption{grpc.WithStatsHandler(t)}})
	if err != nil {
		return nil, err
	}
	m := &runningMaster{client: client, registry: prometheus.NewRegistry(), done: make(chan error, 1), began: time.Now()}
	m.master, err = master.New(master.Config{
		ID: id, Cluster: "scale", Keys: keys, Client: client, Store: store, Clock: clock.System(), Random: random.New(),
		Log: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr}), BeatWatch: time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	if err := m.registry.Register(m.master); err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	m.cancel = cancel
	go func() { m.done <- m.master.Run(running) }()
	return m, nil
}

// await waits until every slot is owned and every table decided. Demand is folded in the pass that decides. Looking is
// not free, for metrics visit every table under the master's lock, so it is not done too often.
func (m *runningMaster) await(ctx context.Context, every time.Duration, tables, shards int) (time.Duration, error) {
	for {
		if m.master.Ready() == nil && m.value("tidemark_slots_owned") == etcd.DefaultSlots && m.value("tidemark_tables") == float64(tables) &&
			m.value("tidemark_shards") == float64(shards) && m.value("tidemark_shards_unknown") == 0 {
			return time.Since(m.began), nil
		}
		select {
		case <-time.After(every):
		case err := <-m.done:
			return 0, fmt.Errorf("the master ended: %w", err)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// value is a metric without labels; -1 while there is none.
func (m *runningMaster) value(name string) float64 {
	families, err := m.registry.Gather()
	if err != nil {
		return -1
	}
	for _, f := range families {
		if f.GetName() != name || len(f.Metric) == 0 {
			continue
		}
		if f.GetType() == dto.MetricType_COUNTER {
			return f.Metric[0].GetCounter().GetValue()
		}
		return f.Metric[0].GetGauge().GetValue()
	}
	return -1
}

func (m *runningMaster) stop() error {
	m.cancel()
	err := <-m.done
	return errorsOr(err, m.client.Close())
}

func errorsOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func shardName(i int) string { return fmt.Sprint("shard-", i) }

func tableName(i int) string { return fmt.Sprintf("team-%d/table-%d", i%100, i) }

// shardsOf is the number of shards of a table: two, and one more for the first tables.
func shardsOf(i, tables int) int {
	all := tables * fleetShards / fleetTables
	n := all / tables
	if i < all%tables {
		n++
	}
	return n
}

// createFleet makes the tables, with one generation sealed on each shard.
func createFleet(ctx context.Context, store objstore.Store, tables int) error {
	columns, err := schema.Parse(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}`)
	if err != nil {
		return err
	}
	c, r := clock.System(), random.New()
	for i := range tables {
		t, err := table.Create(ctx, store, tableName(i), table.CreateOptions{Schema: columns}, table.Deps{Clock: c, Random: r})
		if err != nil {
			return err
		}
		for j := range shardsOf(i, tables) {
			chain := shardmanifest.Open(store, t.Name, t.ID, shardName(j), shardmanifest.Options{Clock: c, Random: r})
			hold, err := chain.Claim(ctx, shardmanifest.ClaimOptions{})
			if err != nil {
				return err
			}
			if _, err := hold.Seal(ctx, shardmanifest.Generation{Path: chain.GenerationPath(hold.Next()), Bytes: 1 << 20, Rows: 100,
				SealedMS: c.Now().UnixMilli()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// hushed is a store whose tables do not answer while it is hushed: in the steady state nothing is merged on storage, and a
// scan would rightly report that.
type hushed struct {
	objstore.Store
	hush atomic.Bool
}

func (s *hushed) wait(ctx context.Context, key string) error {
	for s.hush.Load() && strings.HasPrefix(key, "team-") {
		if err := clock.System().Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

func (s *hushed) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	if err := s.wait(ctx, key); err != nil {
		return nil, objstore.Info{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s *hushed) List(ctx context.Context, req objstore.ListRequest) (objstore.Page, error) {
	if err := s.wait(ctx, req.Prefix); err != nil {
		return objstore.Page{}, err
	}
	return s.Store.List(ctx, req)
}

// traffic notes the largest messages of a client. It implements stats.Handler.
type traffic struct {
	response, txn atomic.Int64
	mu            sync.Mutex // of the maxima
}

type methodKey struct{}

func (t *traffic) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, methodKey{}, info.FullMethodName)
}

func (t *traffic) HandleRPC(ctx context.Context, s stats.RPCStats) {
	switch p := s.(type) {
	case *stats.InPayload:
		t.most(&t.response, p.Length)
	case *stats.OutPayload:
		if method, _ := ctx.Value(methodKey{}).(string); strings.HasSuffix(method, "/Txn") {
			t.most(&t.txn, p.Length)
		}
	}
}

func (t *traffic) most(of *atomic.Int64, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of.Store(max(of.Load(), int64(n)))
}

func (t *traffic) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (t *traffic) HandleConn(context.Context, stats.ConnStats)                       {}
