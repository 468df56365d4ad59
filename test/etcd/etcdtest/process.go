package etcdtest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// process is one etcd process.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer // its end is the end of the process
	log   string    // path of what it wrote
}

// build builds etcd into a directory and returns the path of the binary.
func build(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "etcd")
	if out, err := exec.Command("go", "build", "-o", path, "tidemark/test/etcd/cmd/etcd").CombinedOutput(); err != nil {
		t.Fatalf("building etcd: %v\n%s", err, out)
	}
	return path
}

func startProcess(t testing.TB, binary, log string, args ...string) *process {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() // the process has its own
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = out, out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting etcd: %v", err)
	}
	return &process{cmd: cmd, stdin: stdin, log: log}
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	_ = p.cmd.Wait()
	_ = p.stdin.Close()
}

// tail is the end of what the process wrote, for the message of a test that fails.
func (p *process) tail() string {
	const most = 4 << 10
	b, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprint("no log: ", err)
	}
	return string(b[max(0, len(b)-most):])
}
