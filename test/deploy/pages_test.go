package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refusedHere are commands of the pages that are right to refuse on a deployment that is well.
var refusedHere = map[string]string{
	"tidemark retry": "nothing fails",
	"tidemark skip":  "nothing fails",
}

// runCommandsOfThePages runs every command of ours in the pages for operators against the deployment, in the order in
// which they stand, on a table of the name that they use.
func (d *deployment) runCommandsOfThePages(t *testing.T) {
	t.Helper()
	rows := filepath.Join(d.dir, "flights.csv")
	if err := os.WriteFile(rows, []byte("id,origin\n1,BGO\n2,OSL\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(words ...string) (string, error) {
		out, err := d.command(t, "cli", append([]string{"/tidemark"}, words...)).CombinedOutput()
		return string(out), err
	}
	for _, words := range [][]string{{"table", "create", "flights", "--like", rows}, {"ingest", "flights", rows, "--shards", "1"}, {"wait", "flights"}} {
		if out, err := run(words...); err != nil {
			t.Fatalf("tidemark %v: %v\n%s", words, err, out)
		}
	}
	local := strings.NewReplacer("127.0.0.1:7078", d.address(t, "master-1", "7078"))
	for _, page := range []string{"docs/runbook.md", "docs/operations.md"} {
		for _, block := range blocks(read(t, page), "sh") {
			for _, words := range commands(block) {
				if words[0] != "tidemark" {
					continue
				}
				command := local.Replace(strings.Join(words[1:], " "))
				out, err := run(strings.Fields(command)...)
				why, refused := refusedHere[strings.Join(words[:2], " ")]
				if refused != (err != nil) {
					t.Errorf("%s: tidemark %s: %v %s\n%s", page, command, err, why, out)
				}
			}
		}
	}
}
