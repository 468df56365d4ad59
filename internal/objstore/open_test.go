package objstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

// stopped is a clock whose wall time stands still.
type stopped struct{ clock.Clock }

func (stopped) Now() time.Time { return time.Unix(1_000_000, 0) }

func options() objstore.Options {
	return objstore.Options{Clock: clock.System(), Random: random.New(), Log: hclog.NewNullLogger()}
}

func TestOpenSaysInOneLineWhatIsWrongWithARoot(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for root, want := range map[string]string{
		filepath.Join(dir, "missing"): "does not exist; create it with: mkdir -p " + filepath.Join(dir, "missing"),
		file:                          "is a file, not a directory",
		"file://elsewhere/dir":        `"elsewhere" is not this machine`,
		"mem://name":                  "has no name",
		"gopher://hole":               `unknown kind of root "gopher://"`,
		"":                            "no directory is named",
		"/proc":                       "not writable", // where even root may not create files
	} {
		_, err := objstore.Open(t.Context(), root, options())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || objstore.CodeOf(err) != objstore.CodeBadRoot {
			t.Errorf("%q: %v, want one line with %q", root, err, want)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("opening has left something behind: %v", entries)
	}
}

func TestOpenFindsTheSameRootByPathAndURL(t *testing.T) {
	dir := t.TempDir()
	for _, root := range []string{dir, "file://" + dir, "file://localhost" + dir} {
		s, err := objstore.Open(t.Context(), root, options())
		if err != nil {
			t.Fatal(err)
		}
		if s.URL() != root {
			t.Errorf("URL %q, want it as written: %q", s.URL(), root)
		}
		if r := s.PutIfAbsent(t.Context(), "k", nil); (r.Outcome == objstore.Applied) != (root == dir) {
			t.Errorf("%q is another root: %+v", root, r)
		}
	}
}

func TestOnlyCreateRootCreatesARoot(t *testing.T) {
	o := options()
	o.CreateRoot = true
	root := filepath.Join(t.TempDir(), "a", "b")
	s, err := objstore.Open(t.Context(), root, o)
	if err != nil {
		t.Fatal(err)
	}
	if r := s.PutIfAbsent(t.Context(), "k", nil); r.Outcome != objstore.Applied {
		t.Error(r)
	}
}

func TestOpenInMemoryIsFresh(t *testing.T) {
	for range 2 {
		s, err := objstore.Open(t.Context(), "mem://", options())
		if err != nil {
			t.Fatal(err)
		}
		if r := s.PutIfAbsent(t.Context(), "k", nil); r.Outcome != objstore.Applied {
			t.Error(r)
		}
	}
}

func TestOpenHonoursItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := objstore.Open(ctx, "mem://", options()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestOnlyADirectoryIsALocalRoot(t *testing.T) {
	for root, want := range map[string]string{
		"data": "data", "/data/x": "/data/x", "file:///data/a%20b": "/data/a b", "file://localhost/data": "/data",
		"s3://bucket/x": "", "mem://": "", "": "", "file://": "", "gs://x": "",
	} {
		if got, ok := objstore.LocalDir(root); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", root, got, ok)
		}
	}
}
