package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/etcd"
)

// keys are those of the benchmark's cluster.
var keys = etcd.KeysOf("scale")

// server is one etcd process without fsync.
type server struct {
	dir, address string
	cmd          *exec.Cmd
}

// startEtcd builds and starts an etcd on a free port.
func startEtcd(ctx context.Context) (*server, error) {
	dir, err := os.MkdirTemp("", "tidemark-scale-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	binary := filepath.Join(dir, "etcd")
	if out, err := exec.Command("go", "build", "-o", binary, "tidemark/test/etcd/cmd/etcd").CombinedOutput(); err != nil {
		s.stop()
		return nil, fmt.Errorf("building etcd: %w\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.stop()
		return nil, err
	}
	s.address = l.Addr().String()
	_ = l.Close() // the port is etcd's now
	s.cmd = exec.Command(binary, "--data-dir", filepath.Join(dir, "data"), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", "http://"+s.address, "--advertise-client-urls", "http://"+s.address,
		"--listen-peer-urls", "http://127.0.0.1:0", "--initial-advertise-peer-urls", "http://127.0.0.1:0",
		"--initial-cluster", "default=http://127.0.0.1:0", "--quota-backend-bytes", fmt.Sprint(8<<30))
	s.cmd.Stderr = os.Stderr
	// etcd ends with its input, so it does not outlive the benchmark.
	if _, err := s.cmd.StdinPipe(); err != nil {
		s.stop()
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		s.stop()
		return nil, fmt.Errorf("starting etcd: %w", err)
	}
	client, err := s.dial(ctx)
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, client.Close()
}

func (s *server) stop() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill() // it may have ended by itself
		_ = s.cmd.Wait()
	}
	_ = os.RemoveAll(s.dir)
}

func (s *server) dial(ctx context.Context) (*clientv3.Client, error) {
	return etcd.Dial(ctx, etcd.DialOptions{Endpoints: []string{s.address}, Timeout: 30 * time.Second})
}

// operations are what etcd has done since its start.
type operations struct{ puts, deletes, txns, proposals float64 }

func (o operations) minus(p operations) operations {
	return operations{o.puts - p.puts, o.deletes - p.deletes, o.txns - p.txns, o.proposals - p.proposals}
}

// operations reads etcd's own counters.
func (s *server) operations() (o operations, err error) {
	answer, err := http.Get("http://" + s.address + "/metrics")
	if err != nil {
		return o, err
	}
	defer answer.Body.Close()
	return parseOperations(answer.Body)
}

func parseOperations(r io.Reader) (o operations, err error) {
	of := map[string]*float64{
		"etcd_mvcc_put_total": &o.puts, "etcd_mvcc_delete_total": &o.deletes, "etcd_mvcc_txn_total": &o.txns,
		"etcd_server_proposals_applied_total": &o.proposals,
	}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if to := of[name]; to != nil {
			if *to, err = strconv.ParseFloat(value, 64); err != nil {
				return o, fmt.Errorf("etcd's metric %s: %w", name, err)
			}
		}
	}
	return o, lines.Err()
}

// cpuOf is the CPU time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The fields behind the name, which is in parentheses: utime and stime are the 12th and 13th, in ticks of 10 ms.
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("the kernel does not tell the CPU time of process %d", pid)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
