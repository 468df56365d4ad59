package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/test/etcd/etcdtest"
	"tidemark/test/s3/s3test"
)

// Chaos on real processes: three etcd members, an S3 server, two masters, three executors and four writers, all
// processes, under a schedule of kills, stops, cuts, delays, a full etcd and rolling restarts. Afterwards every
// acknowledged row is there once, read by both readers over S3.

const (
	chaosMasters, chaosExecutors, chaosWriters = 2, 3, 4
	// chaosLease is short, so that a stop of 20 s outlasts it several times.
	chaosLease = 3 * time.Second
	chaosStop  = 20 * time.Second
	// etcd's quota: the test fills it up within a second.
	chaosQuota = 64 << 20
	// chaosDefault is how long the schedule lasts unless TIDEMARK_CHAOS says otherwise, such as 15m.
	chaosDefault = 2 * time.Minute
)

// chaos is the rig.
type chaos struct {
	t       *testing.T
	random  *rand.Rand
	bucket  *bucket
	proxy   *s3test.Proxy
	etcd    *etcdtest.Cluster
	env     []string
	acks    string // folder of the writers' acknowledgements
	writer  string // binary
	servers []*server
	lives   []int // of the writers
	started time.Time
	steps   map[string]int
}

// server is a process that is started again whenever it ends.
type server struct {
	*process
	name  string
	start func() *process
}

func startChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{t: t, random: rand.New(rand.NewPCG(seed, 1)), bucket: startBucket(t), acks: t.TempDir(), lives: make([]int, chaosWriters), steps: map[string]int{}}
	c.proxy = s3test.NewProxy(t, c.bucket.Server)
	c.etcd = etcdtest.NewCluster(t, 3, chaosQuota)
	c.env = append(s3Env(c.proxy.Endpoint), "TIDEMARK_ROOT="+c.bucket.root, "TIDEMARK_ETCD="+strings.Join(c.etcd.Endpoints(), ","),
		"TIDEMARK_LEASE_TTL="+chaosLease.String(), "TIDEMARK_LOG_LEVEL=warn")
	c.writer = filepath.Join(t.TempDir(), "chaoswriter")
	if out, err := exec.Command("go", "build", "-o", c.writer, "./cmd/chaoswriter").CombinedOutput(); err != nil {
		t.Fatalf("building the writer: %v\n%s", err, out)
	}
	schemas := t.TempDir()
	for name, query := range map[string]string{"events": "select 1::bigint as number, 'x' as note", "states": "select 1::bigint as key, 1::bigint as number"} {
		sql(t, fmt.Sprintf("copy (%s) to '%s/%s.parquet'", query, schemas, name))
	}
	must(t, c.env, "table", "create", "events", "--like", filepath.Join(schemas, "events.parquet"))
	must(t, c.env, "table", "create", "states", "--like", filepath.Join(schemas, "states.parquet"), "--key", "key", "--sequence", "number", "--buckets", strconv.Itoa(chaosWriters))
	for i := range chaosMasters {
		c.add(fmt.Sprintf("master-%d", i), func() *process {
			return start(t, c.env, "tidemark-master", "--id", fmt.Sprintf("master-%d", i), "--listen", "127.0.0.1:0")
		})
	}
	for i := range chaosExecutors {
		c.add(fmt.Sprintf("executor-%d", i), func() *process {
			return start(t, c.env, "tidemark-executor", "--id", fmt.Sprintf("executor-%d", i), "--listen", "127.0.0.1:0")
		})
	}
	for i := range chaosWriters {
		c.add(fmt.Sprintf("writer-%d", i), func() *process {
			c.lives[i]++
			return start(t, nil, c.writer, "-root", c.bucket.root, "-s3-endpoint", c.proxy.Endpoint, "-etcd", strings.Join(c.etcd.Endpoints(), ","),
				"-writer", strconv.Itoa(i), "-life", strconv.Itoa(c.lives[i]), "-acks", filepath.Join(c.acks, fmt.Sprint(i)))
		})
	}
	c.started = time.Now()
	return c
}

func (c *chaos) add(name string, start func() *process) {
	c.servers = append(c.servers, &server{process: start(), name: name, start: start})
}

// ofKind is a random server whose name begins so.
func (c *chaos) ofKind(kind string) *server {
	var all []*server
	for _, s := range c.servers {
		if strings.HasPrefix(s.name, kind) {
			all = append(all, s)
		}
	}
	return all[c.random.IntN(len(all))]
}

// revive starts again whatever has ended by itself: a process that was fenced for good, or could not start.
func (c *chaos) revive() {
	for _, s := range c.servers {
		select {
		case <-s.exited:
			s.process = s.start()
		default:
		}
	}
}

// between is a random duration.
func (c *chaos) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.random.Int64N(int64(high-low)))
}

// step is one thing that happens to the fleet. It is undone when it returns.
type step struct {
	name   string
	weight int
	run    func(c *chaos)
}

