package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages are the documents for people, relative to the checkout.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "deploy/README.md"} {
		paths, err := filepath.Glob(checkout(pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", pattern, paths, err)
		}
		for _, path := range paths {
			relative, err := filepath.Rel(checkout(), path)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, relative)
		}
	}
	return all
}

// blocks are the contents of a page's fenced blocks of a language.
func blocks(text, language string) []string {
	var all []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

var (
	heredoc = regexp.MustCompile(`(?ms)<<'(\w+)'\n.*?^(\w+)$`)
	// Quoted text says nothing about which commands there are.
	quotes   = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	splitter = regexp.MustCompile(`\|\||&&|[|;&\n]`)
	assigned = regexp.MustCompile(`^[A-Z_]+=`)
)

// commands are the simple commands of a block of shell: words without redirections, comments and what stands between
// quotes.
func commands(block string) [][]string {
	block = heredoc.ReplaceAllString(block, "")
	block = strings.ReplaceAll(block, "\\\n", " ")
	// What a command substitution runs is a command too.
	block = regexp.MustCompile(`\$\(([^()]*)\)`).ReplaceAllString(block, "\n$1\n")
	block = quotes.ReplaceAllString(block, "QUOTED")
	var all [][]string
	for _, line := range strings.Split(block, "\n") {
		if i := strings.Index(" "+line, " #"); i >= 0 {
			line = line[:i]
		}
		for _, part := range splitter.Split(regexp.MustCompile(`\d?>&?\s*\S+|<\s*\S+`).ReplaceAllString(line, ""), -1) {
			words := strings.Fields(part)
			for len(words) > 0 && assigned.MatchString(words[0]) {
				words = words[1:]
			}
			if len(words) > 0 {
				all = append(all, words)
			}
		}
	}
	return all
}

// foreign are programs of others that the docs may use.
var foreign = []string{"cat", "cd", "curl", "docker", "etcdctl", "export", "git", "go", "kubectl", "openssl", "pip", "printf", "promtool", "sed", "umask", "QUOTED"}

func TestCommandsOfTheDocsAreUnderstood(t *testing.T) {
	got := commands("FOO=1 bin/tidemark cat t --limit 5 > out 2>&1 & # comment\nmake run && curl -s 'http://x;y' | sed s/a/b/\ncat > f <<'END'\nrm -rf /\nEND\na \\\n  b $(c d)\n")
	var lines []string
	for _, words := range got {
		lines = append(lines, strings.Join(words, " "))
	}
	want := []string{"bin/tidemark cat t --limit 5", "make run", "curl -s QUOTED", "sed s/a/b/", "cat", "a b", "c d"}
	if !slices.Equal(lines, want) {
		t.Errorf("%q", lines)
	}
}

// Every command in a block of shell is one that there is: targets of make, and programs of ours with subcommands and flags
// that their help knows.
func TestEveryCommandInTheDocsExists(t *testing.T) {
	makefile := read(t, "Makefile")
	help := map[string]string{}
	for _, page := range pages(t) {
		for _, block := range blocks(read(t, page), "sh") {
			for _, words := range commands(block) {
				program := strings.TrimPrefix(words[0], "bin/")
				switch {
				case program == "make":
					for _, target := range words[1:] {
						if strings.Contains(target, "=") {
							continue // a variable of the target
						}
						if !strings.Contains(makefile, "\n"+target+":") {
							t.Errorf("%s: make has no target %s", page, target)
						}
					}
				case program == "tidemark" || program == "tidemark-master" || program == "tidemark-executor":
					if os.Getenv("TIDEMARK_DEPLOY_TESTS") != "" {
						checkCommand(t, page, program, words[1:], help)
					}
				case !slices.Contains(foreign, program):
					t.Errorf("%s: %q is no command that the docs may use without this test knowing it", page, strings.Join(words, " "))
				}
			}
		}
	}
}

// linesMax is two screens.
const linesMax = 100

func TestTheReadmeIsTwoScreensAndLeadsToEveryPage(t *testing.T) {
	readme := read(t, "README.md")
	if n := strings.Count(readme, "\n"); n > linesMax {
		t.Errorf("README.md has %d lines, more than %d", n, linesMax)
	}
	for _, page := range pages(t) {
		if page != "README.md" && !strings.Contains(readme, "]("+page+")") {
			t.Errorf("README.md does not lead to %s", page)
		}
	}
}

// checkCommand looks a command up in the help of its program.
func checkCommand(t *testing.T, page, program string, words []string, help map[string]string) {
	t.Helper()
	ask := func(path []string) string {
		key := program + " " + strings.Join(path, " ")
		if help[key] == "" {
			out, err := exec.CommandContext(t.Context(), built(t, program), append(path, "--help")...).CombinedOutput()
			help[key] = string(out)
			if err != nil {
				help[key] = "no such command"
			}
		}
		return help[key]
	}
	var path []string
	for _, w := range words { // the words that are subcommands
		if strings.HasPrefix(w, "-") || program != "tidemark" || !strings.Contains(ask(path), "\nCommands:\n") {
			break
		}
		path = append(path, w)
	}
	text := ask(path)
	if !strings.HasPrefix(text, "Usage: ") {
		t.Errorf("%s: there is no `%s %s`", page, program, strings.Join(path, " "))
		return
	}
	for _, w := range words[len(path):] {
		flag, _, _ := strings.Cut(w, "=")
		if strings.HasPrefix(flag, "--") && !regexp.MustCompile(regexp.QuoteMeta(flag)+`\b`).MatchString(text) {
			t.Errorf("%s: `%s %s` has no flag %s", page, program, strings.Join(path, " "), flag)
		}
	}
	if !strings.Contains(text, "<") && len(path) < len(words) && !strings.HasPrefix(words[len(path)], "-") {
		t.Errorf("%s: `%s %s` takes no argument %s", page, program, strings.Join(path, " "), words[len(path)])
	}
}

// Whoever sees a code finds it in the runbook.
func TestTheRunbookHasEveryFailureCode(t *testing.T) {
	runbook := read(t, "docs", "runbook.md")
	codes := regexp.MustCompile(`(?m)^\s+Code\w+ += "([a-z_]+)"`).FindAllStringSubmatch(read(t, "internal", "merge", "errors.go"), -1)
	codes = append(codes, regexp.MustCompile(`(?m)^\s+"([a-z_]+)":`).FindAllStringSubmatch(read(t, "internal", "schedule", "remedy.go"), -1)...)
	if len(codes) < 20 {
		t.Fatalf("only %d codes found", len(codes))
	}
	for _, m := range codes {
		if !strings.Contains(runbook, "\n| `"+m[1]+"` |") {
			t.Errorf("docs/runbook.md does not say what to do about %s", m[1])
		}
	}
}

// The quickstart works as it stands: its blocks of shell run as one script, with the Python and Go between them where they
// stand.
func TestTheQuickstartWorks(t *testing.T) {
	slow(t)
	page := read(t, "docs", "quickstart.md")
	dir := t.TempDir()
	bin, err := filepath.Abs(checkout("bin"))
	if err != nil {
		t.Fatal(err)
	}
	built(t, "tidemark")
	python, err := filepath.Abs(checkout(".venv", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	listen := (&deployment{ports: map[string]string{}}).address(t, "dev", "7077")
	var script strings.Builder
	script.WriteString("set -euo pipefail\ntrap 'kill $(jobs -p) && wait' EXIT\nmake() { :; }\n")
	for i, m := range regexp.MustCompile("(?ms)^```(sh|python|go)\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		file := filepath.Join(dir, "block-"+string(rune('a'+i))+map[string]string{"python": ".py", "go": ".go"}[m[1]])
		switch m[1] {
		case "sh":
			script.WriteString(strings.ReplaceAll(m[2], "127.0.0.1:7077", listen))
			continue
		case "python":
			if _, err := os.Stat(python); err != nil {
				if os.Getenv("TIDEMARK_REQUIRE_ALL") != "" {
					t.Fatalf("%v: run `make readers`", err)
				}
				t.Logf("without Python: %v; run `make readers`", err)
				continue
			}
			script.WriteString(python + " " + file + "\n")
		case "go":
			// In the checkout, as the page says, but with the root where the script has it.
			m[2] = strings.ReplaceAll(m[2], `"tidemark-data"`, `"`+filepath.Join(dir, "tidemark-data")+`"`)
			script.WriteString("(cd " + filepath.Dir(bin) + " && go run " + file + ")\n")
		}
		if err := os.WriteFile(file, []byte(m[2]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script.WriteString("tidemark wait trips\necho all of trips:; tidemark cat trips\necho all of fleet:; tidemark cat fleet\n")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TIDEMARK_LISTEN="+listen, "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, end, _ := strings.Cut(string(out), "all of trips:")
	for _, row := range []string{"1,Bergen", "5,Bodø", "6,Narvik", "2,Oslo,2026-03-01T09:00:00Z,12.5"} {
		if !strings.Contains(end, row) {
			t.Errorf("the tables do not hold %s:\n%s", row, end)
		}
	}
	if _, fleet, _ := strings.Cut(end, "all of fleet:"); strings.Contains(fleet, "\n3,") {
		t.Errorf("trip 3 was deleted, and is there:\n%s", fleet)
	}
}
