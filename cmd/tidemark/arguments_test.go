package main

import (
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"tidemark/internal/table"
)

// Whatever is typed after "tidemark ingest" is a command with a table and files, or an error, or help. Nothing is run.
func FuzzIngestArguments(f *testing.F) {
	f.Add("flights\nflights.parquet")
	f.Add("--shards=64\nt\n-")
	f.Add("--rows-per-generation\n-1\nt\na.csv\nb.csv")
	f.Add("--root=s3://b/p\n--s3-endpoint=%zz\nt\nf")
	f.Add("t\n--\n--shards")
	type exited struct{}
	c := &cli{}
	parser, err := kong.New(c, kong.Name("tidemark"), kong.Writers(io.Discard, io.Discard),
		kong.Vars{"version": "test", "listen": ""}, kong.Exit(func(int) { panic(exited{}) }))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		*c = cli{}
		defer func() {
			if r := recover(); r != nil && r != any(exited{}) {
				panic(r)
			}
		}()
		parsed, err := parser.Parse(append([]string{"ingest"}, strings.Split(lines, "\n")...))
		if err != nil {
			return
		}
		if !strings.HasPrefix(parsed.Command(), "ingest") || len(c.Ingest.Files) == 0 {
			t.Fatalf("%q was taken for %s with the files %q", lines, parsed.Command(), c.Ingest.Files)
		}
		if len(c.Ingest.inputs(strings.NewReader(""))) != len(c.Ingest.Files) {
			t.Fatalf("%q lost a file", lines)
		}
		_ = table.CheckName(c.Ingest.Name)
	})
}
