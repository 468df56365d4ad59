package objstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

func retry(c clock.Clock) objstore.Retry { return objstore.Retry{Clock: c, Random: random.Seeded(1)} }

func tempFiles(t *testing.T, l *objstore.Local) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(l.URL(), ".tidemark-tmp", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestNoTemporaryFileOutlivesItsRequest(t *testing.T) {
	l := openLocal(t)
	info := l.PutIfAbsent(t.Context(), "a/b", []byte("1")).Info
	l.PutIfAbsent(t.Context(), "a/b", []byte("2"))
	l.ReplaceIfMatch(t.Context(), "a/b", []byte("3"), info.ETag)
	l.ReplaceIfMatch(t.Context(), "a/b", []byte("4"), info.ETag)
	l.PutIfAbsent(t.Context(), "a/b/c", []byte("below an object"))
	if names := tempFiles(t, l); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
}

func TestAnOpeningRemovesTheTemporaryFilesOfDeadWritersOnly(t *testing.T) {
	l := openLocal(t)
	live, err := l.Create(t.Context(), "live")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := live.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	// The lock of a dead process is gone; its file is not.
	dead := filepath.Join(l.URL(), ".tidemark-tmp", "0123")
	if err := os.WriteFile(dead, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := objstore.NewLocal(l.URL(), clock.System(), random.New()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead writer's file is still there: %v", err)
	}
	if _, err := live.Complete(t.Context()); err != nil {
		t.Errorf("the live writer's file was taken away: %v", err)
	}
}

func TestReplaceWaitsForTheLockAndHonoursItsContext(t *testing.T) {
	l := openLocal(t)
	info := l.PutIfAbsent(t.Context(), "lock", []byte("1")).Info
	held, err := os.Open(filepath.Join(l.URL(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan objstore.Result)
	go func() { done <- l.ReplaceIfMatch(ctx, "lock", []byte("2"), info.ETag) }()
	cancel()
	if r := <-done; r.Outcome != objstore.Refused || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("%+v", r)
	}
	go func() { done <- l.ReplaceIfMatch(t.Context(), "lock", []byte("3"), info.ETag) }()
	_ = held.Close()
	if r := <-done; r.Outcome != objstore.Applied {
		t.Errorf("%+v", r)
	}
}

func TestTheETagChangesEvenWhenTheClockStandsStill(t *testing.T) {
	l, err := objstore.NewLocal(t.TempDir(), stopped{clock.System()}, random.New())
	if err != nil {
		t.Fatal(err)
	}
	info := l.PutIfAbsent(t.Context(), "k", []byte("0")).Info
	seen := map[string]bool{info.ETag: true}
	for i := range 100 {
		r := l.ReplaceIfMatch(t.Context(), "k", []byte{byte(i)}, info.ETag)
		if r.Outcome != objstore.Applied || seen[r.Info.ETag] {
			t.Fatalf("replace %d: %+v", i, r)
		}
		info = r.Info
		seen[info.ETag] = true
	}
}

func TestAnObjectCannotBeADirectoryToo(t *testing.T) {
	l := openLocal(t)
	l.PutIfAbsent(t.Context(), "a/b", nil)
	r := l.PutIfAbsent(t.Context(), "a/b/c/d", nil)
	if r.Outcome != objstore.Refused || !strings.Contains(r.Err.Error(), "stands in the way") {
		t.Errorf("%+v", r)
	}
	if r := l.PutIfAbsent(t.Context(), "a", nil); r.Outcome != objstore.Refused || !errors.Is(r.Err, objstore.ErrExists) {
		t.Errorf("%+v", r)
	}
}

func TestADirectoryRemovedBehindOurBackIsMadeAgain(t *testing.T) {
	l := openLocal(t)
	l.PutIfAbsent(t.Context(), "a/b/1", nil)
	for _, dir := range []string{"a", ".tidemark-tmp"} {
		if err := os.RemoveAll(filepath.Join(l.URL(), dir)); err != nil {
			t.Fatal(err)
		}
	}
	if r := l.PutIfAbsent(t.Context(), "a/b/1", nil); r.Outcome != objstore.Applied {
		t.Errorf("%+v", r)
	}
}

func TestAListingSkipsWhatIsNoObject(t *testing.T) {
	l := openLocal(t)
	l.PutIfAbsent(t.Context(), "a/1", nil)
	if err := os.Symlink("1", filepath.Join(l.URL(), "a", "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(l.URL(), "a", "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	upload, err := l.Create(t.Context(), "a/2")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = upload.Abort(t.Context()) }()
	var keys []string
	for info := range objstore.ListAll(t.Context(), l, "") {
		keys = append(keys, info.Key)
	}
	if fmt.Sprint(keys) != "[a/1]" {
		t.Errorf("%q", keys)
	}
}

func BenchmarkLocalNewestOfManyManifests(b *testing.B) {
	dir := b.TempDir()
	l, err := objstore.NewLocal(dir, clock.System(), random.New())
	if err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "t/manifest"), 0o777); err != nil {
		b.Fatal(err)
	}
	for i := range 20_000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("t/manifest/%020d.json", i)), nil, 0o666); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := l.List(b.Context(), objstore.ListRequest{Prefix: "t/manifest/", Max: 1}); err != nil {
			b.Fatal(err)
		}
	}
}
