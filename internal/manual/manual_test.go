package manual

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// sample is a small command line with everything that matters: nesting, enums, switches, hidden things.
type sample struct {
	Table struct {
		Create struct {
			Name  string `arg:"" help:"The table."`
			Mode  string `enum:"append,upsert" default:"append" help:"What merging does." env:"MODE"`
			Quiet bool   `help:"Say 'nothing'."`
			Must  string `required:"" placeholder:"TEXT" help:"Needed."`
		} `cmd:"" help:"Create a table."`
		List struct{} `cmd:"" help:"List tables."`
	} `cmd:"" help:"Tables."`
	Turns  struct{} `cmd:"" help:"List turns."`
	Secret struct{} `cmd:"" hidden:"" help:"Nothing to see."`
}

func model(t *testing.T) *kong.Application {
	t.Helper()
	k, err := kong.New(&sample{}, kong.Name("sample"), kong.Description("Samples things.\n\nIn long:\n\n  sample turns"))
	if err != nil {
		t.Fatal(err)
	}
	return k.Model
}

func TestBashCompletesCommandsFlagsAndValues(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	var script bytes.Buffer
	if err := Bash(&script, model(t)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "completion.bash")
	if err := os.WriteFile(path, script.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		typed []string // the last one is being typed
		want  []string
	}{
		{[]string{""}, []string{"--help", "table", "turns"}},
		{[]string{"t"}, []string{"table", "turns"}},
		{[]string{"table", ""}, []string{"--help", "create", "list"}},
		{[]string{"table", "create", "orders", "--m"}, []string{"--mode", "--must"}},
		{[]string{"table", "create", "--mode", ""}, []string{"append", "upsert"}},
		{[]string{"table", "create", "--mode", "u"}, []string{"upsert"}},
		{[]string{"table", "create", "--must", "x"}, nil},
		{[]string{"table", "create", "--quiet", "--q"}, []string{"--quiet"}},
		{[]string{"turns", "--"}, []string{"--help"}},
	} {
		cmd := exec.Command(bash, append([]string{"--norc", "-c", `source "$1"; shift; COMP_WORDS=(sample "$@"); COMP_CWORD=$#; _sample; printf '%s\n' "${COMPREPLY[@]}"`, "test", path}, c.typed...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v", c.typed, err)
		}
		got := strings.Fields(string(out))
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("after %q: %q, want %q", c.typed, got, c.want)
		}
	}
}

func TestZshAndFishAreToldTheSame(t *testing.T) {
	var zsh, fish bytes.Buffer
	if err := Zsh(&zsh, model(t)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(zsh.String(), "bashcompinit") || !strings.Contains(zsh.String(), "complete -o default -F _sample sample") {
		t.Error(zsh.String())
	}
	if err := Fish(&fish, model(t)); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`complete -c sample -f -n 'not __fish_seen_subcommand_from table turns secret' -a table -d 'Tables.'`,
		`complete -c sample -f -n '__fish_seen_subcommand_from table; and not __fish_seen_subcommand_from create list' -a create -d 'Create a table.'`,
		`complete -c sample -n '__fish_seen_subcommand_from table; and __fish_seen_subcommand_from create' -l mode -x -a 'append upsert' -d 'What merging does.'`,
		`-l quiet -d 'Say \'nothing\'.'`,
	} {
		if !strings.Contains(fish.String(), line) {
			t.Errorf("fish is not told %s\n%s", line, fish.String())
		}
	}
	if strings.Contains(fish.String(), "-a secret") {
		t.Error("hidden commands are completed")
	}
}

func TestThereIsAManPageOfEveryCommand(t *testing.T) {
	pages := Pages(model(t), "1.2")
	var titles []string
	for title := range pages {
		titles = append(titles, title)
	}
	slices.Sort(titles)
	if !slices.Equal(titles, []string{"sample", "sample-table", "sample-table-create", "sample-table-list", "sample-turns"}) {
		t.Error(titles)
	}
	text := func(title string) string {
		var b bytes.Buffer
		if err := pages[title](&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	whole := text("sample")
	for _, want := range []string{`.TH SAMPLE 1 "" "sample 1.2" "sample"`, `sample \- Samples things`, ".nf\n  sample turns\n.fi", `.BR sample\-turns (1)`} {
		if !strings.Contains(whole, want) {
			t.Errorf("sample.1 does not say %q:\n%s", want, whole)
		}
	}
	create := text("sample-table-create")
	for _, want := range []string{`NAME \-\-must TEXT [OPTIONS]`, `.B \-\-mode MODE`, "(default: append) ($MODE)", ".B \\-\\-quiet\n", ".BR sample (1)"} {
		if !strings.Contains(create, want) {
			t.Errorf("sample-table-create.1 does not say %q:\n%s", want, create)
		}
	}
	if man, err := exec.LookPath("mandoc"); err == nil {
		cmd := exec.Command(man, "-T", "lint", "-W", "warning")
		cmd.Stdin = strings.NewReader(create)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("mandoc: %v\n%s", err, out)
		}
	}
	if err := pages["sample"](failing{}); err == nil {
		t.Error("a failed write is not told")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
