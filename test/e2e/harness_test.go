package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidemark/test/etcd/etcdtest"
)

// Bounds on waiting. They end a hung test, and are never what is measured.
const (
	commandTimeout = 5 * time.Minute
	readyTimeout   = time.Minute
	pollInterval   = 20 * time.Millisecond
)

var top, bin string // the repository and its binaries

func TestMain(m *testing.M) {
	if os.Getenv("TIDEMARK_E2E") == "" {
		fmt.Println("skipped: set TIDEMARK_E2E=1 or use `make test-e2e` to run the end-to-end suite")
		return
	}
	here, err := os.Getwd()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	top = filepath.Dir(filepath.Dir(here))
	bin = filepath.Join(top, "bin")
	for _, name := range []string{"tidemark", "tidemark-master", "tidemark-executor"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			fmt.Printf("the end-to-end suite needs the binaries: %v; run `make build` first\n", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// input is the path of a file of real input. It lies outside the repository; without it the test is skipped, or fails
// where everything is required to run.
func input(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(top, "..", "shared", "data", name)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("TIDEMARK_REQUIRE_ALL") != "" {
			t.Fatalf("real input is required here: %v", err)
		}
		t.Skipf("needs real input: %v", err)
	}
	return path
}

// result is how a command ended.
type result struct {
	status      int
	out, errors string
}

// tidemark runs one command to its end, in the environment env on top of the test's own.
func tidemark(t *testing.T, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "tidemark"), args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("tidemark %s: %v", strings.Join(args, " "), err)
	}
	return result{status: cmd.ProcessState.ExitCode(), out: out.String(), errors: errs.String()}
}

// must runs one command that has to succeed and returns its output.
func must(t *testing.T, env []string, args ...string) string {
	t.Helper()
	r := tidemark(t, env, args...)
	if r.status != 0 {
		t.Fatalf("tidemark %s: status %d\n%s%s", strings.Join(args, " "), r.status, r.out, r.errors)
	}
	return r.out
}

// refused runs one command that has to fail with the status, in one line that contains all the words.
func refused(t *testing.T, env []string, status int, words []string, args ...string) {
	t.Helper()
	r := tidemark(t, env, args...)
	line := strings.TrimSpace(r.errors)
	if r.status != status || strings.Contains(line, "\n") {
		t.Errorf("tidemark %s: status %d, want %d, and one line, got:\n%s", strings.Join(args, " "), r.status, status, r.errors)
	}
	for _, word := range words {
		if !strings.Contains(line, word) {
			t.Errorf("tidemark %s: the error does not say %q:\n%s", strings.Join(args, " "), word, line)
		}
	}
}

// process is a running binary.
type process struct {
	cmd    *exec.Cmd
	name   string
	exited chan struct{}
	output *lockedBuffer
}

// lockedBuffer collects the output of a process for the failure message.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start starts a binary of bin/, or one by its absolute path; it is killed when the test ends, and its output shown if the test failed.
func start(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(bin, name)
	}
	p := &process{cmd: exec.Command(path, args...), name: filepath.Base(name), exited: make(chan struct{}), output: &lockedBuffer{}}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, tail(p.output.String()))
		}
	})
	return p
}

func tail(s string) string {
	const most = 8 << 10
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// kill ends the process at once, as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// stop asks the process to drain and returns its exit status.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("stopping %s: %v", p.name, err)
	}
	select {
	case <-p.exited:
	case <-time.After(readyTimeout):
		t.Fatalf("%s did not drain", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// url is where the process says that it serves its state; empty until it has said so.
func (p *process) url() string {
	_, after, _ := strings.Cut(p.output.String(), "serves its state on ")
	url, _, whole := strings.Cut(after, "\n")
	if !whole {
		return ""
	}
	return url
}

// ready is whether the process says that it would take work now.
func (p *process) ready() bool {
	url := p.url()
	if url == "" {
		return false
	}
	resp, err := http.Get(url + "/readyz")
	if err != nil {
		return false // it may just have ended
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// eventually polls until done says so.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(readyTimeout); !done(); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// dev is a running `tidemark dev` on a fresh root.
type dev struct {
	*process
	root string
	env  []string // makes commands talk to it
}

func startDev(t *testing.T, args ...string) *dev {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	env := []string{"TIDEMARK_ROOT=" + root}
	p := start(t, env, "tidemark", append([]string{"dev", "--listen", "127.0.0.1:0"}, args...)...)
	eventually(t, "tidemark dev writes where it can be reached", func() bool {
		_, err := os.Stat(filepath.Join(root, "_tidemark", "dev.json"))
		return err == nil
	})
	return &dev{process: p, root: root, env: env}
}

// fleet is etcd, one master and any number of executors as separate processes on a fresh root.
type fleet struct {
	t      *testing.T
	root   string
	server *etcdtest.Server
	env    []string
}

func startFleet(t *testing.T) *fleet {
	t.Helper()
	server := etcdtest.New(t, etcdtest.Options{})
	root := t.TempDir()
	return &fleet{t: t, root: root, server: server, env: []string{
		"TIDEMARK_ROOT=" + root, "TIDEMARK_ETCD=http://" + server.Address(), "TIDEMARK_LEASE_TTL=2s",
	}}
}

func (f *fleet) master(id string) *process {
	return start(f.t, f.env, "tidemark-master", "--id", id, "--listen", "127.0.0.1:0")
}

func (f *fleet) executor(id string) *process {
	return start(f.t, f.env, "tidemark-executor", "--id", id, "--listen", "127.0.0.1:0")
}

// python is the interpreter of the environment that has the readers.
func python(t *testing.T) string {
	t.Helper()
	path := filepath.Join(top, ".venv", "bin", "python")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the readers are not installed: %v; run `make readers`", err)
	}
	return path
}

// read asks one reader one question about a table directory.
func read(t *testing.T, reader, table, query string) map[string]any {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t), filepath.Join(top, "test", "e2e", "read.py"), reader, table, query)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s cannot read %s: %v\n%s", reader, table, err, errs.String())
	}
	var row map[string]any
	decoder := json.NewDecoder(bytes.NewReader(out))
	decoder.UseNumber() // numbers are compared as they are written
	if err := decoder.Decode(&row); err != nil {
		t.Fatalf("%s: %v: %s", reader, err, out)
	}
	return row
}

// readBoth asks both readers and wants the same answer from both.
func readBoth(t *testing.T, table, query string, want map[string]any) {
	t.Helper()
	for _, reader := range []string{"delta-rs", "duckdb"} {
		got := read(t, reader, table, query)
		for name, value := range want {
			if fmt.Sprint(got[name]) != fmt.Sprint(value) {
				t.Errorf("%s: %s is %v, want %v", reader, name, got[name], value)
			}
		}
	}
}

// sql runs a statement in DuckDB without any table, to make input files.
func sql(t *testing.T, statement string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t), "-c", "import duckdb,sys; duckdb.connect().execute(sys.argv[1])", statement)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", statement, err, out)
	}
}

// decode parses the output of a command with --json.
func decode[T any](t *testing.T, out string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	return v
}

// fetch gets a URL and returns status and body.
func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
