// Command bench measures whole merges by the real executor process and prints one line per figure: throughput, the ratio
// to DuckDB doing the same job on the same files in the same run, and peak memory against the budget.
//
//	make bench
//
// These machines are shared and noisy: compare ratios, not seconds. Without the readers' Python environment (make
// readers) there is no baseline, and the ratio is left out and said to be.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tidemark/internal/dev"
)

func main() {
	data := flag.String("data", "../shared/data/flights-3m.parquet", "the flights table")
	memory := flag.Int("memory", 256, "budget of the executor in MiB")
	flag.Parse()
	if err := run(*data, *memory); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// job is one table to load and merge.
type job struct {
	name   string
	create []string // further flags of table create
	// baseline is what DuckDB does with the same generations: SQL with %s for the list of files and for the output.
	baseline string
}

var jobs = []job{
	{
		name:     "append",
		baseline: `copy (select * from read_parquet(%s)) to '%s' (format parquet, compression zstd)`,
	},
	{
		name:   "upsert",
		create: []string{"--key", "origin,destination", "--buckets", "8", "--sequence", "date"},
		baseline: `copy (select * from read_parquet(%s)
			qualify row_number() over (partition by origin, destination order by date desc) = 1
			order by origin, destination) to '%s' (format parquet, compression zstd)`,
	},
}

func run(data string, memoryMiB int) error {
	if _, err := os.Stat(data); err != nil {
		return fmt.Errorf("the flights table is needed: %w; give it with --data", err)
	}
	root, err := os.MkdirTemp("", "tidemark-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	ctx := context.Background()
	etcd, err := dev.StartEtcd(ctx, filepath.Join(root, "etcd"), "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer etcd.Close()
	tables := filepath.Join(root, "tables")
	if err := os.Mkdir(tables, 0o755); err != nil {
		return err
	}
	b := &bench{root: tables, etcd: etcd.Endpoint(), memoryMiB: memoryMiB}
	master, err := b.start("tidemark-master", "--listen", "127.0.0.1:0", "--log-level", "error")
	if err != nil {
		return err
	}
	defer master.stop()
	for _, j := range jobs {
		if err := b.measure(j, data); err != nil {
			return fmt.Errorf("%s: %w", j.name, err)
		}
	}
	return latency()
}

type bench struct {
	root, etcd string
	memoryMiB  int
}

// measure loads a table without an executor, so that everything is pending, then times one executor from its start until
// nothing is.
func (b *bench) measure(j job, data string) error {
	if err := b.tidemark(append([]string{"table", "create", j.name, "--like", data}, j.create...)...); err != nil {
		return err
	}
	if err := b.tidemark("ingest", j.name, data, "--rows-per-generation", "10000"); err != nil {
		return err
	}
	generations, bytes, err := sealed(filepath.Join(b.root, j.name))
	if err != nil {
		return err
	}
	executor, err := b.start("tidemark-executor", "--listen", "127.0.0.1:0", "--log-level", "error", "--slots", "1",
		"--memory", fmt.Sprintf("%dMiB", b.memoryMiB))
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.tidemark("wait", j.name, "--timeout", "10m"); err != nil {
		executor.stop()
		return err
	}
	peak, err := executor.peakMiB()
	executor.stop()
	if err != nil {
		return err
	}
	// Waiting asks now and then; the last entry of the log says when there was nothing left to merge.
	last, err := lastCommit(filepath.Join(b.root, j.name))
	if err != nil {
		return err
	}
	took := last.Sub(began)
	const rows = 3_000_000
	fmt.Printf("%-7s %d generations, %.1f MB sealed: %.2f s, %.2f M rows/s, %.1f MB/s, %s\n", j.name, len(generations), float64(bytes)/1e6,
		took.Seconds(), rows/took.Seconds()/1e6, float64(bytes)/1e6/took.Seconds(), ratio(j, generations, took))
	fmt.Printf("%-7s peak memory of the executor %d MiB of a budget of %d MiB (%+.0f %%)\n", j.name, peak, b.memoryMiB,
		100*(float64(peak)/float64(b.memoryMiB)-1))
	return nil
}

// sealed lists the generation files of a table.
func sealed(table string) (files []string, bytes int64, err error) {
	files, err = filepath.Glob(filepath.Join(table, "_shards", "*", "*", "gen", "*.parquet"))
	for _, file := range files {
		info, statErr := os.Stat(file)
		if statErr != nil {
			return nil, 0, statErr
		}
		bytes += info.Size()
	}
	return files, bytes, err
}

// lastCommit is when the newest entry of a table's log was written.
func lastCommit(table string) (newest time.Time, err error) {
	entries, err := filepath.Glob(filepath.Join(table, "_delta_log", "*.json"))
	for _, entry := range entries {
		info, err := os.Stat(entry)
		if err != nil {
			return newest, err
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest, err
}

// ratio runs the baseline in a process of its own and says how much faster Tidemark was.
func ratio(j job, files []string, took time.Duration) string {
	python := filepath.Join(".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return "no baseline: make readers installs DuckDB"
	}
	out := filepath.Join(os.TempDir(), fmt.Sprintf("tidemark-baseline-%d.parquet", os.Getpid()))
	defer os.Remove(out)
	quoted := make([]string, len(files))
	for i, file := range files {
		quoted[i] = "'" + file + "'"
	}
	statement := fmt.Sprintf(j.baseline, "["+strings.Join(quoted, ",")+"]", out)
	script := "import duckdb,sys,time\nc=duckdb.connect()\nc.execute('set enable_progress_bar=false')\nt=time.monotonic()\nc.execute(sys.stdin.read())\nprint(time.monotonic()-t)"
	cmd := exec.Command(python, "-c", script)
	cmd.Stdin = strings.NewReader(statement)
	answer, err := cmd.Output()
	if err != nil {
		return fmt.Sprintf("no baseline: DuckDB failed: %v", err)
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(string(answer)), 64)
	if err != nil {
		return fmt.Sprintf("no baseline: %v", err)
	}
	return fmt.Sprintf("%.2f × DuckDB (%.2f s)", seconds/took.Seconds(), seconds)
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
type server struct{ cmd *exec.Cmd }

func (b *bench) start(name string, args ...string) (*server, error) {
	cmd := exec.Command(filepath.Join("bin", name), args...)
	cmd.Env, cmd.Stderr = b.env(), os.Stderr
	return &server{cmd}, cmd.Start()
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
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return kib / 1024, err
		}
	}
	return 0, errors.New("the kernel does not tell the peak memory of a process")
}
