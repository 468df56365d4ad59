package e2e

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"tidemark/test/etcd/etcdtest"
	"tidemark/test/s3/s3test"
	"tidemark/writer"
)

// A root on a real S3 server. The readers read over S3 as well: delta-rs with its own client, DuckDB with its own.

// bucket is a fresh root on an S3 server.
type bucket struct {
	*s3test.Server
	t    *testing.T
	root string
}

func startBucket(t *testing.T) *bucket {
	t.Helper()
	server := s3test.Start(t)
	// For the readers; Tidemark is told by its own variables.
	t.Setenv("AWS_ENDPOINT_URL", server.Endpoint)
	t.Setenv("AWS_ALLOW_HTTP", "true")
	return &bucket{Server: server, t: t, root: server.Root()}
}

func s3Env(endpoint string) []string {
	return []string{"TIDEMARK_S3_ENDPOINT=" + endpoint, "TIDEMARK_S3_PATH_STYLE=true"}
}

// environment makes commands work on the bucket's root.
func (b *bucket) environment() []string { return append(s3Env(b.Endpoint), "TIDEMARK_ROOT="+b.root) }

// shownRoot is what `root show --json` says, as far as the tests look at it.
type shownRoot struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

func (b *bucket) show() shownRoot {
	b.t.Helper()
	return decode[shownRoot](b.t, must(b.t, b.environment(), "root", "show", "--json"))
}

// standalone starts a server as if on a machine of its own: nothing on disk is shared with any other.
func (b *bucket) standalone(env []string, args ...string) *process {
	b.t.Helper()
	env = append(append(b.environment(), "TMPDIR="+b.t.TempDir()), env...)
	return start(b.t, env, "tidemark", append([]string{"standalone", "--listen", "127.0.0.1:0"}, args...)...)
}

// serving waits until a server has the root, and returns the URL of its HTTP server.
func (b *bucket) serving(p *process) string {
	b.t.Helper()
	var url string
	eventually(b.t, "the server says that it serves the root", func() bool {
		_, after, found := strings.Cut(p.output.String(), "state on http://")
		address, _, whole := strings.Cut(after, "/status")
		url = "http://" + address
		return found && whole
	})
	return url
}

func TestFlightsOnS3AppendedInThreeHundredGenerations(t *testing.T) {
	flights := input(t, "flights-3m.parquet")
	b := startBucket(t)
	url := b.serving(b.standalone(nil))
	env := b.environment()
	must(t, env, "table", "create", "flights", "--like", flights)
	before := s3Requests(t, url)
	must(t, env, "ingest", "flights", flights, "--shards", "4", "--rows-per-generation", "10000")
	must(t, env, "wait", "flights", "--timeout", "5m")
	sent := s3Requests(t, url).since(before)

	n := generations(t, env, "flights")
	if n != 300 {
		t.Errorf("%d generations, want 300", n)
	}
	t.Logf("requests to S3 for %d generations, by the server (master, executors, lease): %v; %.2f per generation", n, sent, float64(sent.total())/float64(n))
	table := b.root + "/flights"
	readBoth(t, table, `select count(*) n, sum(delay) delay, sum(distance) distance, any_value(typeof(date)) kind from t`,
		map[string]any{"n": 3000000, "delay": 20003603, "distance": 2194861208, "kind": "TIMESTAMP"})
	readBoth(t, table, fmt.Sprintf(`select
		(select count(*) from (select * from t except all select * from '%[1]s')) extra,
		(select count(*) from (select * from '%[1]s' except all select * from t)) missing`, flights),
		map[string]any{"extra": 0, "missing": 0})
	if rows := strings.Count(must(t, env, "cat", "flights", "--columns", "origin,delay", "--limit", "7"), "\n"); rows != 8 {
		t.Errorf("cat --limit 7 printed %d lines, want a header and 7 rows", rows)
	}
}

