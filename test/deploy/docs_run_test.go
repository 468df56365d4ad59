package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// cannot are the commands of the docs that do not run here, by how they begin, and why. Their programs, subcommands and flags
// are looked up all the same, by TestEveryCommandInTheDocsExists.
var cannot = map[string]string{
	"docker ":                             "there is no container engine; the commands of docker-compose.yml run as plain processes in TestTheCommandsOfComposeServeTheDemo",
	"make demo-compose":                   "as docker",
	"kubectl ":                            "there is no Kubernetes; its manifests are decoded strictly in kubernetes_test.go",
	"make run":                            "serves until it is interrupted; it is `tidemark dev --demo`, which this test runs",
	"make test":                           "this is one of the tests",
	"make sim":                            "takes minutes; CI runs it",
	"TIDEMARK_SIM_LOG=1 make sim":         "as make sim",
	"make specs":                          "takes minutes and Java",
	"bin/tidemark dev &":                  "this test has started it, on the same root",
	"bin/tidemark-master ":                "serves until it is stopped; docker-compose.yml has the same command",
	"bin/tidemark-executor ":              "as tidemark-master",
	"tidemark-master ":                    "as bin/tidemark-master, on addresses of other machines",
	"tidemark-executor ":                  "as tidemark-master",
	"export TIDEMARK_":                    "where other machines are; what uses it does not run here",
	"etcdctl ":                            "needs an etcd with users; TestAnEtcdThatAsksForACertificateAndAUserIsReachedWithBoth has one",
	"curl --cacert ":                      "of a server on an address of another machine; TestTLSServesAndAsksClientsForACertificateOfTheAuthority has one",
	"tidemark standalone --root s3://":    "needs a bucket; test/e2e has one",
	"tidemark ingest flights flights.par": "as standalone: it names the bucket",
	"tidemark root unlock ":               "needs a holder that is gone; test/e2e has one",
}

// onTheDeployment are the pages whose commands of ours run against a whole deployment: runCommandsOfThePages.
var onTheDeployment = []string{"docs/runbook.md", "docs/operations.md"}

// fenced are the blocks of a page that run.
var fenced = regexp.MustCompile("(?ms)^```(sh|python)\n(.*?)^```$")

// script is what of a block of shell runs here, and which exceptions were taken.
func script(page, block string) (lines []string, taken []string) {
	for _, line := range strings.Split(strings.ReplaceAll(block, "\\\n", " "), "\n") {
		bare := strings.TrimSpace(line)
		if bare == "" || slices.Contains(onTheDeployment, page) && strings.HasPrefix(bare, "tidemark ") {
			continue
		}
		exception := ""
		for begins := range cannot {
			if strings.HasPrefix(bare+" ", begins) || bare == strings.TrimSpace(begins) {
				exception = begins
			}
		}
		if exception != "" {
			taken = append(taken, exception)
			continue
		}
		lines = append(lines, line)
	}
	return lines, taken
}

