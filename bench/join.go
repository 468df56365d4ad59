package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// The join case: few generations whose row groups are full already become one file each few of them, and a plain copy of
// the same bytes in the kernel, synced as ours are, is the most that a disk can do.
var joinCases = []benchCase{{"join", join}}

const (
	joinGenerations = 20
	joinGoal        = 0.7
)

func join(ctx context.Context, b *bench) error {
	const table = "join"
	columns := []column{number("id"), reading("value"), identifier("trace"), category("origin", 300)}
	if err := b.load(ctx, table, columns, b.scaled(joinGenerations), 650_000); err != nil {
		return err
	}
	files, bytes, m, err := b.mergeSealed(table)
	if err != nil {
		return err
	}
	b.report("join", len(files), bytes, m, b.plainCopy(ctx, files).ratio(m.took, joinGoal))
	return nil
}

// copyCommand makes this program a plain copy of files, in a process of its own.
const copyCommand = "copy-files"

// plainCopy copies files one behind the other into one, in a process of its own.
func (b *bench) plainCopy(ctx context.Context, files []string) baseline {
	out := baseline{name: "copy_file_range"}
	self, err := os.Executable()
	if err != nil {
		out.err = err
		return out
	}
	to := filepath.Join(filepath.Dir(b.root), "copy")
	defer os.Remove(to)
	answer, err := exec.CommandContext(ctx, self, append([]string{copyCommand, to}, files...)...).Output()
	if err != nil {
		out.err = err
		return out
	}
	out.err = json.Unmarshal(answer, &out.seconds)
	return out
}

func copyFiles(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: %s TO FILE, one or more", copyCommand)
	}
	began := time.Now()
	to, err := os.Create(args[0])
	if err != nil {
		return err
	}
	defer to.Close()
	for _, name := range args[1:] {
		from, err := os.Open(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, from) // copy_file_range, by the Go runtime
		_ = from.Close()
		if err != nil {
			return err
		}
	}
	if err := to.Sync(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(time.Since(began).Seconds())
}
