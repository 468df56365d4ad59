package deploy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"tidemark/test/s3/s3test"
)

// deployment is the Compose project as plain processes.
type deployment struct {
	project *types.Project
	dir     string            // volumes, configuration, logs
	path    string            // $PATH: the programs that images would hold
	ports   map[string]string // "service:port" → "127.0.0.1:port"
	running map[string]*process
}

type process struct {
	cmd  *exec.Cmd
	log  *lockedBuffer
	done chan struct{}
	err  error // of its end, once done
}

// lockedBuffer is what a process writes, read while it runs.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{project: project(t), dir: t.TempDir(), ports: map[string]string{}, running: map[string]*process{}}
	d.path = filepath.Join(d.dir, "bin")
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"etcd": built(t, "etcd"), "versitygw": s3test.Binary(t)} {
		if err := os.Symlink(program, filepath.Join(d.path, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, p := range d.running {
			_ = p.cmd.Process.Kill() // it may have ended
			<-p.done
		}
	})
	return d
}

// address is where a port of a service is on this machine.
func (d *deployment) address(t *testing.T, service, port string) string {
	t.Helper()
	key := service + ":" + port
	if d.ports[key] == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		d.ports[key] = l.Addr().String()
		defer l.Close()
	}
	return d.ports[key]
}

var (
	hostPort = regexp.MustCompile(`\b([a-z][a-z0-9-]*|0\.0\.0\.0):(\d{4})\b`)
	anyPort  = regexp.MustCompile(`(^| ):(\d{4})\b`)
	absolute = regexp.MustCompile(`/[a-z][a-z0-9/._-]*`)
)

