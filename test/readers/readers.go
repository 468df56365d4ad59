// Package readers runs Python programs with the independent engines that `make readers` installs, delta-rs and DuckDB.
package readers

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// interpreter finds a Python that has the engines: $TIDEMARK_PYTHON, the repository's .venv, or the machine's own.
var interpreter = sync.OnceValues(func() (string, error) {
	python := os.Getenv("TIDEMARK_PYTHON")
	if python == "" {
		python = "python3"
		for dir, _ := os.Getwd(); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if venv := filepath.Join(dir, ".venv", "bin", "python"); isFile(venv) {
				python = venv
				break
			}
		}
	}
	out, err := exec.Command(python, "-c", "import deltalake, duckdb, duckdb_extension_delta, pyarrow").CombinedOutput()
	if err != nil {
		return "", errors.New(strings.TrimSpace(string(out)) + ": " + err.Error())
	}
	return python, nil
})

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Command is a Python program to be run; without the engines the test is skipped, unless nothing may be skipped.
func Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	python, err := interpreter()
	if err != nil {
		if os.Getenv("TIDEMARK_REQUIRE_ALL") != "" {
			t.Fatalf("delta-rs and DuckDB are needed (make readers): %v", err)
		}
		t.Skip("delta-rs and DuckDB are not installed (make readers)")
	}
	return exec.Command(python, args...)
}

// Run runs a Python program and reads the JSON that it prints.
func Run(t testing.TB, into any, args ...string) {
	t.Helper()
	cmd := Command(t, args...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, problems.String())
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("%v printed %q: %v", args, out, err)
	}
}