func TestFlightsOnS3UpsertedKeepTheNewestOfEachRoute(t *testing.T) {
	flights := input(t, "flights-3m.parquet")
	b := startBucket(t)
	b.serving(b.standalone(nil))
	env := b.environment()
	must(t, env, "table", "create", "routes", "--like", flights, "--key", "origin,destination", "--buckets", "8", "--sequence", "date")
	must(t, env, "ingest", "routes", flights, "--rows-per-generation", "10000")
	must(t, env, "wait", "routes", "--timeout", "5m")
	readBoth(t, b.root+"/routes", `select count(*) n, sum(delay) delay, count(distinct origin || '-' || destination) keys from t`,
		map[string]any{"n": 3399, "delay": 78374, "keys": 3399})
}

// Partition values whose folders need escaping, nulls and dates on a real S3 server: keys that the store, delta-rs and DuckDB
// have to agree on.
func TestAPartitionedTableOnS3IsReadByOthersAsItWasWritten(t *testing.T) {
	b := startBucket(t)
	b.serving(b.standalone(nil))
	env := b.environment()
	// Two files, so that merges meet partitions that are there already.
	file := filepath.Join(t.TempDir(), "rows.parquet")
	names := "'a b', '100%', 'a/b', 'k=v', 'a:b', 'Köln', '日本', 'a+b', 'a#b', 'a?b', 'a&b', 'a\\b', 'a\"b', '..', '%20', ' ', 'null', " +
		"'__HIVE_DEFAULT_PARTITION__', e'a\\nb', '{x}[y]', '~a^b|c`d', 'a''b', 'a,b;c', null, ''"
	rows := func(first int) string {
		return fmt.Sprintf(`select %d + row_number() over () as id, n as name, unnest([date '1969-12-31', date '2024-02-29', date '0001-01-01', null]) as day
			from (select unnest([%s]) as n)`, first, names)
	}
	for first := range 2 {
		sql(t, fmt.Sprintf("copy (%s) to '%s'", rows(1000*first), file))
		if first == 0 {
			must(t, env, "table", "create", "places", "--like", file, "--partition-by", "name,day")
		}
		must(t, env, "ingest", "places", file, "--rows-per-generation", "40")
		must(t, env, "wait", "places")
	}
	// An empty value of a partition is null.
	written := fmt.Sprintf("(select id, nullif(name, '') as name, day from (%s union all %s))", rows(0), rows(1000))
	readBoth(t, b.root+"/places", fmt.Sprintf(`select count(*) n, count(distinct name) as names, count(*) filter (where day is null) as dayless,
		count(*) filter (where name is null) as nameless,
		(select count(*) from (select id, name, day from t except all select * from %[1]s)) as extra,
		(select count(*) from (select * from %[1]s except all select id, name, day from t)) as missing from t`, written),
		map[string]any{"n": 200, "names": 23, "dayless": 50, "nameless": 16, "extra": 0, "missing": 0})
	// Choosing partitions must find the files of their values.
	readBoth(t, b.root+"/places", `select count(*) n from t where name in ('100%', 'a/b', '%20', 'a+b') and day = date '2024-02-29'`, map[string]any{"n": 8})
	if lines := strings.Count(must(t, env, "cat", "places", "--format", "jsonl"), "\n"); lines != 200 {
		t.Errorf("cat prints %d rows, want 200", lines)
	}
}

