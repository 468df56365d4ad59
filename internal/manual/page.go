package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Pages returns the names of all man pages of a command line, without ".1", each with what writes it: one of the whole and
// one of each command.
func Pages(app *kong.Application, version string) map[string]func(io.Writer) error {
	pages := map[string]func(io.Writer) error{}
	commands(app.Node, "", func(path string, n *kong.Node) {
		title := strings.ReplaceAll(app.Name+path, " ", "-")
		pages[title] = func(w io.Writer) error {
			_, err := io.WriteString(w, page(app, title, app.Name+path, version, n))
			return err
		}
	})
	return pages
}

// page is one man page, in troff with the man macros.
func page(app *kong.Application, title, typed, version string, n *kong.Node) string {
	var b strings.Builder
	help, detail := n.Help, n.Detail
	if n.Parent == nil { // of the whole, the first sentence is the summary
		first, rest, _ := strings.Cut(n.Help, "\n\n")
		help, detail = first, rest
	}
	fmt.Fprintf(&b, ".TH %s 1 \"\" %q %q\n", strings.ToUpper(title), app.Name+" "+version, app.Name)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", title, troff(strings.TrimSuffix(help, ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n%s\n", troff(typed), troff(synopsis(n)))
	if detail != "" {
		b.WriteString(".SH DESCRIPTION\n")
		paragraphs(&b, detail)
	}
	if len(n.Positional) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
		for _, p := range n.Positional {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", troff(p.Name), troff(p.Help))
		}
	}
	below := false
	for _, child := range n.Children {
		if child.Hidden || child.Type != kong.CommandNode {
			continue
		}
		if !below {
			b.WriteString(".SH COMMANDS\n")
			below = true
		}
		fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", troff(title+"-"+child.Name), troff(child.Help))
	}
	b.WriteString(".SH OPTIONS\n")
	for _, f := range flags(n) {
		option(&b, f)
	}
	b.WriteString(".SH EXIT STATUS\n0 when it is done, 1 when it failed, 2 when the command line cannot be meant.\n")
	if n.Parent != nil {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", troff(app.Name))
	}
	return b.String()
}

func synopsis(n *kong.Node) string {
	var parts []string
	if len(n.Children) > 0 {
		parts = append(parts, "COMMAND")
	}
	for _, p := range n.Positional {
		text := strings.ToUpper(p.Name)
		if p.IsCumulative() {
			text += " ..."
		}
		if !p.Required {
			text = "[" + text + "]"
		}
		parts = append(parts, text)
	}
	for _, f := range flags(n) {
		if f.Required {
			parts = append(parts, strings.TrimSpace("--"+f.Name+" "+placeholder(f)))
		}
	}
	return strings.Join(append(parts, "[OPTIONS]"), " ")
}

func option(b *strings.Builder, f *kong.Flag) {
	fmt.Fprintf(b, ".TP\n.B %s\n%s", troff(strings.TrimSpace("--"+f.Name+" "+placeholder(f))), troff(f.Help))
	if f.HasDefault && f.Default != "" && takesValue(f) {
		fmt.Fprintf(b, " (default: %s)", troff(f.Default))
	}
	for _, env := range f.Envs {
		fmt.Fprintf(b, " ($%s)", troff(env))
	}
	b.WriteString("\n")
}

func placeholder(f *kong.Flag) string {
	if !takesValue(f) {
		return ""
	}
	if f.PlaceHolder != "" {
		return f.PlaceHolder
	}
	return strings.ToUpper(f.Name)
}

// paragraphs writes text; what is indented by two spaces is an example and stays as it is.
func paragraphs(b *strings.Builder, text string) {
	example := false
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		switch is := strings.HasPrefix(line, "  "); {
		case is && !example:
			b.WriteString(".PP\n.nf\n")
			example = true
		case !is && example:
			b.WriteString(".fi\n")
			example = false
		}
		if strings.TrimSpace(line) == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(troff(line) + "\n")
	}
	if example {
		b.WriteString(".fi\n")
	}
}

// troff escapes text so that it stands for itself.
func troff(s string) string {
	s = strings.ReplaceAll(s, `\`, `\e`)
	s = strings.ReplaceAll(s, "-", `\-`)
	var lines []string
	for _, line := range strings.Split(s, "\n") {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
