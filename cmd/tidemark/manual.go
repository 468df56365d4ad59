package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/alecthomas/kong"

	"tidemark/internal/manual"
	"tidemark/internal/process"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help says more than one line about the command.
func (c *completionCommand) Help() string {
	return `Prints a script that completes commands and flags:

  source <(tidemark completion bash)
  source <(tidemark completion zsh)
  tidemark completion fish > ~/.config/fish/completions/tidemark.fish`
}

func (c *completionCommand) Run(k *kong.Context, streams process.Streams) error {
	write := map[string]func(io.Writer, *kong.Application) error{"bash": manual.Bash, "zsh": manual.Zsh, "fish": manual.Fish}
	return write[c.Shell](streams.Out, k.Model)
}

type manCommand struct {
	Dir string `arg:"" help:"The directory, such as /usr/local/share/man/man1; it is made if it is not there." type:"path"`
}

func (c *manCommand) Run(k *kong.Context, streams process.Streams) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the directory: %w", err)
	}
	pages := manual.Pages(k.Model, process.Version)
	for _, title := range slices.Sorted(maps.Keys(pages)) {
		if err := writePage(filepath.Join(c.Dir, title+".1"), pages[title]); err != nil {
			return fmt.Errorf("cannot write a man page: %w", err)
		}
	}
	fmt.Fprintf(streams.Out, "wrote %d man pages to %s\n", len(pages), c.Dir)
	return nil
}

func writePage(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close() // the first error is the one to tell
		return err
	}
	return f.Close()
}
