package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// explained is what the tests look at of `explain --json`.
type explained struct {
	Owner     string
	Executors int
	Attention []string
	Shards    []struct {
		Shard   string
		Pending int `json:"pending_generations"`
		Code    string
		Reason  string
	}
}

func (d *dev) explain(t *testing.T, table string) explained {
	t.Helper()
	return decode[explained](t, must(t, d.env, "explain", table, "--json"))
}

// says runs a command that must succeed and whose output must contain all the words.
func says(t *testing.T, env, words []string, args ...string) {
	t.Helper()
	out := must(t, env, args...)
	for _, word := range words {
		if !strings.Contains(out, word) {
			t.Errorf("tidemark %s does not say %q:\n%s", strings.Join(args, " "), word, out)
		}
	}
}

// rowsFile writes a file of three rows.
func rowsFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, []byte("id,v\n1,a\n2,b\n3,c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestATableIsPausedExplainedResumedAndMergedOnRequest(t *testing.T) {
	d := startDev(t)
	file := rowsFile(t)
	must(t, d.env, "table", "create", "orders", "--like", file)
	eventually(t, "the table is known", func() bool { return tidemark(t, d.env, "explain", "orders").status == 0 })
	says(t, d.env, []string{"Dry run", "orders is paused"}, "pause", "orders", "--dry-run")
	says(t, d.env, []string{"orders is paused"}, "pause", "orders")
	says(t, d.env, []string{"paused already"}, "pause", "orders")
	must(t, d.env, "ingest", "orders", file)
	eventually(t, "the shard is explained as paused", func() bool {
		x := d.explain(t, "orders")
		return len(x.Shards) == 1 && x.Shards[0].Code == "paused" && x.Shards[0].Pending == 1 && x.Owner == "dev-master" && x.Executors == 2
	})
	says(t, d.env, []string{"resume orders"}, "merge", "orders")
	says(t, d.env, []string{"ingest-0", "paused", "The table is paused"}, "explain", "orders")
	says(t, d.env, []string{"orders is resumed"}, "resume", "orders")
	eventually(t, "the request is served", func() bool {
		x := d.explain(t, "orders")
		return x.Shards[0].Code == "caught_up"
	})
	must(t, d.env, "ingest", "orders", file)
	eventually(t, "a tail", func() bool { return d.explain(t, "orders").Shards[0].Code == "tail" })
	says(t, d.env, []string{"Dry run"}, "merge", "orders", "--dry-run")
	says(t, d.env, []string{`"changed": true`}, "merge", "orders", "--low", "--json")
	eventually(t, "the low request is served", func() bool { return d.explain(t, "orders").Shards[0].Code == "caught_up" })
	refused(t, d.env, 1, []string{"did you mean orders"}, "explain", "order")
	refused(t, d.env, 1, []string{"unknown table"}, "pause", "nothing")
}

func TestPoliciesAreSetShownUnsetAndOutliveTheServer(t *testing.T) {
	d := startDev(t)
	file := rowsFile(t)
	must(t, d.env, "table", "create", "orders", "--like", file)
	says(t, d.env, []string{"min_generations", "built in"}, "policy", "get")
	says(t, d.env, []string{"Dry run"}, "policy", "set", "orders", "min_generations=1", "--dry-run")
	says(t, d.env, []string{"min_generations = 1"}, "policy", "set", "orders", "min_generations=1")
	says(t, d.env, []string{"max_wait = 2m"}, "policy", "set", "_default", "max_wait=2m")
	refused(t, d.env, 1, []string{"max_wait", "whenever"}, "policy", "set", "orders", "max_wait=whenever")
	refused(t, d.env, 1, []string{"no_such", "min_bytes"}, "policy", "set", "orders", "no_such=1")
	refused(t, d.env, 2, []string{"NAME=VALUE"}, "policy", "set", "orders", "max_wait")
	must(t, d.env, "ingest", "orders", file)
	eventually(t, "one generation is enough now", func() bool {
		x := d.explain(t, "orders")
		return len(x.Shards) == 1 && x.Shards[0].Code == "caught_up"
	})
	d.stop(t)
	values := map[string][2]string{}
	for _, v := range decode[[]struct{ Name, Value, Origin string }](t, must(t, d.env, "policy", "get", "orders", "--json")) {
		values[v.Name] = [2]string{v.Value, v.Origin}
	}
	if values["min_generations"] != [2]string{"1", "table"} || values["max_wait"] != [2]string{"2m0s", "_default"} || values["max_age"] != [2]string{"5m0s", "built in"} {
		t.Errorf("%v", values)
	}
	refused(t, d.env, 1, []string{"no master answers", "--direct"}, "pause", "orders")
	says(t, d.env, []string{"no longer sets min_generations"}, "policy", "unset", "orders", "min_generations", "--direct")
	says(t, d.env, []string{"did not set"}, "policy", "unset", "orders", "min_generations", "--direct")
	says(t, d.env, []string{"orders is paused"}, "pause", "orders", "--direct") // storage alone is enough
}