func TestAStandaloneServerKilledInTheMiddleOfAMergeIsContinuedOnAnotherMachine(t *testing.T) {
	b := startBucket(t)
	env := b.environment()
	source := filepath.Join(t.TempDir(), "rows.parquet")
	sql(t, fmt.Sprintf(`copy (select i::bigint as id, (i * 7919 %% 613)::bigint as k, 'row ' || i as v from range(20000) r(i)) to '%s'`, source))
	must(t, env, "table", "create", "log", "--like", source)
	must(t, env, "table", "create", "state", "--like", source, "--key", "k", "--buckets", "4")

	moments := []moment{
		{name: "a data file is being uploaded", path: "/part-"},
		{name: "the commit was sent and never arrives", path: "/_delta_log/"},
		{name: "the commit arrives after the server has died", path: "/_delta_log/", late: true},
		{name: "a data file is uploaded after the server has died", path: "/part-", late: true},
	}
	for _, m := range moments {
		proxy := s3test.NewProxy(t, b.Server)
		held, land := m.hold(proxy)
		server := b.standalone(s3Env(proxy.Endpoint), "--root-lease", "2s")
		b.serving(server)
		must(t, env, "ingest", "log", source, "--shards", "4", "--rows-per-generation", "500")
		must(t, env, "ingest", "state", source, "--rows-per-generation", "500")
		select {
		case <-held:
		case <-server.exited:
			t.Fatalf("%s: the server has ended by itself", m.name)
		case <-time.After(readyTimeout):
			t.Fatalf("waited in vain until %s", m.name)
		}
		server.kill()
		if status, err := land(); err != nil || m.late && status != http.StatusOK {
			t.Errorf("%s: it landed with status %d, %v", m.name, status, err)
		}
	}
	kills := len(moments)
	last := b.standalone(nil, "--root-lease", "2s")
	b.serving(last)
	for _, table := range []string{"log", "state"} {
		must(t, env, "wait", table, "--timeout", "2m")
		generations(t, env, table)
	}
	readBoth(t, b.root+"/log",
		`select count(*) n, count(distinct id) ids, (select max(c) from (select count(*) c from t group by id)) most,
		(select min(c) from (select count(*) c from t group by id)) least from t`,
		map[string]any{"n": 20000 * kills, "ids": 20000, "most": kills, "least": kills})
	readBoth(t, b.root+"/state", `select count(*) n, count(distinct k) keys, sum(id)::bigint ids from t`,
		map[string]any{"n": 613, "keys": 613, "ids": lastIDs()})

	if status := last.stop(t); status != 0 {
		t.Errorf("SIGTERM ended the server with status %d", status)
	}
	if r := b.show(); r.Kind != "released" {
		t.Errorf("a clean stop left the root held: %+v", r)
	}
	began := time.Now()
	b.serving(b.standalone(nil, "--root-lease", "600s"))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a released root was free only after %v", took)
	}
}

// moment is a moment in the middle of a merge.
type moment struct {
	name string
	path string // part of the path of the request that marks it
	late bool   // the request lands once the server is dead; else never
}

// hold lets no request of the kind through, from the first on. land carries that one out if it is to be late.
func (m moment) hold(proxy *s3test.Proxy) (held <-chan struct{}, land func() (int, error)) {
	first, land := proxy.Later()
	if !m.late {
		first, land = s3test.Hang, func() (int, error) { return 0, nil }
	}
	reached, once := make(chan struct{}), sync.Once{}
	proxy.Rule(func(r *http.Request) (action s3test.Action) {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, m.path) {
			return nil
		}
		action = s3test.Hang
		once.Do(func() {
			action = first
			close(reached)
		})
		return action
	})
	return reached, land
}

