package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// An append and an upsert table are loaded again and again while processes are killed at random moments; afterwards both
// tables must be what the same loads without kills give, read by both readers.

// crashLoad is a load whose result is known whatever happens in between.
type crashLoad struct {
	*fleet
	source string // 20,000 rows, ids 0 to 19,999, of a few hundred keys
	rounds int
}

func startCrashLoad(t *testing.T) *crashLoad {
	l := &crashLoad{fleet: startFleet(t), source: filepath.Join(t.TempDir(), "rows.parquet")}
	sql(t, fmt.Sprintf(`copy (select i::bigint as id, (i * 7919 %% 613)::bigint as k, 'row ' || i as v
		from range(20000) r(i)) to '%s'`, l.source))
	must(t, l.env, "table", "create", "log", "--like", l.source)
	must(t, l.env, "table", "create", "state", "--like", l.source, "--key", "k", "--buckets", "4")
	return l
}

// round loads the file once into both tables.
func (l *crashLoad) round() {
	l.rounds++
	must(l.t, l.env, "ingest", "log", l.source, "--shards", "4", "--rows-per-generation", "500")
	must(l.t, l.env, "ingest", "state", l.source, "--rows-per-generation", "500")
}

// check waits for everything to be merged and reads both tables.
func (l *crashLoad) check() {
	for _, table := range []string{"log", "state"} {
		must(l.t, l.env, "wait", table, "--timeout", "2m")
		generations(l.t, l.env, table)
	}
	readBoth(l.t, filepath.Join(l.root, "log"),
		`select count(*) n, count(distinct id) ids, (select max(c) from (select count(*) c from t group by id)) most,
		(select min(c) from (select count(*) c from t group by id)) least from t`,
		map[string]any{"n": 20000 * l.rounds, "ids": 20000, "most": l.rounds, "least": l.rounds})
	// The newest row of each key is the last of the file with it.
	readBoth(l.t, filepath.Join(l.root, "state"),
		`select count(*) n, count(distinct k) keys, sum(id)::bigint ids from t`,
		map[string]any{"n": 613, "keys": 613, "ids": lastIDs()})
}

// lastIDs sums the ids that win in the upsert table: for each key the greatest.
func lastIDs() int {
	last := map[int]int{}
	for i := range 20000 {
		last[i*7919%613] = i
	}
	sum := 0
	for _, id := range last {
		sum += id
	}
	return sum
}

// loadWhile runs rounds in the background until stopped; the function it returns stops and waits.
func (l *crashLoad) loadWhile() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil && !l.t.Failed() {
			l.round()
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func TestExecutorKilledAtFiftyRandomMomentsLeavesTheSameRows(t *testing.T) {
	l := startCrashLoad(t)
	l.master("master-1")
	random := rand.New(rand.NewPCG(1, 2))
	stop := l.loadWhile()
	for i := range 50 {
		executor := l.executor(fmt.Sprintf("executor-%d", i))
		// A random moment of the executor's life, on both sides of the two seconds for which its predecessor's turns stand.
		time.Sleep(time.Duration(random.IntN(3500)) * time.Millisecond)
		executor.kill()
	}
	stop()
	l.executor("executor-last")
	l.check()
	t.Logf("%d rounds of 2 × 20,000 rows under 50 kills", l.rounds)
}

func TestMasterKilledTenTimesLeavesTheSameRows(t *testing.T) {
	l := startCrashLoad(t)
	l.executor("executor-1")
	random := rand.New(rand.NewPCG(3, 4))
	stop := l.loadWhile()
	for i := range 10 {
		master := l.master(fmt.Sprintf("master-%d", i))
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
		master.kill()
	}
	stop()
	l.master("master-last")
	l.check()
	t.Logf("%d rounds of 2 × 20,000 rows under 10 kills", l.rounds)
}

func TestEveryKeyInEtcdDeletedInTheMiddleLosesAndRepeatsNothing(t *testing.T) {
	l := startCrashLoad(t)
	l.master("master-1")
	l.executor("executor-1")
	l.executor("executor-2")
	l.round()
	l.round()
	client := l.server.Client(t)
	if _, err := client.Delete(t.Context(), "\x00", clientv3.WithFromKey()); err != nil {
		t.Fatal(err)
	}
	l.round()
	l.check()
	type record struct {
		Table, Shard   string
		Sealed, Merged *struct{ Generation uint64 }
	}
	records := decode[[]record](t, must(t, l.env, "demand", "--json"))
	if len(records) != 8 {
		t.Errorf("%d demand records are back, want those of 8 shards", len(records))
	}
	for _, r := range records {
		if r.Merged == nil || r.Sealed == nil || r.Merged.Generation != r.Sealed.Generation {
			t.Errorf("the marks of %s of %s are not back: %+v", r.Shard, r.Table, r)
		}
	}
}

func TestSIGTERMDrainsAndEndsWithStatusZero(t *testing.T) {
	l := startCrashLoad(t)
	master, executor := l.master("master-1"), l.executor("executor-1")
	l.round()
	if status := executor.stop(t); status != 0 {
		t.Errorf("the executor ended with status %d", status)
	}
	if status := master.stop(t); status != 0 {
		t.Errorf("the master ended with status %d", status)
	}
	l.master("master-2")
	l.executor("executor-2")
	l.check()
}