func TestAPoisonedGenerationIsShownRetriedAndSkipped(t *testing.T) {
	d := startDev(t)
	file := rowsFile(t)
	must(t, d.env, "table", "create", "orders", "--like", file)
	eventually(t, "the table is known", func() bool { return tidemark(t, d.env, "explain", "orders").status == 0 })
	must(t, d.env, "pause", "orders")
	for range 3 {
		must(t, d.env, "ingest", "orders", file)
	}
	poison(t, filepath.Join(d.root, "orders"), 2)
	refused(t, d.env, 1, []string{"not the next one"}, "skip", "orders", "--shard", "ingest-0", "--generation", "2", "--reason", "x")
	must(t, d.env, "merge", "orders")
	must(t, d.env, "resume", "orders")
	type failure struct {
		Table, Shard, Code, Remedy string
		Generation                 int
		Attention                  bool
	}
	var failures []failure
	eventually(t, "the failure is listed", func() bool {
		failures = decode[[]failure](t, must(t, d.env, "failures", "orders", "--json"))
		return len(failures) == 1
	})
	if f := failures[0]; f.Shard != "ingest-0" || f.Generation != 2 || !f.Attention || !strings.Contains(f.Remedy, "tidemark skip") {
		t.Errorf("%+v", f)
	}
	says(t, d.env, []string{"generation_damaged", "yes", "tidemark skip"}, "failures")
	x := d.explain(t, "orders")
	if len(x.Attention) != 1 || x.Shards[0].Code != "backoff" {
		t.Errorf("%+v", x)
	}
	r := tidemark(t, d.env, "doctor")
	if r.status != 1 || !strings.Contains(r.out, "wrong  failures: shard ingest-0 of table orders") {
		t.Errorf("doctor: status %d\n%s", r.status, r.out)
	}

	says(t, d.env, []string{"Dry run", "shard ingest-0"}, "retry", "orders", "--shard", "ingest-0", "--dry-run")
	says(t, d.env, []string{"shard ingest-0"}, "retry", "orders")
	eventually(t, "it has failed again", func() bool {
		return len(decode[[]failure](t, must(t, d.env, "failures", "orders", "--json"))) == 1
	})
	skip := []string{"skip", "orders", "--shard", "ingest-0", "--generation", "2", "--reason", "the disk lied"}
	says(t, d.env, []string{"Dry run", "3 rows"}, append(skip, "--dry-run")...)
	says(t, d.env, []string{"Generation 2", "3 rows"}, skip...)
	must(t, d.env, "wait", "orders")
	if f := decode[[]failure](t, must(t, d.env, "failures", "--json")); len(f) != 0 {
		t.Errorf("%+v", f)
	}
	refused(t, d.env, 1, []string{"no failure"}, "retry", "orders")
	var csv int
	for _, line := range strings.Split(must(t, d.env, "cat", "orders", "--format", "csv"), "\n") {
		if strings.Contains(line, ",") && !strings.HasPrefix(line, "id") {
			csv++
		}
	}
	if csv != 6 {
		t.Errorf("%d rows, want those of two generations", csv)
	}
	log, err := os.ReadFile(newestWith(t, filepath.Join(d.root, "orders", "_delta_log"), "SKIP GENERATION"))
	if err != nil || !bytes.Contains(log, []byte("the disk lied")) {
		t.Errorf("the log does not say why: %v\n%s", err, log)
	}
}