func TestAStoppedStandaloneServerLosesTheRootAndSendsNothingWhenItWakes(t *testing.T) {
	b := startBucket(t)
	proxy := s3test.NewProxy(t, b.Server)
	first := b.standalone(s3Env(proxy.Endpoint), "--root-lease", "2s")
	b.serving(first)
	lock := b.show()
	refused(t, append(b.environment(), "TIDEMARK_LOG_LEVEL=error"), 1, []string{lock.ID, "alive", "tidemark root unlock --root " + b.root + " --id " + lock.ID},
		"standalone", "--listen", "127.0.0.1:0")

	signal := func(s syscall.Signal) {
		if err := first.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	address := freeAddress(t)
	second := b.standalone(nil, "--root-lease", "2s", "--wait-for-root", "--listen", address)
	eventually(t, "the waiting server serves HTTP", func() bool {
		resp, err := http.Get("http://" + address + "/healthz")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	if status, body := fetch(t, "http://"+address+"/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("it says that it is ready while it waits: %d %s", status, body)
	}
	b.serving(second)
	if _, body := fetch(t, "http://"+address+"/status"); !strings.Contains(body, `"lease_left_ms"`) {
		t.Errorf("its status does not say how long it may serve:\n%s", body)
	}
	sent := len(proxy.Requests())
	signal(syscall.SIGCONT)
	<-first.exited
	if status := first.cmd.ProcessState.ExitCode(); status != 2 {
		t.Errorf("it ended with status %d, want 2:\n%s", status, first.output.String())
	}
	if late := proxy.Requests()[sent:]; len(late) > 0 {
		t.Errorf("it woke and sent %v", late)
	}
	if r := b.show(); r.Kind != "standalone" || r.ID == lock.ID {
		t.Errorf("it released what was not its own any more: %+v", r)
	}
}

func TestAStandaloneServerThatCannotReachTheStoreEndsWithStatusTwoAndReleasesNothing(t *testing.T) {
	b := startBucket(t)
	proxy := s3test.NewProxy(t, b.Server)
	server := b.standalone(s3Env(proxy.Endpoint), "--root-lease", "2s")
	b.serving(server)
	lock := b.show()
	proxy.Close()
	select {
	case <-server.exited:
	case <-time.After(readyTimeout):
		t.Fatal("it goes on without the store")
	}
	if status, out := server.cmd.ProcessState.ExitCode(), server.output.String(); status != 2 || !strings.Contains(out, "the claim on root "+b.root) {
		t.Errorf("it ended with status %d:\n%s", status, out)
	}
	if r := b.show(); r != lock {
		t.Errorf("the lock was %+v and is %+v", lock, r)
	}
}

// freeAddress is an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestAStoreThatIgnoresIfNoneMatchIsRefusedByTheNameOfTheGuarantee(t *testing.T) {
	b := startBucket(t)
	proxy := s3test.NewProxy(t, b.Server)
	proxy.Rule(func(r *http.Request) s3test.Action {
		if r.Header.Get("If-None-Match") != "" {
			return s3test.Strip("If-None-Match")
		}
		return nil
	})
	env := append(s3Env(proxy.Endpoint), "TIDEMARK_ROOT="+b.root, "TIDEMARK_LOG_LEVEL=error")
	for _, command := range []string{"standalone", "dev"} {
		refused(t, env, 1, []string{b.root, "put-if-absent"}, command, "--listen", "127.0.0.1:0")
	}
}

func TestAClusterOfAnotherNameIsRefusedUntilTheRootIsUnlockedByItsExactId(t *testing.T) {
	b := startBucket(t)
	etcd := etcdtest.New(t, etcdtest.Options{})
	master := func(cluster string) *process {
		return start(t, append(b.environment(), "TIDEMARK_ETCD=http://"+etcd.Address(), "TIDEMARK_CLUSTER="+cluster), "tidemark-master", "--listen", "127.0.0.1:0")
	}
	first := master("one")
	eventually(t, "the first cluster holds the root", func() bool { return b.show().Kind == "cluster" })
	lock := b.show()
	command := "tidemark root unlock --root " + b.root + " --id " + lock.ID
	second := master("two")
	<-second.exited
	if out := second.output.String(); second.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out, `"one"`) || !strings.Contains(out, command) {
		t.Errorf("the second cluster was not refused: %s", out)
	}
	refused(t, append(b.environment(), "TIDEMARK_LOG_LEVEL=error"), 1, []string{`"one"`, command}, "standalone", "--listen", "127.0.0.1:0")
	first.kill()
	refused(t, b.environment(), 1, []string{lock.ID}, "root", "unlock", "--id", lock.ID[:8])
	must(t, b.environment(), "root", "unlock", "--id", lock.ID)
	refused(t, b.environment(), 1, []string{"nobody"}, "root", "unlock", "--id", lock.ID)
	master("two")
	eventually(t, "the second cluster holds the root", func() bool { r := b.show(); return r.Kind == "cluster" && r.ID != lock.ID })
}

func TestWritersOnTheCommandLineNeverTakeARootOver(t *testing.T) {
	b := startBucket(t)
	env := b.environment()
	server := b.standalone(nil, "--root-lease", "2s")
	b.serving(server)
	server.kill()
	before := b.lockVersion()
	file := filepath.Join(t.TempDir(), "rows.csv")
	sql(t, fmt.Sprintf(`copy (select 1 as a) to '%s' (header)`, file))
	time.Sleep(4 * time.Second) // long enough for a server to take it over
	must(t, env, "table", "create", "t", "--like", file)
	must(t, env, "ingest", "t", file)
	must(t, env, "cat", "t", "--fresh")
	must(t, env, "table", "drop", "t", "--yes")
	if b.lockVersion() != before {
		t.Error("root.json has changed")
	}
}

func TestAGoProgramWritesToARootOnS3(t *testing.T) {
	b := startBucket(t)
	env := b.environment()
	file := filepath.Join(t.TempDir(), "rows.csv")
	sql(t, fmt.Sprintf(`copy (select 1 as a) to '%s' (header)`, file))
	must(t, env, "table", "create", "events", "--like", file)
	w, err := writer.Claim(t.Context(), writer.Config{
		Root: b.root, S3: writer.S3{Endpoint: b.Endpoint, PathStyle: true}, Table: "events", Shard: "program",
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer rows.Release()
	rows.Field(0).(*array.Int64Builder).AppendValues([]int64{10, 20, 30}, nil)
	record := rows.NewRecord()
	defer record.Release()
	if err := w.Append(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if sealed, err := w.Seal(t.Context()); err != nil || sealed.Rows != 3 {
		t.Fatalf("%+v, %v", sealed, err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := must(t, env, "cat", "events", "--fresh"); out != "a\n10\n20\n30\n" {
		t.Errorf("cat --fresh prints %q", out)
	}
}

// lockVersion is the ETag of root.json, by a client of its own.
func (b *bucket) lockVersion() string {
	b.t.Helper()
	key := strings.TrimPrefix(b.root, "s3://"+b.Bucket+"/") + "/_tidemark/root.json"
	info, err := b.Client().HeadObject(b.t.Context(), &s3.HeadObjectInput{Bucket: &b.Bucket, Key: &key})
	if err != nil {
		b.t.Fatal(err)
	}
	return aws.ToString(info.ETag)
}

// requests counts requests to S3 by operation.
type requests map[string]float64

func (r requests) total() (n float64) {
	for _, count := range r {
		n += count
	}
	return n
}

func (r requests) since(before requests) requests {
	sent := maps.Clone(r)
	for op, count := range before {
		if sent[op] -= count; sent[op] == 0 {
			delete(sent, op)
		}
	}
	return sent
}

// s3Requests reads a server's count of the requests it has sent.
func s3Requests(t *testing.T, url string) requests {
	t.Helper()
	counts := requests{}
	for line := range metrics(t, url, "tidemark_s3_requests_total") {
		_, op, _ := strings.Cut(line.labels, `op="`)
		op, _, _ = strings.Cut(op, `"`)
		counts[op] += line.value
	}
	return counts
}

// sample is one line of /metrics.
type sample struct {
	labels string
	value  float64
}

// metrics are the lines of a server's /metrics with a name.
func metrics(t *testing.T, url, name string) func(yield func(sample) bool) {
	t.Helper()
	_, body := fetch(t, url+"/metrics")
	return func(yield func(sample) bool) {
		for line := range strings.Lines(body) {
			series, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			found, labels, _ := strings.Cut(series, "{")
			if found != name {
				continue
			}
			value, err := strconv.ParseFloat(text, 64)
			if err != nil || !yield(sample{labels, value}) {
				return
			}
		}
	}
}
