package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/executor"
	"tidemark/internal/master"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
	"tidemark/internal/schema"
	"tidemark/internal/table"
	"tidemark/writer"
)

// The scaling cases: 1, 2, 4 and 8 executors over a store that takes 20 ms for every request, as one does that is not in the
// same building. Units are so small that the work of eight fits two cores: what is measured is how executors get into each
// other's way, in the queue, and in the log of one table. The executors are the real code, each with one slot and an etcd
// connection of its own, in this process with the master and a store in memory; etcd is a process.
var scalingCases = []benchCase{{"scaling-tables", scalingTables}, {"scaling-hot", scalingHot}}

const (
	scalingLatency = 20 * time.Millisecond
	// Units for each executor, so that every measurement takes as long.
	scalingUnits = 24
	// Generations of one feed of a shard of the hot table, which is about what a unit takes in.
	scalingHotGenerations = 16
	tablesGoal            = 0.86
	hotGoal               = 0.7
)

// scaler is a cluster of its own, over a store in memory and the etcd of the bench.
type scaler struct {
	*bench
	client *clientv3.Client
	keys   etcd.Keys
	store  objstore.Store // without latency: what is loaded through it, and what the master reads, is not measured
	clock  clock.Clock
	random random.Source
	stop   func() error
}

const scalingCluster = "scaling"

