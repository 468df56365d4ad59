package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// serves is where a server says that its page is.
var serves = regexp.MustCompile(`page on (http://\S+),`)

// Commands go through a master by its token alone: they know neither etcd nor the root.
func TestCommandsGoThroughAMasterWithTheRightsOfTheirToken(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"tokens": "bob viewer 0123456789abcdef\nalice operator fedcba9876543210\n", "viewer": "0123456789abcdef\n", "operator": "fedcba9876543210",
	}
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := startDev(t, "--tokens", filepath.Join(dir, "tokens"))
	file := rowsFile(t)
	must(t, d.env, "table", "create", "orders", "--like", file)
	must(t, d.env, "ingest", "orders", file)
	must(t, d.env, "wait", "orders")
	var master string
	eventually(t, "the address", func() bool {
		if m := serves.FindStringSubmatch(d.output.String()); m != nil {
			master = m[1]
		}
		return master != ""
	})
	with := func(token string) []string {
		return []string{"TIDEMARK_ROOT=" + filepath.Join(dir, "nowhere"), "TIDEMARK_MASTER=" + master, "TIDEMARK_TOKEN_FILE=" + filepath.Join(dir, token)}
	}
	eventually(t, "the table is seen", func() bool { return strings.Contains(must(t, with("viewer"), "tables"), "orders") })
	for _, command := range [][]string{
		{"overview"}, {"tables", "--search", "ORD", "--limit", "1"}, {"demand"}, {"demand", "orders"}, {"turns"}, {"executors"}, {"masters"},
		{"failures"}, {"explain", "orders"}, {"policy", "get"}, {"policy", "get", "orders"}, {"commits", "orders", "--limit", "2"},
	} {
		r := tidemark(t, with("viewer"), command...)
		if r.status != 0 || r.errors != "" {
			t.Errorf("tidemark %s: status %d, %s", strings.Join(command, " "), r.status, r.errors)
		}
		if json := must(t, with("viewer"), append(command, "--json")...); !strings.HasPrefix(json, "[") && !strings.HasPrefix(json, "{") {
			t.Errorf("tidemark %s --json: %s", strings.Join(command, " "), json)
		}
	}
	refused(t, with("viewer"), 1, []string{"bob is a viewer", master}, "pause", "orders")
	refused(t, with("tokens"), 1, []string{"one token"}, "pause", "orders")
	says(t, with("operator"), []string{"orders is paused"}, "pause", "orders")
	says(t, with("operator"), []string{"orders is resumed"}, "resume", "orders")
	commit, err := os.ReadFile(newestWith(t, filepath.Join(d.root, "orders", "_delta_log"), "commitInfo"))
	if err != nil || !strings.Contains(string(commit), "alice") {
		t.Errorf("the log does not say who resumed it: %v\n%s", err, commit)
	}
	// The master that etcd names asks for a token that nobody gave, and one that nobody named gets none.
	if r := tidemark(t, d.env, "masters"); r.status != 0 || !strings.Contains(r.out, "dev-master") || !strings.Contains(r.errors, "asks for a token") {
		t.Errorf("status %d\n%s%s", r.status, r.out, r.errors)
	}
	refused(t, d.env, 1, []string{"asks for a token", "--direct"}, "pause", "orders")
	refused(t, append([]string{"TIDEMARK_TOKEN_FILE=" + filepath.Join(dir, "operator")}, d.env...), 2, []string{"--master"}, "pause", "orders")
}

func TestWithoutAMasterCommandsReadDirectlyAndActOnlyIfToldTo(t *testing.T) {
	d := startDev(t)
	file := rowsFile(t)
	must(t, d.env, "table", "create", "orders", "--like", file)
	must(t, d.env, "ingest", "orders", file)
	must(t, d.env, "wait", "orders")
	eventually(t, "the table is seen", func() bool { return strings.Contains(must(t, d.env, "tables"), "orders") })
	alone := append([]string{"TIDEMARK_MASTER=http://127.0.0.1:1"}, d.env...)
	for _, command := range [][]string{
		{"overview"}, {"tables"}, {"demand"}, {"demand", "orders"}, {"turns"}, {"executors"}, {"masters"}, {"failures"}, {"explain", "orders"},
		{"policy", "get", "orders"}, {"commits", "orders"},
	} {
		through, direct := must(t, d.env, append(command, "--json")...), tidemark(t, alone, append(command, "--json")...)
		if direct.status != 0 || !strings.Contains(direct.errors, "directly") || !strings.Contains(direct.errors, "127.0.0.1:1") {
			t.Errorf("tidemark %s: status %d, and does not say why it reads directly: %s", strings.Join(command, " "), direct.status, direct.errors)
		}
		if shape(through) != shape(direct.out) {
			t.Errorf("tidemark %s shows\n%s\nthrough a master and\n%s\nwithout", strings.Join(command, " "), through, direct.out)
		}
	}
	refused(t, alone, 1, []string{"127.0.0.1:1", "--direct"}, "pause", "orders")
	says(t, alone, []string{"orders is paused"}, "pause", "orders", "--direct")
	says(t, alone, []string{"paused already"}, "pause", "orders", "--direct")
	eventually(t, "the master has seen the pause", func() bool { return strings.Contains(must(t, d.env, "tables"), "paused") })
}

// shape is what stays the same in JSON from one moment to the next: names, in order.
func shape(json string) string {
	return strings.Join(regexp.MustCompile(`"\w+":`).FindAllString(json, -1), "")
}
