package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// servesRoot waits until an all-in-one server says that it serves its root.
func servesRoot(t *testing.T, p *process) {
	t.Helper()
	eventually(t, "the server serves its root", func() bool { return strings.Contains(p.output.String(), "serving root") })
}

func TestALocalRootHasOneServerAndIsFreeAtOnceWhenThatIsKilled(t *testing.T) {
	d := startDev(t)
	servesRoot(t, d.process)
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, []byte("a\n1\n2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, d.env, "table", "create", "kept", "--like", file)
	must(t, d.env, "ingest", "kept", file)
	quiet := append([]string{"TIDEMARK_LOG_LEVEL=error"}, d.env...)
	standalone := func() *process { return start(t, quiet, "tidemark", "standalone", "--listen", "127.0.0.1:0") }

	// A development server holds it, as a cluster without a lease.
	lock := decode[shownRoot](t, must(t, d.env, "root", "show", "--json"))
	refused(t, quiet, 1, []string{d.root, lock.ID, "another process of this machine"}, "standalone", "--listen", "127.0.0.1:0")
	refused(t, quiet, 1, []string{lock.ID, "another process of this machine"}, "root", "unlock", "--id", lock.ID)
	d.kill()
	refused(t, quiet, 1, []string{"tidemark root unlock --root " + d.root + " --id " + lock.ID}, "standalone", "--listen", "127.0.0.1:0")
	must(t, d.env, "root", "unlock", "--id", lock.ID)

	first := standalone()
	servesRoot(t, first)
	must(t, d.env, "wait", "kept")
	holder := decode[shownRoot](t, must(t, d.env, "root", "show", "--json"))
	if holder.Kind != "standalone" {
		t.Errorf("%+v", holder)
	}
	refused(t, quiet, 1, []string{holder.ID, "another process of this machine"}, "standalone", "--listen", "127.0.0.1:0")
	first.kill()

	second := standalone()
	servesRoot(t, second)
	must(t, d.env, "ingest", "kept", file)
	must(t, d.env, "wait", "kept")
	readBoth(t, filepath.Join(d.root, "kept"), `select count(*) n, sum(a)::bigint total from t`, map[string]any{"n": 4, "total": 6})
	if status := second.stop(t); status != 0 {
		t.Errorf("SIGTERM ended the server with status %d", status)
	}
	if r := decode[shownRoot](t, must(t, d.env, "root", "show", "--json")); r.Kind != "released" {
		t.Errorf("a clean stop left the root held: %+v", r)
	}
}
