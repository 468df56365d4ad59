package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"tidemark/internal/dev"
)

// bench is what the cases share: how they are to run, and the fleet of the case that runs.
type bench struct {
	flights   string
	memoryMiB int
	scale     float64
	dir       string

	root, etcd string // of the fleet of the case that runs
}

// inFleet runs a case with an etcd, a master and an empty root of its own, without an executor.
func (b *bench) inFleet(ctx context.Context, run func(context.Context, *bench) error) error {
	dir, err := os.MkdirTemp(b.dir, "tidemark-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	etcd, err := dev.StartEtcd(ctx, filepath.Join(dir, "etcd"), "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer etcd.Close()
	fleet := *b
	fleet.root, fleet.etcd = filepath.Join(dir, "tables"), etcd.Endpoint()
	if err := os.Mkdir(fleet.root, 0o755); err != nil {
		return err
	}
	master, err := fleet.start("tidemark-master", "--listen", "127.0.0.1:0", "--log-level", "error")
	if err != nil {
		return err
	}
	defer master.stop()
	return run(ctx, &fleet)
}

// merged is what one executor process did for a table.
type merged struct {
	took    time.Duration // from claim to release, all executions of the table together
	rows    int64         // written
	units   int           // executions that committed something
	peakMiB int           // of the process
}

// merge starts an executor, waits until nothing of a table is pending, and stops it. Everything must have been pending
// before, or it measures the wait as well.
func (b *bench) merge(table string) (merged, error) {
	executor, err := b.start("tidemark-executor", "--listen", "127.0.0.1:0", "--log-format", "json", "--slots", "1",
		"--memory", fmt.Sprintf("%dMiB", b.memoryMiB))
	if err != nil {
		return merged{}, err
	}
	if err := b.tidemark("wait", table, "--timeout", "15m"); err != nil {
		executor.stop()
		return merged{}, err
	}
	peak, err := executor.peakMiB()
	executor.stop() // it first ends what it is doing, and says so
	if err != nil {
		return merged{}, err
	}
	m := merged{peakMiB: peak}
	for _, done := range executor.done(table) {
		m.took += time.Duration(done.Took)
		m.rows += done.Rows
		m.units++
	}
	if m.units == 0 {
		return m, fmt.Errorf("the executor merged nothing of table %s; it said:\n%s", table, executor.said())
	}
	return m, nil
}

// execution is the executor's log of one that ended.
type execution struct {
	Message string `json:"@message"`
	Table   string `json:"table"`
	Kind    string `json:"kind"`
	Commits int    `json:"commits"`
	Rows    int64  `json:"rows"`
	Took    int64  `json:"took"` // nanoseconds
}

// done are the merges of a table that the executor said it had carried out. It must have been stopped.
func (s *server) done(table string) (out []execution) {
	for line := range bytes.Lines([]byte(s.said())) {
		var e execution
		if json.Unmarshal(line, &e) == nil && e.Message == "done" && e.Table == table && e.Kind == "merge" && e.Commits > 0 {
			out = append(out, e)
		}
	}
	return out
}

func (b *bench) env() []string {
	return append(os.Environ(), "TIDEMARK_ROOT="+b.root, "TIDEMARK_ETCD="+b.etcd)
}

// tidemark runs one command to its end.
func (b *bench) tidemark(args ...string) error {
	cmd := exec.Command(filepath.Join("bin", "tidemark"), args...)
	cmd.Env = b.env()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tidemark %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// server is a running process.
type server struct {
	cmd *exec.Cmd
	mu  sync.Mutex // guards log
	log bytes.Buffer
}

// Write takes what the process says.
func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *server) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

func (b *bench) start(name string, args ...string) (*server, error) {
	cmd := exec.Command(filepath.Join("bin", name), args...)
	s := &server{cmd: cmd}
	cmd.Env, cmd.Stderr = b.env(), s
	return s, cmd.Start()
}

// stop drains the process and waits for it.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(os.Interrupt) // it may have ended by itself, and Wait says how
	_ = s.cmd.Wait()
}

// peakMiB is the most memory that the process ever had resident.
func (s *server) peakMiB() (int, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(rest, " kB")))
			return kib / 1024, err
		}
	}
	return 0, errors.New("the kernel does not tell the peak memory of a process")
}

// mergeSealed merges what a table has sealed, and says what that was.
func (b *bench) mergeSealed(table string) (files []string, bytes int64, m merged, err error) {
	if files, bytes, err = b.sealed(table); err != nil {
		return nil, 0, merged{}, err
	}
	m, err = b.merge(table)
	return files, bytes, m, err
}

// sealed lists the generation files of a table.
func (b *bench) sealed(table string) (files []string, bytes int64, err error) {
	files, err = filepath.Glob(filepath.Join(b.root, table, "_shards", "*", "*", "gen", "*.parquet"))
	for _, file := range files {
		info, statErr := os.Stat(file)
		if statErr != nil {
			return nil, 0, statErr
		}
		bytes += info.Size()
	}
	return files, bytes, err
}