func killStep(kind string) func(*chaos) {
	return func(c *chaos) {
		s := c.ofKind(kind)
		s.kill()
		time.Sleep(c.between(0, 2*time.Second))
		s.process = s.start()
	}
}

var chaosSteps = []step{
	{"kill an executor", 6, killStep("executor")},
	{"kill a master", 3, killStep("master")},
	{"kill a writer", 3, killStep("writer")},
	{"stop a process past its lease", 2, func(c *chaos) {
		s := c.ofKind([]string{"executor", "master", "writer"}[c.random.IntN(3)])
		_ = s.cmd.Process.Signal(syscall.SIGSTOP) // it may just have ended by itself
		time.Sleep(chaosStop)
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
	}},
	{"cut etcd off: requests", 2, func(c *chaos) { c.etcd.CutRequests(); c.pause(); c.etcd.Mend() }},
	{"cut etcd off: answers", 2, func(c *chaos) { c.etcd.CutAnswers(); c.pause(); c.etcd.Mend() }},
	{"cut etcd's leader off from its peers", 2, func(c *chaos) { c.etcd.Isolate(c.etcd.Leader(c.t)); c.pause(); c.etcd.Mend() }},
	{"slow etcd", 1, func(c *chaos) { c.etcd.Delay(200 * time.Millisecond); c.pause(); c.etcd.Mend() }},
	{"reset etcd's connections", 1, func(c *chaos) { c.etcd.Reset() }},
	{"kill an etcd member", 2, func(c *chaos) { c.etcd.Kill(c.random.IntN(3)); c.pause(); c.etcd.Restart(c.t) }},
	{"the store's answers are lost", 3, func(c *chaos) { c.spoil(s3test.LoseAnswer) }},
	{"the store's requests are lost", 2, func(c *chaos) { c.spoil(s3test.LoseRequest) }},
	{"the store asks for fewer requests", 2, func(c *chaos) { c.spoil(s3test.Answer(http.StatusServiceUnavailable, "SlowDown")) }},
	{"the store hangs", 1, func(c *chaos) { c.spoil(s3test.Hang) }},
	{"etcd is full", 1, (*chaos).fillEtcd},
	{"rolling restart with drain", 1, (*chaos).roll},
}

func (c *chaos) pause() { time.Sleep(c.between(500*time.Millisecond, 5*time.Second)) }

// spoil does something to every third request to the store for a while.
func (c *chaos) spoil(action s3test.Action) {
	n := 0
	c.proxy.Rule(func(*http.Request) s3test.Action {
		if n++; n%3 == 0 {
			return action
		}
		return nil
	})
	c.pause()
	c.proxy.Rule(nil)
}

// fillEtcd fills etcd past its quota, waits, and makes room again.
func (c *chaos) fillEtcd() {
	admin := c.etcd.Admin()
	ctx := c.t.Context()
	for i := range 1000 {
		_, err := admin.Put(ctx, fmt.Sprint("/ballast/", i), strings.Repeat("x", 1<<20))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			break
		}
		if err != nil {
			c.t.Errorf("filling etcd: %v", err)
			break
		}
	}
	c.pause()
	if _, err := admin.Delete(ctx, "/ballast/", clientv3.WithPrefix()); err != nil {
		c.t.Errorf("making room in etcd: %v", err)
	}
	c.etcd.Compact(c.t)
	c.etcd.Defragment(c.t)
	alarms, err := admin.AlarmList(ctx)
	if err != nil {
		c.t.Fatalf("asking for etcd's alarms: %v", err)
	}
	for _, alarm := range alarms.Alarms {
		if _, err := admin.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
			c.t.Errorf("disarming etcd's alarm: %v", err)
		}
	}
}

// roll restarts every master and executor in turn, each with a drain and when it is well, as whoever operates it does.
func (c *chaos) roll() {
	for _, s := range c.servers {
		if strings.HasPrefix(s.name, "writer") {
			continue
		}
		eventually(c.t, s.name+" is ready", func() bool {
			c.revive() // an earlier step may have kept it from starting, or made it give up: that one has nothing to drain
			return s.ready()
		})
		if status := s.stop(c.t); status != 0 {
			c.t.Errorf("%s drained with status %d", s.name, status)
		}
		s.process = s.start()
	}
}

// run carries the schedule out for a time; every step happens at least once if there is time for it.
func (c *chaos) run(until time.Duration) {
	var bag []step
	for _, s := range chaosSteps {
		for range s.weight {
			bag = append(bag, s)
		}
	}
	order := c.random.Perm(len(chaosSteps))
	for i := 0; time.Since(c.started) < until; i++ {
		s := bag[c.random.IntN(len(bag))]
		if i < len(order) {
			s = chaosSteps[order[i]]
		}
		c.t.Logf("%6.1fs %s", time.Since(c.started).Seconds(), s.name)
		c.steps[s.name]++
		s.run(c)
		c.revive()
		time.Sleep(c.between(0, 2*time.Second))
	}
}

