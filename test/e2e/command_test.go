package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryMistakeIsOneClearLineAndAStatus(t *testing.T) {
	root := t.TempDir()
	env := []string{"TIDEMARK_ROOT=" + root}
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, []byte("a\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, env, "table", "create", "known", "--like", file)

	missing := filepath.Join(root, "nowhere")
	refused(t, nil, 1, []string{missing}, "table", "list", "--root", missing)
	refused(t, nil, 1, []string{file}, "table", "list", "--root", file)
	refused(t, env, 1, []string{"unknown"}, "table", "show", "unknown")
	refused(t, env, 1, []string{"unknown"}, "ingest", "unknown", file)
	refused(t, env, 1, []string{"nothing.csv"}, "ingest", "known", "nothing.csv")
	refused(t, env, 1, []string{"known"}, "table", "create", "known", "--like", file)
	refused(t, env, 1, []string{"known"}, "table", "create", "known/inside", "--like", file)
	refused(t, env, 2, []string{"--no-such-flag"}, "table", "list", "--no-such-flag")
	refused(t, env, 2, []string{"--yes"}, "table", "drop", "known")
	refused(t, env, 2, []string{"--key"}, "table", "create", "other", "--like", file, "--buckets", "3")
	refused(t, env, 1, []string{"127.0.0.1:1"}, "demand", "--etcd", "http://127.0.0.1:1")
	refused(t, env, 2, nil, "frobnicate")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	refused(t, env, 1, []string{taken.Addr().String(), "--listen"}, "dev", "--listen", taken.Addr().String())

	if os.Geteuid() != 0 { // root may write everywhere
		sealed := filepath.Join(root, "sealed")
		if err := os.Mkdir(sealed, 0o500); err != nil {
			t.Fatal(err)
		}
		refused(t, nil, 1, []string{sealed}, "table", "list", "--root", sealed)
	}
}

func TestHelpOfEveryCommandTeaches(t *testing.T) {
	for _, command := range [][]string{
		{}, {"dev"}, {"table", "create"}, {"table", "list"}, {"table", "show"}, {"table", "drop"}, {"ingest"}, {"wait"},
		{"cat"}, {"demand"}, {"turns"}, {"executors"}, {"standalone"}, {"root", "show"}, {"root", "unlock"},
		{"explain"}, {"failures"}, {"masters"}, {"doctor"}, {"merge"}, {"pause"}, {"resume"}, {"policy", "get"}, {"policy", "set"}, {"policy", "unset"},
		{"retry"}, {"skip"}, {"cancel"}, {"drain"}, {"undrain"}, {"cleanup"}, {"completion"}, {"man"},
	} {
		r := tidemark(t, nil, append(command, "--help")...)
		if r.status != 0 || !strings.Contains(r.out, "Usage: tidemark") {
			t.Errorf("tidemark %v --help: status %d\n%s", command, r.status, r.out)
		}
	}
}

func TestADroppedTableStartsFromZero(t *testing.T) {
	d := startDev(t)
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, []byte("a\n1\n2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, d.env, "table", "create", "phoenix", "--like", file)
	must(t, d.env, "ingest", "phoenix", file)
	must(t, d.env, "wait", "phoenix")
	first := decode[shown](t, must(t, d.env, "table", "show", "phoenix", "--json")).ID
	must(t, d.env, "table", "drop", "phoenix", "--yes")
	refused(t, d.env, 1, []string{"phoenix"}, "table", "show", "phoenix")

	must(t, d.env, "table", "create", "phoenix", "--like", file)
	second := decode[shown](t, must(t, d.env, "table", "show", "phoenix", "--json"))
	if second.ID == first || len(second.Shards) != 0 {
		t.Errorf("the new table is not a new one: %+v", second)
	}
	must(t, d.env, "ingest", "phoenix", file)
	must(t, d.env, "wait", "phoenix")
	readBoth(t, filepath.Join(d.root, "phoenix"), `select count(*) n from t`, map[string]any{"n": 2})
}

func TestTheDemoMergesAMillionRowsVerifiesThemAndEnds(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	out := must(t, []string{"TIDEMARK_ROOT=" + root}, "dev", "--demo", "--exit", "--listen", "127.0.0.1:0")
	if !strings.Contains(out, "verified") {
		t.Errorf("the demo does not say what it verified:\n%s", out)
	}
	t.Log(tail(out))
	readBoth(t, filepath.Join(root, "demo", "events"), `select count(*) n, count(distinct event_id) ids from t`,
		readTwice(t, filepath.Join(root, "demo", "events")))
}

// readTwice checks that no event is there twice: it returns the number of distinct ids as both numbers.
func readTwice(t *testing.T, table string) map[string]any {
	t.Helper()
	ids := read(t, "duckdb", table, `select count(distinct event_id) ids from t`)["ids"]
	return map[string]any{"n": ids, "ids": ids}
}

func TestBothProcessesServeTheirState(t *testing.T) {
	f := startFleet(t)
	for _, p := range []*process{f.master("master-1"), f.executor("executor-1")} {
		eventually(t, p.name+" is ready", p.ready)
		url := p.url()
		if status, body := fetch(t, url+"/healthz"); status != 200 {
			t.Errorf("%s: healthz: %d %s", p.name, status, body)
		}
		if status, body := fetch(t, url+"/status"); status != 200 || !strings.Contains(body, "\"state\": \"held\"") {
			t.Errorf("%s: status: %d %s", p.name, status, body)
		}
		if status, body := fetch(t, url+"/metrics"); status != 200 || !strings.Contains(body, "tidemark_") {
			t.Errorf("%s: metrics: %d %s", p.name, status, body)
		}
	}
}
