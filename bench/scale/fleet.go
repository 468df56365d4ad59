package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/master"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
)

const (
	idleFor = 20 * time.Second
	warmUp  = 30 * time.Second
	sealers = 16
	// phases is in how many rounds of seals, two a table and round, a table comes from merged to due by default.
	phases   = 4
	consumer = 4 // pullers of the steady state
	// mergeTakes is how long their merges last, as small ones do.
	mergeTakes = 20 * time.Millisecond
)

// fleet measures one master that owns everything: taking over, idling with its scans, and the steady state.
func fleet(ctx context.Context, b *bench) error {
	s, err := startEtcd(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	m, err := startChild(ctx, s.address, b)
	if err != nil {
		return err
	}
	defer m.kill()
	size := fmt.Sprintf("%d tables, %d shards", b.tables, b.shards())
	first, err := m.hear()
	if err != nil {
		return err
	}
	figure("takeover: from storage alone, etcd empty, "+size, takeover(first), "< 60 s")
	second, err := m.hear()
	if err != nil {
		return err
	}
	figure("takeover: from etcd, "+size, takeover(second), "< 2 s")
	figure("takeover: heap of the master", memory(second.HeapBytes, b.shards()), "")

	before, err := cpuOf(m.pid())
	if err != nil {
		return err
	}
	if err := clock.System().Sleep(ctx, idleFor); err != nil {
		return err
	}
	after, err := cpuOf(m.pid())
	if err != nil {
		return err
	}
	figure("idle: CPU of the master, first scans of all tables spread over 300 s", cores(after-before, idleFor), "")
	if err := b.steadyState(ctx, s, m); err != nil {
		return err
	}
	last, err := m.end()
	if err != nil {
		return err
	}
	figure("both: largest response of etcd to the master", fmt.Sprintf("%d kB", last.ResponseBytes/1000), "≤ 1 MiB")
	figure("both: largest txn of the master", fmt.Sprintf("%.1f kB", float64(last.TxnBytes)/1000), "≤ 768 KiB")
	figure("steady: heap of the master at the end", memory(last.HeapBytes, b.shards()), "")
	figure("steady: passes of the planner", fmt.Sprintf("%.0f, %.2f ms each", last.Passes, 1000*last.PassSeconds/last.Passes), "")
	return nil
}

func takeover(r report) string {
	return fmt.Sprintf("%.2f s, %.2f s of CPU", r.TakeoverSeconds, r.CPUSeconds)
}

func memory(bytes int64, shards int) string {
	return fmt.Sprintf("%.1f MB, %d B/shard", float64(bytes)/1e6, bytes/int64(shards))
}

func cores(cpu, wall time.Duration) string {
	return fmt.Sprintf("%.3f cores", cpu.Seconds()/wall.Seconds())
}

// steadyState seals on random shards at a steady rate, with executors that merge nothing but say so.
func (b *bench) steadyState(ctx context.Context, s *server, m *child) error {
	if err := m.tell("hush"); err != nil {
		return err
	}
	client, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	w, err := readWriters(ctx, client)
	if err != nil {
		return err
	}
	if err := w.spread(ctx, demand.NewPublisher(client, keys, etcd.DefaultSlots, clock.System(), random.New())); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	t := newTally()
	for i := range consumer {
		own, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer own.Close()
		p, err := newPuller(own, fmt.Sprint("x-", i), 4, demand.NewPublisher(own, keys, etcd.DefaultSlots, clock.System(), random.New()), t)
		if err != nil {
			return err
		}
		p.merge = w.merge
		g.Go(func() error { return p.run(running) })
	}
	for i := range sealers {
		own, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer own.Close()
		p := demand.NewPublisher(own, keys, etcd.DefaultSlots, clock.System(), random.New())
		g.Go(func() error { return w.seal(running, p, i, float64(b.seals)/sealers) })
	}
	if err := clock.System().Sleep(ctx, warmUp); err != nil {
		return err
	}
	begin, err := sample(s, m, w, t)
	if err != nil {
		return err
	}
	fmt.Printf("    (load %s)\n", load())
	if err := clock.System().Sleep(ctx, b.steady); err != nil {
		return err
	}
	end, err := sample(s, m, w, t)
	if err != nil {
		return err
	}
	stop()
	if err := g.Wait(); err != nil {
		return err
	}
	wall := end.at.Sub(begin.at)
	seals, merged := float64(end.seals-begin.seals), float64(end.merged-begin.merged)
	ops := end.ops.minus(begin.ops)
	figure("steady: seals published, and generations merged, per second", fmt.Sprintf("%.0f, %.0f", seals/wall.Seconds(), merged/wall.Seconds()), fmt.Sprint(b.seals))
	figure("steady: CPU of the master", cores(end.cpu-begin.cpu, wall), "< 0.25 cores")
	figure("steady: generations per execution", fmt.Sprintf("%.1f", merged/float64(end.claims-begin.claims)), "")
	figure("steady: etcd puts per seal, all in until merged", fmt.Sprintf("%.2f", ops.puts/seals), "≤ 2.2")
	figure("steady: etcd deletes per seal", fmt.Sprintf("%.2f", ops.deletes/seals), "")
	figure("steady: raft proposals per seal", fmt.Sprintf("%.2f", ops.proposals/seals), "")
	figure("steady: conflicts per claim, marks dropped", fmt.Sprintf("%.2f, %d", float64(end.conflicts-begin.conflicts)/float64(end.claims-begin.claims),
		t.dropped.Load()), "")
	return nil
}

// state is everything that is counted, at one moment.
type state struct {
	at                               time.Time
	cpu                              time.Duration
	ops                              operations
	seals, merged, claims, conflicts int64
}

func sample(s *server, m *child, w *writers, t *tally) (state, error) {
	cpu, err := cpuOf(m.pid())
	if err != nil {
		return state{}, err
	}
	ops, err := s.operations()
	return state{at: time.Now(), cpu: cpu, ops: ops, seals: w.seals.Load(), merged: w.merged.Load(),
		claims: t.claims.Load(), conflicts: t.conflicts.Load()}, err
}

// writers are all writers of the fleet: one generation counter per shard.
type writers struct {
	seals, merged atomic.Int64
	tables        map[string][]*shard
	shards        []*shard
}

type shard struct {
	table, id, name string

	mu             sync.Mutex // guards the following
	sealed, merged uint64
}

// readWriters starts from what stands in etcd.
func readWriters(ctx context.Context, client *clientv3.Client) (*writers, error) {
	w := &writers{tables: map[string][]*shard{}}
	ids := map[string]string{}
	if _, err := etcd.ReadPages(ctx, client, keys.Prefix+"/tables/", func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			_, name, err := keys.ParseTable(string(kv.Key))
			if err != nil {
				return err
			}
			var r master.TableRecord
			if err := json.Unmarshal(kv.Value, &r); err != nil {
				return err
			}
			ids[name] = r.TableID
		}
		return nil
	}); err != nil {
		return nil, err
	}
	_, err := etcd.ReadPages(ctx, client, keys.Prefix+"/demand/", func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			_, name, shardName, err := keys.ParseDemand(string(kv.Key))
			if err != nil {
				return err
			}
			s := &shard{table: name, id: ids[name], name: shardName, sealed: 1}
			w.tables[name] = append(w.tables[name], s)
			w.shards = append(w.shards, s)
		}
		return nil
	})
	return w, err
}

