package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// python is the readers' environment.
var python = filepath.Join(".venv", "bin", "python")

// baseline is what somebody else took for the same job.
type baseline struct {
	name    string
	seconds float64
	peakMiB int
	err     error
}

// baselineJob is what bench/baseline.py is told on its standard input.
type baselineJob struct {
	Kind    string   `json:"kind"` // duckdb: runs SQL; delta-rs: compacts a table made of the files; delta-rs-merge: changes it
	SQL     string   `json:"sql,omitempty"`
	Files   []string `json:"files,omitempty"`
	Changes []string `json:"changes,omitempty"`
	Dir     string   `json:"dir,omitempty"` // empty, for the table of delta-rs
	Threads int      `json:"threads"`
}

// runBaseline runs a job in a process of its own, and measures what follows its imports.
func runBaseline(ctx context.Context, name string, job baselineJob) baseline {
	b := baseline{name: name}
	if _, err := os.Stat(python); err != nil {
		b.err = errors.New("not installed: make readers")
		return b
	}
	job.Threads = runtime.GOMAXPROCS(0)
	input, err := json.Marshal(job)
	if err != nil {
		b.err = err
		return b
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, python, filepath.Join("bench", "baseline.py"))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &said
	answer, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		b.err = fmt.Errorf("%w: %s", err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
		return b
	}
	var out struct {
		Seconds float64 `json:"seconds"`
		PeakMiB int     `json:"peak_mib"`
	}
	b.err = json.Unmarshal(answer, &out)
	b.seconds, b.peakMiB = out.Seconds, out.PeakMiB
	return b
}

// duckdbCopy has DuckDB write what a query gives to one file of our codec, in a directory of the bench.
func (b *bench) duckdbCopy(ctx context.Context, query string) baseline {
	out := filepath.Join(filepath.Dir(b.root), "duckdb.parquet")
	defer os.Remove(out)
	return runBaseline(ctx, "DuckDB", baselineJob{
		Kind: "duckdb", SQL: fmt.Sprintf("copy (%s) to '%s' (format parquet, compression zstd)", query, out),
	})
}

// parquetFiles is the DuckDB table of some files.
func parquetFiles(files []string) string {
	return "read_parquet(['" + strings.Join(files, "','") + "'])"
}

// deltaCompact has delta-rs compact a table that is made of the same files.
func (b *bench) deltaCompact(ctx context.Context, files []string) baseline {
	dir := filepath.Join(filepath.Dir(b.root), "delta-rs")
	defer os.RemoveAll(dir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return baseline{name: "delta-rs", err: err}
	}
	return runBaseline(ctx, "delta-rs", baselineJob{Kind: "delta-rs", Files: files, Dir: dir})
}

// ratio says how much faster than a baseline something was, with the goal beside it.
func (b baseline) ratio(took time.Duration, goal float64) string {
	if b.err != nil {
		return fmt.Sprintf("no ratio to %s: %v", b.name, b.err)
	}
	verdict := ""
	if goal > 0 {
		verdict = fmt.Sprintf(", goal %.2g", goal)
	}
	memory := ""
	if b.peakMiB > 0 {
		memory = fmt.Sprintf(", %d MiB", b.peakMiB)
	}
	return fmt.Sprintf("%.2f × %s (%.2f s%s%s)", b.seconds/took.Seconds(), b.name, b.seconds, memory, verdict)
}

// report prints a line: what was merged, how fast, the ratios, and the peak memory beside the budget.
func (b *bench) report(name string, files int, bytes int64, m merged, ratios ...string) {
	seconds := m.took.Seconds()
	fmt.Printf("%-22s %d generations, %.1f MB, %.2f M rows: %.3f s, %.2f M rows/s, %.0f MB/s; %s; peak %d MiB of %d (%+.0f %%, goal +25 %%)\n",
		name, files, float64(bytes)/1e6, float64(m.rows)/1e6, seconds, float64(m.rows)/seconds/1e6, float64(bytes)/1e6/seconds,
		strings.Join(ratios, "; "), m.peakMiB, b.memoryMiB, 100*(float64(m.peakMiB)/float64(b.memoryMiB)-1))
}