func newScaler(ctx context.Context, b *bench) (*scaler, error) {
	c := clock.System()
	s := &scaler{bench: b, keys: etcd.KeysOf(scalingCluster), clock: c, random: random.New(), store: objstore.NewMemory(c)}
	var err error
	if s.client, err = s.dial(ctx); err != nil {
		return nil, err
	}
	m, err := master.New(master.Config{
		ID: "bench", Cluster: scalingCluster, Keys: s.keys, Client: s.client, Store: s.store, Clock: c, Random: s.random,
		Log: hclog.NewNullLogger(), BeatWatch: time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	s.stop = func() error {
		cancel()
		return errors.Join(<-ended, s.client.Close())
	}
	for m.Ready() != nil {
		if err := clock.Sleep(ctx, c, 20*time.Millisecond); err != nil {
			return nil, errors.Join(err, s.stop())
		}
	}
	return s, nil
}

func (s *scaler) dial(ctx context.Context) (*clientv3.Client, error) {
	return etcd.Dial(ctx, etcd.DialOptions{Endpoints: []string{s.etcd}, Timeout: 30 * time.Second})
}

var scalingSchema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

// create makes a table with a policy.
func (s *scaler) create(ctx context.Context, name string, policy map[string]string) error {
	columns, err := schema.FromArrow(scalingSchema)
	if err != nil {
		return err
	}
	properties := map[string]string{}
	for k, v := range policy {
		properties["tidemark.policy."+k] = v
	}
	_, err = table.Create(ctx, s.store, name, table.CreateOptions{Schema: columns, Properties: properties}, table.Deps{Clock: s.clock, Random: s.random})
	return err
}

// seal seals generations of so many rows into a shard, and tells the cluster when the last is sealed: so that all of them
// are one piece of work.
func (s *scaler) seal(ctx context.Context, name, shard string, generations, rows int) error {
	deps := writer.Deps{Store: s.store, Clock: s.clock, Random: s.random, Mem: memory.DefaultAllocator}
	if err := s.sealWith(ctx, deps, name, shard, generations-1, rows); err != nil {
		return err
	}
	deps.Publisher = demand.NewPublisher(s.client, s.keys, etcd.DefaultSlots, s.clock, s.random)
	return s.sealWith(ctx, deps, name, shard, 1, rows)
}

func (s *scaler) sealWith(ctx context.Context, deps writer.Deps, name, shard string, generations, rows int) error {
	w, err := writer.ClaimWith(ctx, writer.Config{Table: name, Shard: shard}, deps)
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range generations {
		b := array.NewRecordBuilder(memory.DefaultAllocator, scalingSchema)
		for range rows {
			b.Field(0).(*array.Int64Builder).Append(r.Int64())
			b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("name-%03d", r.IntN(500)))
		}
		rec := b.NewRecord()
		b.Release()
		err := w.Append(ctx, rec)
		rec.Release()
		if err != nil {
			return err
		}
		if _, err := w.Seal(ctx); err != nil {
			return err
		}
	}
	return w.Close(ctx)
}

// queued waits until the units in the ready queue are so many, or cover so many generations. The marks of new shards are
// unknown until the master has scanned their table.
func (s *scaler) queued(ctx context.Context, units int, generations uint64) error {
	for {
		got, err := s.client.Get(ctx, s.keys.ReadyAll(), clientv3.WithPrefix())
		if err != nil {
			return err
		}
		var covered uint64
		for _, kv := range got.Kvs {
			unit, err := schedule.ParseUnit(kv.Value)
			if err != nil {
				return err
			}
			covered += unit.Gens
		}
		if len(got.Kvs) == units && covered == generations {
			return nil
		}
		if err := clock.Sleep(ctx, s.clock, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d units are queued, of %d of %d generations: %w", len(got.Kvs), units, covered, generations, err)
		}
	}
}

// span is from the first claim of a set of units to the last release, as etcd tells it.
type span struct {
	took     time.Duration
	requests int64         // to the store
	cpu      time.Duration // of this process, executors and all
}

// watch begins to watch claims and releases, and returns a function that waits for so many of them.
func (s *scaler) watch(ctx context.Context, store *slowStore, units int) func() (span, error) {
	changes := s.client.Watch(clientv3.WithRequireLeader(ctx), s.keys.TurnsAll(), clientv3.WithPrefix(), clientv3.WithPrevKV())
	return func() (span, error) {
		var began time.Time
		var requests int64
		var cpu time.Duration
		held, done := map[string]bool{}, map[string]bool{} // by execution, which is in a turn's value
		for answer := range changes {
			if err := answer.Err(); err != nil {
				return span{}, err
			}
			for _, ev := range answer.Events {
				if ev.Type == clientv3.EventTypePut {
					if began.IsZero() {
						began, requests, cpu = time.Now(), store.requests.Load(), cpuTime()
					}
					held[string(ev.Kv.Value)] = true
					continue
				}
				done[string(ev.PrevKv.Value)] = true
			}
			if len(done) >= units && len(done) == len(held) {
				return span{time.Since(began), store.requests.Load() - requests, cpuTime() - cpu}, nil
			}
		}
		return span{}, context.Cause(ctx)
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// executors runs so many until stop is called.
func (s *scaler) executors(ctx context.Context, n int, store objstore.Store) (stop func() error, err error) {
	var g errgroup.Group
	drain := make(chan struct{})
	for i := range n {
		client, err := s.dial(ctx)
		if err != nil {
			return nil, err
		}
		e, err := executor.New(executor.Config{ID: fmt.Sprintf("bench-%d-of-%d", i, n), Slots: 1, Memory: executor.MemoryMin}, executor.Deps{
			Client: client, Keys: s.keys, Store: store, Clock: s.clock, Random: random.New(), Mem: memory.DefaultAllocator,
			Log: hclog.NewNullLogger(), Metrics: prometheus.NewRegistry(),
		})
		if err != nil {
			return nil, err
		}
		g.Go(func() error {
			defer client.Close()
			return e.Run(ctx, drain)
		})
	}
	return func() error {
		close(drain)
		return g.Wait()
	}, nil
}

// scalingTables gives every executor as many independent tables to merge, each one unit.
func scalingTables(ctx context.Context, b *bench) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	s, err := newScaler(ctx, b)
	if err != nil {
		return err
	}
	defer s.stop()
	units := b.scaled(scalingUnits)
	var alone float64
	for _, n := range []int{1, 2, 4, 8} {
		for i := range n * units {
			name := fmt.Sprintf("scaling/t%d-%d", n, i)
			if err := s.create(ctx, name, map[string]string{"min_generations": "4"}); err != nil {
				return err
			}
			for _, shard := range []string{"a", "b"} {
				if err := s.seal(ctx, name, shard, 2, 500); err != nil {
					return err
				}
			}
		}
		if err := s.queued(ctx, n*units, uint64(4*n*units)); err != nil {
			return err
		}
		store := &slowStore{Store: s.store, latency: scalingLatency}
		wait := s.watch(ctx, store, n*units)
		stop, err := s.executors(ctx, n, store)
		if err != nil {
			return err
		}
		did, err := wait()
		if err == nil {
			err = stop()
		}
		if err != nil {
			return err
		}
		alone = did.say("scaling-tables", n, n*units, alone, tablesGoal)
	}
	return nil
}

// say prints a measurement with its efficiency against one executor's rate, which it returns.
func (d span) say(name string, executors, units int, alone, goal float64) float64 {
	rate := float64(units) / d.took.Seconds()
	text := ""
	if executors == 1 {
		alone = rate
	} else {
		text = fmt.Sprintf(", efficiency %.2f", rate/alone/float64(executors))
		if executors == 8 {
			text += fmt.Sprintf(" (goal %.2f)", goal)
		}
	}
	fmt.Printf("%-22s %d executors: %.1f units/s%s; %.0f ms and %.1f requests a unit; %.2f cores\n", name, executors, rate, text,
		1000*d.took.Seconds()*float64(executors)/float64(units), float64(d.requests)/float64(units), d.cpu.Seconds()/d.took.Seconds())
	return alone
}

// scalingHot gives all executors one table with sixteen shards, one in each group. As soon as a shard's group is released it is
// fed again, until every executor has had as much to do: so there is always something due, and commits come when they come.
func scalingHot(ctx context.Context, b *bench) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	s, err := newScaler(ctx, b)
	if err != nil {
		return err
	}
	defer s.stop()
	var alone float64
	for _, n := range []int{1, 2, 4, 8} {
		units := max(n*b.scaled(scalingUnits), etcd.Groups)
		did, err := s.feed(ctx, fmt.Sprintf("scaling/hot%d", n), n, units)
		if err != nil {
			return err
		}
		alone = did.say("scaling-hot", n, units, alone, hotGoal)
	}
	return nil
}

// feed gives executors a table whose shards all have something pending, and feeds each again once it is released, so many
// times in all. It returns when everything is merged.
func (s *scaler) feed(ctx context.Context, name string, executors, feeds int) (span, error) {
	if err := s.create(ctx, name, map[string]string{
		"max_parallelism": "16", "min_generations": fmt.Sprint(scalingHotGenerations), "unit_generations": fmt.Sprint(scalingHotGenerations),
		"critical_generations": "100000", "compact_files": "1000000",
	}); err != nil {
		return span{}, err
	}
	shards := shardsOfAllGroups()
	for _, shard := range shards {
		if err := s.seal(ctx, name, shard, scalingHotGenerations, 500); err != nil {
			return span{}, err
		}
	}
	if err := s.queued(ctx, len(shards), uint64(len(shards)*scalingHotGenerations)); err != nil {
		return span{}, err
	}
	var feeders errgroup.Group
	fed := make([]int, len(shards))
	turns := make([]sync.Mutex, len(shards))
	for g := range fed {
		fed[g], feeds = 1, feeds-1
	}
	changes := s.client.Watch(clientv3.WithRequireLeader(ctx), s.keys.TurnsOfTable(name), clientv3.WithPrefix())
	store := &slowStore{Store: s.store, latency: scalingLatency}
	stop, err := s.executors(ctx, executors, store)
	if err != nil {
		return span{}, err
	}
	var began time.Time
	var requests int64
	var cpu time.Duration
	for feeds > 0 || began.IsZero() {
		answer, ok := <-changes
		if !ok || answer.Err() != nil {
			return span{}, errors.Join(context.Cause(ctx), answer.Err())
		}
		for _, ev := range answer.Events {
			_, g, err := s.keys.ParseTurn(string(ev.Kv.Key))
			switch {
			case err != nil:
				return span{}, err
			case ev.Type == clientv3.EventTypePut && began.IsZero():
				began, requests, cpu = time.Now(), store.requests.Load(), cpuTime()
			case ev.Type == clientv3.EventTypeDelete && g < len(fed) && feeds > 0:
				fed[g], feeds = fed[g]+1, feeds-1
				feeders.Go(func() error {
					turns[g].Lock() // a shard has one writer at a time
					defer turns[g].Unlock()
					return s.seal(ctx, name, shards[g], scalingHotGenerations, 500)
				})
			}
		}
	}
	if err := feeders.Wait(); err != nil {
		return span{}, err
	}
	if err := s.merged(ctx, name, shards, fed); err != nil {
		return span{}, err
	}
	did := span{time.Since(began), store.requests.Load() - requests, cpuTime() - cpu}
	return did, stop()
}

// merged waits until all that was fed is in the table.
func (s *scaler) merged(ctx context.Context, name string, shards []string, fed []int) error {
	tables := table.NewCache(s.store, table.Deps{Clock: s.clock, Random: s.random}, 64<<20)
	for {
		t, err := tables.Load(ctx, name)
		if err != nil {
			return err
		}
		left := 0
		for g, shard := range shards {
			left += fed[g]*scalingHotGenerations - int(t.Mark(shard))
		}
		if left == 0 {
			return nil
		}
		if err := clock.Sleep(ctx, s.clock, 5*time.Millisecond); err != nil {
			return fmt.Errorf("%d generations are not merged: %w", left, err)
		}
	}
}

// shardsOfAllGroups are names of shards, one for each group of a table.
func shardsOfAllGroups() []string {
	names := make([]string, etcd.Groups)
	for i, left := 0, len(names); left > 0; i++ {
		name := fmt.Sprintf("s%d", i)
		if g := etcd.GroupOf(name); names[g] == "" {
			names[g] = name
			left--
		}
	}
	return names
}