// spread makes a quarter of all tables due in every round of seals; otherwise all would be due in the same one. A table
// has two generations pending at first, and gets two a round: one quarter goes on as it is, two begin with more, and one
// is due at once.
func (w *writers) spread(ctx context.Context, p *demand.Publisher) error {
	for i, name := range slices.Sorted(maps.Keys(w.tables)) {
		s := w.tables[name][0]
		s.sealed += 2 * uint64(i%phases)
		if i%phases == phases-1 {
			if err := w.publish(ctx, p, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// publish seals the next generation of a shard.
func (w *writers) publish(ctx context.Context, p *demand.Publisher, s *shard) error {
	s.mu.Lock()
	s.sealed++
	gen := s.sealed
	s.mu.Unlock()
	_, err := p.PublishSealed(ctx, demand.SealedEvent{Table: s.table, TableID: s.id, Incarnation: 1, Shard: s.name,
		Sealed: mark(gen), SealedMS: time.Now().UnixMilli()})
	return err
}

func mark(gen uint64) demand.Mark {
	return demand.Mark{Gen: gen, Epoch: 1, Bytes: int64(gen) << 20, Rows: int64(gen) * 100}
}

// seal publishes seals of this sealer's shards, each in its turn, at a steady rate until ctx is done. What it cannot keep up with
// is left out, and seen in the rate.
func (w *writers) seal(ctx context.Context, p *demand.Publisher, which int, perSecond float64) error {
	begin := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		due := begin.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
		if time.Since(due) > time.Second {
			begin = begin.Add(time.Since(due)) // too slow: the missed ones are not caught up with
		}
		if clock.System().Sleep(ctx, time.Until(due)) != nil {
			return nil
		}
		if err := w.publish(ctx, p, w.shards[(i*sealers+which)%len(w.shards)]); err != nil && ctx.Err() == nil {
			return err
		}
		w.seals.Add(1)
	}
	return nil
}

// merge has merged whatever is sealed on the shards of a unit.
func (w *writers) merge(turn ownership.Turn) []demand.ShardEvent {
	time.Sleep(mergeTakes)
	var marks []demand.ShardEvent
	for _, s := range w.tables[turn.Table] {
		if !turn.Turns.Has(etcd.GroupOf(s.name)) {
			continue
		}
		s.mu.Lock()
		gens := s.sealed - s.merged
		s.merged = s.sealed
		m := mark(s.merged)
		s.mu.Unlock()
		if gens == 0 {
			continue
		}
		w.merged.Add(int64(gens))
		marks = append(marks, demand.ShardEvent{Table: s.table, Shard: s.name, Event: demand.Event{
			TableID: s.id, Incarnation: 1, Source: demand.Executor, AtMS: time.Now().UnixMilli(), Merged: &m,
		}})
	}
	return marks
}

// child is the process of the master.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Scanner
}

func startChild(ctx context.Context, endpoint string, b *bench) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, "--role", endpoint, "--tables", fmt.Sprint(b.tables), "--profiles", b.profiles)}
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.stdout = bufio.NewScanner(stdout)
	return c, c.cmd.Start()
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	_ = c.cmd.Wait()
}

// hear is the next report.
func (c *child) hear() (r report, err error) {
	if !c.stdout.Scan() {
		return r, fmt.Errorf("the master's process says nothing more: %w", errorsOr(c.stdout.Err(), io.EOF))
	}
	err = json.Unmarshal(c.stdout.Bytes(), &r)
	return r, err
}

func (c *child) tell(line string) error {
	_, err := fmt.Fprintln(c.stdin, line)
	return err
}

// end ends the input, and with it the process, and hears its last report.
func (c *child) end() (report, error) {
	if err := c.stdin.Close(); err != nil {
		return report{}, err
	}
	return c.hear()
}