// poison damages the file of one generation of a table's only shard.
func poison(t *testing.T, table string, generation int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(table, "_shards", "*", "*", "gen", "*"))
	if err != nil || len(files) < generation {
		t.Fatalf("generations: %v, %v", files, err)
	}
	if err := os.WriteFile(files[generation-1], []byte("this is not Parquet"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newestWith finds the newest file in a folder that contains a word.
func newestWith(t *testing.T, folder, word string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for i := len(files) - 1; i >= 0; i-- {
		if body, err := os.ReadFile(files[i]); err == nil && bytes.Contains(body, []byte(word)) {
			return files[i]
		}
	}
	t.Fatalf("no commit in %s says %q", folder, word)
	return ""
}

func TestAnExecutorIsDrainedAndComesBack(t *testing.T) {
	d := startDev(t, "--executors", "2")
	type executor struct {
		Executor string
		Draining bool
		Active   int
	}
	draining := func(id string, want bool) func() bool {
		return func() bool {
			for _, e := range decode[[]executor](t, must(t, d.env, "executors", "--json")) {
				if e.Executor == id {
					return e.Draining == want && e.Active == 0
				}
			}
			return false
		}
	}
	eventually(t, "both executors", func() bool {
		return len(decode[[]executor](t, must(t, d.env, "executors", "--json"))) == 2
	})
	refused(t, d.env, 1, []string{"dev-executor-1", "dev-executor-2"}, "drain", "nobody")
	says(t, d.env, []string{"Dry run"}, "drain", "dev-executor-1", "--dry-run")
	must(t, d.env, "drain", "dev-executor-1")
	must(t, d.env, "drain", "dev-executor-2")
	eventually(t, "the drain", draining("dev-executor-1", true))
	file := rowsFile(t)
	must(t, d.env, "table", "create", "orders", "--like", file)
	must(t, d.env, "ingest", "orders", file)
	eventually(t, "the warning", func() bool {
		r := tidemark(t, d.env, "explain", "orders")
		return strings.Contains(r.out, "Every executor is draining")
	})
	if r := tidemark(t, d.env, "doctor"); r.status != 1 || !strings.Contains(r.out, "all 2 are draining") {
		t.Errorf("doctor: status %d\n%s", r.status, r.out)
	}
	must(t, d.env, "undrain", "dev-executor-1")
	eventually(t, "the end of the drain", draining("dev-executor-1", false))
	must(t, d.env, "wait", "orders")
	says(t, d.env, []string{"was not asked"}, "undrain", "dev-executor-1")
	refused(t, d.env, 1, []string{"no execution"}, "cancel", "nothing")
}

func TestTheDoctorFindsAHealthyClusterWell(t *testing.T) {
	d := startDev(t)
	eventually(t, "nothing is wrong", func() bool { return tidemark(t, d.env, "doctor").status == 0 })
	says(t, d.env, []string{"ok     store guarantees", "ok     masters: 1, owning all 64 slots", "ok     executors"}, "doctor")
	says(t, d.env, []string{"dev-master"}, "masters")
	if m := decode[[]struct{ Slots []int }](t, must(t, d.env, "masters", "--json")); len(m) != 1 || len(m[0].Slots) != 64 {
		t.Errorf("%+v", m)
	}
	d.stop(t)
	r := tidemark(t, append([]string{"TIDEMARK_ETCD=http://127.0.0.1:1"}, d.env...), "doctor", "--json")
	var findings []struct{ Check, State, Remedy string }
	if err := json.Unmarshal([]byte(r.out), &findings); err != nil || r.status != 1 {
		t.Fatalf("status %d, %v\n%s", r.status, err, r.out)
	}
	for _, f := range findings {
		if f.State == "wrong" && f.Remedy == "" || f.Check == "etcd" && f.State != "wrong" {
			t.Errorf("%+v", f)
		}
	}
}

func TestACleanupIsListedBeforeItIsDone(t *testing.T) {
	d := startDev(t)
	file := rowsFile(t)
	must(t, d.env, "table", "create", "orders", "--like", file)
	must(t, d.env, "ingest", "orders", file)
	must(t, d.env, "wait", "orders")
	says(t, d.env, []string{"orders at version", "shorten the manifest of shard ingest-0", "nothing was changed"}, "cleanup", "orders", "--dry-run")
	says(t, d.env, []string{`"through": 1`, `"deletions": []`}, "cleanup", "orders", "--dry-run", "--json")
	refused(t, d.env, 2, []string{"--dry-run"}, "cleanup", "orders")
}

func TestAListIsWatchedUntilItIsInterrupted(t *testing.T) {
	d := startDev(t)
	eventually(t, "the executors", func() bool { return strings.Contains(must(t, d.env, "executors"), "dev-executor-1") })
	for _, list := range []string{"executors", "masters", "turns", "demand"} {
		p := start(t, d.env, "tidemark", list, "--watch", "100ms")
		eventually(t, list+" is printed again and again", func() bool {
			head := strings.SplitN(p.output.String(), " ", 2)[0]
			return head != "" && strings.Count(p.output.String(), head) > 2
		})
		if status := p.stop(t); status != 0 {
			t.Errorf("%s --watch ended with status %d", list, status)
		}
	}
	refused(t, d.env, 2, []string{"--watch"}, "turns", "--watch", "1ms")
}

func TestShellsAndMenAreToldOfEveryCommand(t *testing.T) {
	script := filepath.Join(t.TempDir(), "completion.bash")
	if err := os.WriteFile(script, []byte(must(t, nil, "completion", "bash")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("bash", "--norc", "-c", `source "$1"; COMP_WORDS=(tidemark policy s); COMP_CWORD=2; _tidemark; echo "${COMPREPLY[@]}"`, "test", script).Output()
	if err != nil || strings.TrimSpace(string(out)) != "set" {
		t.Errorf("completed %q, %v", out, err)
	}
	for _, shell := range []string{"zsh", "fish"} {
		says(t, nil, []string{"explain"}, "completion", shell)
	}
	refused(t, nil, 2, []string{"bash"}, "completion", "cmd")
	dir := filepath.Join(t.TempDir(), "man1")
	must(t, nil, "man", dir)
	for _, page := range []string{"tidemark.1", "tidemark-policy-set.1", "tidemark-skip.1"} {
		if body, err := os.ReadFile(filepath.Join(dir, page)); err != nil || !bytes.HasPrefix(body, []byte(".TH ")) {
			t.Errorf("%s: %v", page, err)
		}
	}
}

func TestAnExecutionIsCancelled(t *testing.T) {
	d := startDev(t, "--demo", "--demo-rate", "200000", "--executors", "1")
	type turn struct{ Execution, Table string }
	var cancelled string
	eventually(t, "an execution is cancelled while it runs", func() bool {
		for _, held := range decode[[]turn](t, must(t, d.env, "turns", "--json")) {
			if r := tidemark(t, d.env, "cancel", held.Execution); r.status == 0 {
				cancelled = held.Execution
				return strings.Contains(r.out, "stops within seconds")
			}
		}
		return false
	})
	eventually(t, "it holds nothing any more", func() bool {
		return !strings.Contains(must(t, d.env, "turns"), cancelled)
	})
}

func TestADropIsTriedFirstAndPurgedOnceTheRetentionHasPassed(t *testing.T) {
	root := t.TempDir()
	env := []string{"TIDEMARK_ROOT=" + root}
	file := rowsFile(t)
	must(t, env, "table", "create", "orders", "--like", file)
	refused(t, env, 2, []string{"--yes", "--dry-run"}, "table", "drop", "orders")
	says(t, env, []string{"dry run", "orders"}, "table", "drop", "orders", "--dry-run")
	must(t, env, "table", "show", "orders")
	says(t, env, []string{"dropped table orders", "deleted 0 objects"}, "table", "drop", "orders", "--yes", "--purge")
	says(t, env, []string{"dropped already", "0 objects would be deleted"}, "table", "drop", "orders", "--dry-run", "--purge")
	refused(t, env, 1, []string{"dropped"}, "table", "show", "orders")
}
