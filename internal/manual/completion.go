package manual

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// word is something that can be typed next, with a line of help.
type word struct{ text, help string }

// commands visits every command below a node, and the node itself first. path is the words that lead to it, each after a
// space.
func commands(n *kong.Node, path string, visit func(path string, n *kong.Node)) {
	visit(path, n)
	for _, child := range n.Children {
		if !child.Hidden && child.Type == kong.CommandNode {
			commands(child, path+" "+child.Name, visit)
		}
	}
}

// words are the commands and flags that can follow a command.
func words(n *kong.Node) (all []word) {
	for _, child := range n.Children {
		if !child.Hidden && child.Type == kong.CommandNode {
			all = append(all, word{child.Name, child.Help})
		}
	}
	for _, flag := range flags(n) {
		all = append(all, word{"--" + flag.Name, flag.Help})
	}
	return all
}

// flags are those of a command and of all above it, by name.
func flags(n *kong.Node) (all []*kong.Flag) {
	for _, group := range n.AllFlags(true) {
		all = append(all, group...)
	}
	slices.SortFunc(all, func(a, b *kong.Flag) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// takesValue says that a flag is followed by a value.
func takesValue(f *kong.Flag) bool { return !f.IsBool() && !f.IsCounter() }

// Bash writes a completion script for bash.
func Bash(w io.Writer, app *kong.Application) error {
	name := app.Name
	f := "_" + strings.ReplaceAll(name, "-", "_")
	var paths, cases, values strings.Builder
	valued := map[string]string{} // values by flag, in whatever command
	commands(app.Node, "", func(path string, n *kong.Node) {
		if path != "" {
			fmt.Fprintf(&paths, "      %q) path=\"$next\" ;;\n", path)
		}
		var texts []string
		for _, next := range words(n) {
			texts = append(texts, next.text)
		}
		fmt.Fprintf(&cases, "    %q) words=%q ;;\n", path, strings.Join(texts, " "))
		for _, flag := range flags(n) {
			if takesValue(flag) {
				valued["--"+flag.Name] = strings.Join(enum(flag), " ")
			}
		}
	})
	for _, flag := range sorted(valued) {
		if valued[flag] != "" {
			fmt.Fprintf(&values, "    %s) COMPREPLY=($(compgen -W %q -- \"$cur\")); return ;;\n", flag, valued[flag])
		} else {
			fmt.Fprintf(&values, "    %s) return ;;\n", flag) // a file, as far as the shell knows
		}
	}
	_, err := fmt.Fprintf(w, `# bash completion for %[1]s; put it into ~/.bashrc as: source <(%[1]s completion bash)
%[2]s() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path="" next words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    next="$path ${COMP_WORDS[i]}"
    case "$next" in
%[3]s    esac
  done
  COMPREPLY=()
  case "$prev" in
%[5]s  esac
  case "$path" in
%[4]s  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F %[2]s %[1]s
`, name, f, paths.String(), cases.String(), values.String())
	return err
}

// Zsh writes a completion script for zsh, which can run that of bash.
func Zsh(w io.Writer, app *kong.Application) error {
	if _, err := fmt.Fprintf(w, "# zsh completion for %[1]s; put it into ~/.zshrc as: source <(%[1]s completion zsh)\nautoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n", app.Name); err != nil {
		return err
	}
	return Bash(w, app)
}

// Fish writes a completion script for fish.
func Fish(w io.Writer, app *kong.Application) error {
	name := app.Name
	var b strings.Builder
	fmt.Fprintf(&b, "# fish completion for %[1]s; run: %[1]s completion fish > ~/.config/fish/completions/%[1]s.fish\n", name)
	commands(app.Node, "", func(path string, n *kong.Node) {
		when := condition(strings.Fields(path), n)
		for _, child := range n.Children {
			if !child.Hidden && child.Type == kong.CommandNode {
				fmt.Fprintf(&b, "complete -c %s -f -n %s -a %s -d %s\n", name, quoted(when), child.Name, quoted(child.Help))
			}
		}
		for _, flag := range flags(n) {
			value := ""
			if takesValue(flag) {
				value = " -r"
				if e := enum(flag); len(e) > 0 {
					value = " -x -a " + quoted(strings.Join(e, " "))
				}
			}
			fmt.Fprintf(&b, "complete -c %s -n %s -l %s%s -d %s\n", name, quoted(when), flag.Name, value, quoted(flag.Help))
		}
	})
	_, err := io.WriteString(w, b.String())
	return err
}

// condition is when a command's words are offered: it was typed, and none below it was.
func condition(path []string, n *kong.Node) string {
	var parts []string
	for _, command := range path {
		parts = append(parts, "__fish_seen_subcommand_from "+command)
	}
	var below []string
	for _, child := range n.Children {
		if child.Type == kong.CommandNode {
			below = append(below, child.Name)
		}
	}
	if len(below) > 0 {
		parts = append(parts, "not __fish_seen_subcommand_from "+strings.Join(below, " "))
	}
	if len(parts) == 0 {
		return "true"
	}
	return strings.Join(parts, "; and ")
}

func quoted(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", `\'`) + "'"
}

// enum is the values that a flag can have, if they are few.
func enum(f *kong.Flag) (values []string) {
	for _, v := range strings.Split(f.Enum, ",") {
		if v = strings.TrimSpace(v); v != "" {
			values = append(values, v)
		}
	}
	return values
}

func sorted(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
