package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// deltaRS runs a program of internal/merge's that works on a table with delta-rs alone; see partitions.py. It gives what the
// program prints once it has ended.
func deltaRS(t *testing.T, args ...string) (ended chan string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t), append([]string{filepath.Join(top, "internal", "merge", "testdata", "partitions.py")}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	ended = make(chan string, 1)
	go func() {
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("delta-rs: %v: %v\n%s", args, err, errs.String())
		}
		ended <- string(out)
	}()
	return ended
}

// filesUnder are the paths of all files under a folder, in order.
func filesUnder(t *testing.T, folder string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// A fleet leaves a table of delta-rs alone until that is adopted. From then on it merges, while delta-rs goes on appending,
// deleting, compacting and vacuuming in a process of its own, and every row of either is there once; also after the fleet has
// compacted in its turn.
func TestATableOfDeltaRSIsLeftAloneUntilItIsAdoptedAndThenWrittenByBoth(t *testing.T) {
	f := startFleet(t)
	sales := filepath.Join(f.root, "sales")
	<-deltaRS(t, "make", sales) // 3 rows, from 1,000,000,000
	before := filesUnder(t, sales)
	f.master("master-1")
	f.executor("executor-1")

	// A table that is made now and not written to is known by the listing that finds sales as well.
	must(t, f.env, "table", "create", "witness", "--like", rowsFile(t))
	eventually(t, "the master has listed the tables", func() bool { return strings.Contains(tidemark(t, f.env, "tables").out, "witness") })
	rows := filepath.Join(t.TempDir(), "rows.parquet")
	first, sum := int64(0), int64(0)
	ingest := func() {
		t.Helper()
		const n = 60
		sql(t, fmt.Sprintf(`copy (select i::bigint as id, case i %% 3 when 0 then null else date '2024-01-01' + (i %% 3)::integer - 1 end as day
			from range(%d, %d) r(i)) to '%s'`, first, first+n, rows))
		must(t, f.env, "ingest", "sales", rows, "--shards", "1")
		sum += n * (2*first + n - 1) / 2
		first += n
	}
	says(t, f.env, []string{"not adopted"}, "table", "list")
	if out := must(t, f.env, "tables"); strings.Contains(out, "sales") {
		t.Errorf("a table that nobody adopted is served:\n%s", out)
	}
	refused(t, f.env, 1, []string{"sales", "another engine"}, "ingest", "sales", rowsFile(t))
	if after := filesUnder(t, sales); !slices.Equal(before, after) {
		t.Errorf("a table that nobody adopted holds %q, and held %q", after, before)
	}

	// Two who compact at once are one too many for delta-rs, see docs/tables.md.
	says(t, f.env, []string{"adopted sales", "3 files", "does not compact"}, "table", "adopt", "sales")
	ended := deltaRS(t, "write", sales, "12")
	var theirs []int64
	for theirs == nil {
		ingest()
		must(t, f.env, "wait", "sales")
		select {
		case out := <-ended:
			if err := json.Unmarshal([]byte(out), &theirs); err != nil {
				t.Fatalf("%v: %q", err, out)
			}
		default:
		}
	}
	for _, id := range theirs {
		sum += id
	}
	everyRow := func() {
		t.Helper()
		n := first + int64(len(theirs))
		readBoth(t, sales, `select count(*) n, count(distinct id) as ids, sum(id)::bigint as total, count(distinct day) as dates,
			count(*) filter (where day is null and id < 1000000000 and id % 3 != 0) as astray from t`,
			map[string]any{"n": n, "ids": n, "total": sum, "dates": 2, "astray": 0})
		if lines := int64(strings.Count(must(t, f.env, "cat", "sales"), "\n")); lines != n+1 {
			t.Errorf("cat prints %d lines, want a header and %d rows", lines, n)
		}
	}
	everyRow()
	// Now that delta-rs has ended, the fleet compacts what it and a few merges have left behind.
	compacted := func() bool {
		for _, path := range filesUnder(t, filepath.Join(sales, "_delta_log")) {
			commit, err := os.ReadFile(path)
			if err == nil && bytes.Contains(commit, []byte(`"operation":"OPTIMIZE"`)) && bytes.Contains(commit, []byte(`"engineInfo":"tidemark/`)) {
				return true
			}
		}
		return false
	}
	eventually(t, "a master takes the policy", func() bool {
		return tidemark(t, f.env, "policy", "set", "sales", "compact_files=4").status == 0
	})
	for range 3 {
		ingest()
		must(t, f.env, "wait", "sales")
	}
	eventually(t, "the fleet compacts the table", compacted)
	everyRow()
}