// localise replaces in a text of a service what a container engine would provide: names of hosts, and directories.
func (d *deployment) localise(t *testing.T, service, text string) string {
	t.Helper()
	text = hostPort.ReplaceAllStringFunc(text, func(found string) string {
		host, port, _ := strings.Cut(found, ":")
		if host == "0.0.0.0" {
			host = service
		}
		if _, ok := d.project.Services[host]; !ok {
			return found
		}
		return d.address(t, host, port)
	})
	text = anyPort.ReplaceAllStringFunc(text, func(found string) string {
		before, port, _ := strings.Cut(found, ":")
		return before + d.address(t, service, port)
	})
	mounts := d.project.Services[service].Volumes
	return absolute.ReplaceAllStringFunc(text, func(path string) string {
		for _, v := range mounts {
			rest, below := strings.CutPrefix(path, v.Target)
			if !below || rest != "" && rest[0] != '/' {
				continue
			}
			if v.Type == types.VolumeTypeVolume {
				return filepath.Join(d.dir, "volumes", v.Source) + rest
			}
			if copied := filepath.Join(d.dir, "config", filepath.Base(v.Source)); exists(copied) {
				return copied + rest
			}
			return v.Source + rest
		}
		return path
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// command is a command of a service, with the service's environment and nothing of this machine's.
func (d *deployment) command(t *testing.T, service string, words []string) *exec.Cmd {
	t.Helper()
	s := d.project.Services[service]
	args := make([]string, len(words))
	for i, w := range words {
		args[i] = d.localise(t, service, w)
	}
	program := args[0]
	if name, ours := strings.CutPrefix(words[0], "/"); ours {
		program = built(t, name)
	} else if found, err := exec.LookPath(filepath.Join(d.path, program)); err == nil {
		program = found
	}
	cmd := exec.Command(program, args[1:]...)
	cmd.Dir = d.dir
	cmd.Env = []string{"PATH=" + d.path + ":/usr/bin:/bin", "HOME=" + d.dir, "AWS_EC2_METADATA_DISABLED=true"}
	for name, value := range s.Environment {
		cmd.Env = append(cmd.Env, name+"="+d.localise(t, service, *value))
	}
	for _, v := range s.Volumes {
		if v.Type == types.VolumeTypeVolume {
			if err := os.MkdirAll(filepath.Join(d.dir, "volumes", v.Source), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return cmd
}

// words are what a service runs: its own entrypoint and command, or the image's.
func words(s types.ServiceConfig) []string {
	if len(s.Entrypoint) == 0 && s.Image == "tidemark" {
		return append([]string{"/tidemark"}, s.Command...)
	}
	return append(append([]string{}, s.Entrypoint...), s.Command...)
}

func (d *deployment) start(t *testing.T, service string, more ...string) *process {
	t.Helper()
	cmd := d.command(t, service, append(words(d.project.Services[service]), more...))
	p := &process{cmd: cmd, log: &lockedBuffer{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log, p.log
	stdin, err := cmd.StdinPipe() // the build of etcd in test/etcd ends with it; a container's stays open as well
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", service, err)
	}
	go func() {
		defer close(p.done)
		defer stdin.Close()
		p.err = cmd.Wait()
	}()
	d.running[service] = p
	return p
}

// bound is a bound for a broken test, not a wait.
const bound = 90 * time.Second

// finish waits for a process that ends by itself.
func (d *deployment) finish(t *testing.T, p *process) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(bound):
		t.Fatalf("%v goes on:\n%s%s", p.cmd.Args, p.log, d.logs())
	}
	if p.err != nil {
		t.Fatalf("%v: %v\n%s%s", p.cmd.Args, p.err, p.log, d.logs())
	}
}

func (d *deployment) logs() string {
	var all strings.Builder
	for name, p := range d.running {
		text := p.log.String()
		fmt.Fprintf(&all, "--- %s\n%s\n", name, text[max(0, len(text)-2000):])
	}
	return all.String()
}

// healthy runs the health check of a service until it succeeds, as an engine does.
func (d *deployment) healthy(t *testing.T, service string) {
	t.Helper()
	test := d.project.Services[service].HealthCheck.Test
	var out []byte
	var err error
	d.eventually(t, "the health check of "+service, func() bool {
		select {
		case <-d.running[service].done:
			t.Fatalf("%s has ended: %v\n%s", service, d.running[service].err, d.running[service].log)
		default:
		}
		out, err = d.command(t, service, test[1:]).CombinedOutput()
		return err == nil
	}, func() string { return fmt.Sprintf("%v %s", err, out) })
}

func (d *deployment) eventually(t *testing.T, what string, ok func() bool, why func() string) {
	t.Helper()
	give := time.Now().Add(bound)
	for !ok() {
		if time.Now().After(give) {
			t.Fatalf("waited in vain for %s: %s\n%s", what, why(), d.logs())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// fetch is the answer to a GET.
func fetch(t *testing.T, url string) string {
	t.Helper()
	body, err := try(t, url)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func try(t *testing.T, url string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %v: %s", url, answer.Status, err, body)
	}
	return string(body), nil
}

// The commands of the Compose file, started in its order, serve the demo; their health checks succeed; Prometheus, with
// the configuration that is shipped, reaches all of them and can evaluate every rule and dashboard; every metric and label
// that these use is exposed; and all end well when they are told to.
func TestTheCommandsOfComposeServeTheDemo(t *testing.T) {
	slow(t)
	d := newDeployment(t)
	for _, service := range []string{"etcd-1", "etcd-2", "etcd-3", "s3"} {
		d.start(t, service)
	}
	d.finish(t, d.start(t, "ready"))
	servers := []string{"master-1", "master-2", "executor-1", "executor-2", "executor-3"}
	for _, service := range servers {
		if on := d.project.Services[service].DependsOn["ready"]; on.Condition != types.ServiceConditionCompletedSuccessfully {
			t.Errorf("%s does not wait for etcd and the store", service)
		}
		d.start(t, service)
	}
	for _, service := range servers {
		d.healthy(t, service)
	}
	prometheus := d.startPrometheus(t)

	demo := d.start(t, "cli", "demo", "--rows", "100000")
	d.finish(t, demo)
	if out := demo.log.String(); strings.Count(out, "verified demo/") != 2 {
		t.Errorf("the demo says\n%s", out)
	}
	exposed := map[string]series{}
	for _, service := range servers {
		_, port, _ := strings.Cut(*d.project.Services[service].Environment["TIDEMARK_LISTEN"], ":")
		text := fetch(t, "http://"+d.address(t, service, port)+"/metrics")
		exposition(exposed, text)
		if linter, err := exec.LookPath("promtool"); err == nil { // without it, TestRulesPassTheirUnitTests skips or fails
			lint := exec.CommandContext(t.Context(), linter, "check", "metrics")
			lint.Stdin = strings.NewReader(text)
			if out, err := lint.CombinedOutput(); err != nil {
				t.Errorf("the metrics of %s do not follow the conventions: %v\n%s", service, err, out)
			}
		}
	}
	mine := slices.DeleteFunc(expressions(t), func(e expression) bool { return onlyStandalone.MatchString(e.promql) })
	for _, missing := range unexposed(mine, exposed) {
		t.Errorf("not exposed: %s", missing)
	}
	undocumented, unknown := compareReference(read(t, "docs", "operations.md"), exposed)
	if len(undocumented)+len(unknown) > 0 {
		t.Errorf("docs/operations.md does not name %v, and names %v, which nothing exposes", undocumented, unknown)
	}
	if prometheus != "" {
		d.checkPrometheus(t, prometheus)
	}
	d.runCommandsOfThePages(t)
	for i := len(servers) - 1; i >= 0; i-- {
		if err := d.running[servers[i]].cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("%s: %v", servers[i], err)
		}
	}
	for _, service := range servers {
		d.finish(t, d.running[service])
	}
}