// settle lets everything be well and waits until all that is sealed is merged.
func (c *chaos) settle() {
	c.proxy.Rule(nil)
	c.etcd.Mend()
	c.etcd.Ready(c.t)
	for _, s := range c.servers {
		if strings.HasPrefix(s.name, "writer") {
			s.kill()
		}
	}
	c.revive()
	for _, s := range c.servers { // the writers that revive has started have nothing to say any more
		if strings.HasPrefix(s.name, "writer") {
			s.kill()
		}
	}
	for _, table := range []string{"events", "states"} {
		must(c.t, c.env, "wait", table, "--timeout", "3m")
		generations(c.t, c.env, table)
	}
}

// state is the newest acknowledged version of a key.
type state struct {
	number  int64
	deleted bool
	// mayBeGone: a later delete was sent, so the key may be gone although nobody acknowledged that.
	mayBeGone bool
}

// acknowledged reads what the writers noted: the ids of events, and the newest version of each key.
func (c *chaos) acknowledged() (events []int64, states map[int64]state) {
	states = map[int64]state{}
	intents := map[int64]int64{}
	for i := range chaosWriters {
		file, err := os.Open(filepath.Join(c.acks, fmt.Sprint(i)))
		if err != nil {
			c.t.Fatalf("writer %d never sealed anything: %v", i, err)
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var from, to, key, number int64
			var op string
			if n, _ := fmt.Sscanf(lines.Text(), "events %d %d", &from, &to); n == 2 {
				for ; from < to; from++ {
					events = append(events, from*chaosWriters+int64(i))
				}
			} else if n, _ := fmt.Sscanf(lines.Text(), "intent %d %d", &key, &number); n == 2 {
				intents[key] = max(intents[key], number)
			} else if n, _ := fmt.Sscanf(lines.Text(), "states %d %d %s", &key, &number, &op); n == 3 && number > states[key].number {
				states[key] = state{number: number, deleted: op == "d"}
			}
		}
		file.Close()
	}
	for key, s := range states {
		s.mayBeGone = intents[key] > s.number
		states[key] = s
	}
	return events, states
}

// check compares both tables with what was acknowledged.
func (c *chaos) check() {
	events, states := c.acknowledged()
	var e, s strings.Builder
	e.WriteString("id\n")
	for _, id := range events {
		fmt.Fprintln(&e, id)
	}
	s.WriteString("key,number,deleted,may_be_gone\n")
	for key, v := range states {
		fmt.Fprintf(&s, "%d,%d,%t,%t\n", key, v.number, v.deleted, v.mayBeGone)
	}
	files := c.t.TempDir()
	for name, body := range map[string]string{"events.csv": e.String(), "states.csv": s.String()} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(body), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	// The note of an event is its writer and its number.
	readBoth(c.t, c.bucket.root+"/events", fmt.Sprintf(`with rows as (
			select cast(split_part(note, ' ', 2) as bigint) * %[2]d + cast(split_part(note, ' ', 1) as bigint) as id from t)
		select (select count(*) from (select id from rows group by id having count(*) > 1)) twice,
			(select count(*) from read_csv('%[1]s/events.csv') a anti join rows on rows.id = a.id) missing`,
		files, chaosWriters), map[string]any{"twice": 0, "missing": 0})
	// A key shows its newest acknowledged version, or a newer one that was sealed without an acknowledgement.
	readBoth(c.t, c.bucket.root+"/states", fmt.Sprintf(`with acknowledged as (
			select a.*, t.number as found from read_csv('%s/states.csv') a left join t on t.key = a.key)
		select (select count(*) from (select key from t group by key having count(*) > 1)) twice,
			(select count(*) from acknowledged where not deleted and (found < number or found is null and not may_be_gone)) older,
			(select count(*) from acknowledged where deleted and found <= number) undeleted`,
		files), map[string]any{"twice": 0, "older": 0, "undeleted": 0})
	c.t.Logf("%d events and the states of %d keys acknowledged over %d lives of the writers; steps: %v", len(events), len(states), sum(c.lives), c.steps)
}

func sum(all []int) (n int) {
	for _, one := range all {
		n += one
	}
	return n
}

func TestChaosLosesAndRepeatsNothing(t *testing.T) {
	until, seed := chaosDefault, uint64(time.Now().UnixNano())
	if text := os.Getenv("TIDEMARK_CHAOS"); text != "" {
		var err error
		if until, err = time.ParseDuration(text); err != nil {
			t.Fatalf("TIDEMARK_CHAOS: %v", err)
		}
	}
	if text := os.Getenv("TIDEMARK_CHAOS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("TIDEMARK_CHAOS_SEED: %v", err)
		}
	}
	t.Logf("TIDEMARK_CHAOS_SEED=%d chooses the same steps again", seed)
	c := startChaos(t, seed)
	c.run(until)
	c.drains()
	c.check()
}