// Every block of shell in the docs runs, from the top of a checkout beside `tidemark dev --demo`, but for the lines that cannot, and
// every block of Python between them. The quickstart, which starts its own server, has a test of its own.
func TestEveryCommandOfTheDocsRuns(t *testing.T) {
	slow(t)
	tool(t, "promtool", "install Prometheus")
	tool(t, "curl", "install curl")
	dir := t.TempDir()
	for _, part := range []string{"bin", "deploy"} {
		path, err := filepath.Abs(checkout(part))
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, part))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d := &deployment{ports: map[string]string{}}
	listen := d.address(t, "dev", "7077")
	environment := append(os.Environ(), "TIDEMARK_ROOT="+filepath.Join(dir, "tidemark-data"), "PATH="+filepath.Dir(built(t, "tidemark"))+":"+os.Getenv("PATH"))
	bash := func(text string) ([]byte, error) {
		text = strings.NewReplacer("127.0.0.1:7077", listen, "127.0.0.1:7078", listen).Replace(text)
		cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\ncurl() { command curl --fail-with-body --silent --show-error \"$@\"; }\n"+text)
		cmd.Dir, cmd.Env = dir, environment
		return cmd.CombinedOutput()
	}
	python, err := filepath.Abs(checkout(".venv", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("%v: run `make readers`, as `make test-deploy` does", err)
	}
	inPython := func(text string) string { return "'" + python + "' - <<'END OF PYTHON'\n" + text + "\nEND OF PYTHON\n" }
	server := exec.Command(built(t, "tidemark"), "dev", "--demo", "--demo-rate", "5000", "--listen", listen)
	server.Dir, server.Env = dir, environment
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Signal(os.Interrupt)
		if err := server.Wait(); err != nil {
			t.Errorf("the development server: %v", err)
		}
	}()
	// A file of flights as the pages have one, and the demo's tables.
	made, err := bash(`tidemark probe --wait 60s http://127.0.0.1:7077/readyz
until tidemark table show demo/orders >/dev/null 2>&1; do sleep 0.2; done
printf 'origin,destination,date\nBGO,OSL,2026-03-01\nOSL,TOS,2026-03-02\n' > flights.csv
tidemark table create sample --like flights.csv
tidemark ingest sample flights.csv
tidemark wait sample
cp tidemark-data/sample/*.parquet flights.parquet
printf 'day,country,what\n2026-03-01,NO,rain\n' > events.csv
tidemark table create rain --like events.csv
tidemark ingest rain events.csv
tidemark wait rain
cp tidemark-data/rain/*.parquet events.parquet
` + inPython(`
import pyarrow as pa, pyarrow.parquet as pq
from deltalake import write_deltalake
sales = pa.table({"id": [4, 5], "amount": [1.0, 0.25]})
pq.write_table(sales, "more-sales.parquet")
write_deltalake("tidemark-data/sales", sales)`))
	if err != nil {
		t.Fatalf("%v\n%s", err, made)
	}
	// Two pages make a table of one name.
	before := map[string]string{"docs/tables.md": "tidemark table drop flights --yes\n"}
	used, ran := map[string]bool{}, 0
	for _, page := range pages(t) {
		if page == "docs/quickstart.md" {
			continue
		}
		for _, m := range fenced.FindAllStringSubmatch(read(t, page), -1) {
			lines, taken := strings.Split(strings.TrimSpace(m[2]), "\n"), []string(nil)
			if m[1] == "sh" {
				lines, taken = script(page, m[2])
			}
			for _, exception := range taken {
				used[exception] = true
			}
			if len(lines) == 0 {
				continue
			}
			ran += len(lines)
			began := time.Now()
			text := before[page] + strings.Join(lines, "\n")
			if m[1] == "python" {
				text = inPython(strings.Join(lines, "\n"))
			}
			out, err := bash(text)
			delete(before, page)
			t.Logf("%s: %d lines, %v", page, len(lines), time.Since(began).Round(time.Millisecond))
			if err != nil {
				t.Errorf("%s: %v\n%s\n%s", page, err, strings.Join(lines, "\n"), out)
			}
		}
	}
	// What docs/tables.md adopts is read with what was ingested into it: in a root without a server, and in that of this one.
	for _, adopted := range []struct {
		command string
		rows    []string
	}{
		{"tidemark cat sales --root data --fresh", []string{"1,10.0", "2,2.5", "3,7.25", "4,1.0", "5,0.25"}},
		{"tidemark ingest sales more-sales.parquet && tidemark wait sales && tidemark cat sales", []string{"4,1.0", "4,1.0", "5,0.25", "5,0.25"}},
	} {
		out, err := bash(adopted.command + " | sort")
		if err != nil {
			t.Errorf("%s: %v\n%s", adopted.command, err, out)
		}
		got := slices.DeleteFunc(strings.Fields(string(out)), func(line string) bool { return !strings.Contains(line, ",") || line == "id,amount" })
		if !slices.Equal(got, adopted.rows) {
			t.Errorf("%s prints %q, want %q", adopted.command, got, adopted.rows)
		}
	}
	for exception, why := range cannot {
		if !used[exception] {
			t.Errorf("no command of the docs begins with %q any more (%s)", exception, why)
		}
	}
	t.Logf("%d lines ran, %d kinds cannot", ran, len(cannot))
}
