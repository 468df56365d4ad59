// Package storetest is the conformance suite of object stores: what package objstore promises, as tests that run
// against any implementation. Memory, local disk and S3 pass the same ones.
package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"

	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

// Run runs the suite. open returns an empty store of the test; every test opens its own.
func Run(t *testing.T, open func(t *testing.T) objstore.Store) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s objstore.Store)
	}{
		{"an object reads as it was put", readsAsPut},
		{"a range ends with the object", rangeEnds},
		{"a missing key is not found", missingKey},
		{"a second put is refused", secondPut},
		{"a replace needs the current version", replaceNeedsVersion},
		{"a delete is idempotent and frees the name", deleteFrees},
		{"malformed requests are refused", malformed},
		{"a cancelled request is refused before it is sent", cancelled},
		{"racing creators have one winner", racingCreators},
		{"racing replaces lose no update", racingReplaces},
		{"a listing is ordered by bytes", listingOrder},
		{"a listing continues after any key", listingPages},
		{"a delimited listing folds directories", listingDelimited},
		{"random listings match a sorted list", listingModel},
		{"a listing of nothing is empty", listingEmpty},
		{"an upload appears when it is complete", uploadAppears},
		{"an aborted upload leaves nothing", uploadAborted},
		{"a large upload arrives whole", uploadLarge},
		{"an upload ends with its context", uploadContext},
		{"copied ranges read as they were", copiesRanges},
		{"a copy needs the version and all the bytes", copyConditions},
		{"a fenced scope refuses every operation", fencedScope},
		{"the probe accepts the store and leaves nothing", probeAccepts},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// must puts an object or fails the test.
func must(t *testing.T, s objstore.Store, key, body string) objstore.Info {
	t.Helper()
	r := s.PutIfAbsent(t.Context(), key, []byte(body))
	if r.Outcome != objstore.Applied || r.Err != nil {
		t.Fatalf("put %s: %v %v", key, r.Outcome, r.Err)
	}
	return r.Info
}

func wantRefused(t *testing.T, r objstore.Result, cause error) {
	t.Helper()
	if r.Outcome != objstore.Refused || !errors.Is(r.Err, cause) {
		t.Fatalf("got %v %v, want refused with %v", r.Outcome, r.Err, cause)
	}
}

func wantBody(t *testing.T, s objstore.Store, key, want string) objstore.Info {
	t.Helper()
	body, info, err := s.Get(t.Context(), key)
	if err != nil || string(body) != want {
		t.Fatalf("get %s: %q %v, want %q", key, body, err, want)
	}
	return info
}

func readsAsPut(t *testing.T, s objstore.Store) {
	for _, body := range []string{"", "x", "{\"v\":1}\n", string(make([]byte, 100_000))} {
		key := fmt.Sprintf("t/_shards/a b/ü=%d.json", len(body))
		put := must(t, s, key, body)
		got := wantBody(t, s, key, body)
		head, err := s.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range []objstore.Info{put, got, head} {
			if info.Key != key || info.Size != int64(len(body)) || info.ETag == "" || info.ETag != put.ETag {
				t.Errorf("%+v does not describe %s of %d bytes at %s", info, key, len(body), put.ETag)
			}
		}
		if got.Modified.IsZero() || !got.Modified.Equal(head.Modified) {
			t.Errorf("modified %v when read, %v by head", got.Modified, head.Modified)
		}
	}
}

func rangeEnds(t *testing.T, s objstore.Store) {
	must(t, s, "r", "0123456789")
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{0, 10, "0123456789"}, {0, 3, "012"}, {3, 4, "3456"}, {8, 100, "89"}, {9, 1, "9"}, {10, 5, ""}, {99, 5, ""}, {4, 0, ""}} {
		got, err := s.GetRange(t.Context(), "r", c.offset, c.length)
		if err != nil || string(got) != c.want {
			t.Errorf("range %d+%d: %q %v, want %q", c.offset, c.length, got, err, c.want)
		}
	}
}

func missingKey(t *testing.T, s objstore.Store) {
	ctx := t.Context()
	must(t, s, "dir/there", "x")
	for _, key := range []string{"gone", "dir", "dir/gone", "no/such/dir"} {
		_, _, getErr := s.Get(ctx, key)
		_, rangeErr := s.GetRange(ctx, key, 0, 1)
		_, headErr := s.Head(ctx, key)
		for _, err := range []error{getErr, rangeErr, headErr} {
			var e *objstore.Error
			if !errors.Is(err, objstore.ErrNotFound) || !errors.As(err, &e) || e.Code != objstore.CodeNotFound || e.Key != key {
				t.Errorf("%s: %v, want not found, naming the key", key, err)
			}
		}
	}
}

func secondPut(t *testing.T, s objstore.Store) {
	must(t, s, "k/1", "first")
	wantRefused(t, s.PutIfAbsent(t.Context(), "k/1", []byte("second")), objstore.ErrExists)
	wantRefused(t, s.PutIfAbsent(t.Context(), "k/1", []byte("first")), objstore.ErrExists)
	wantBody(t, s, "k/1", "first")
}

func replaceNeedsVersion(t *testing.T, s objstore.Store) {
	ctx := t.Context()
	seen := map[string]bool{}
	etag := must(t, s, "m/root.json", "version 0").ETag
	for i := 1; i <= 20; i++ {
		if seen[etag] {
			t.Fatalf("the ETag %q has been there before", etag)
		}
		seen[etag] = true
		body := fmt.Sprintf("version %d", i)
		r := s.ReplaceIfMatch(ctx, "m/root.json", []byte(body), etag)
		if r.Outcome != objstore.Applied {
			t.Fatalf("replace %d: %v %v", i, r.Outcome, r.Err)
		}
		wantRefused(t, s.ReplaceIfMatch(ctx, "m/root.json", []byte("stale"), etag), objstore.ErrMismatch)
		if got := wantBody(t, s, "m/root.json", body); got.ETag != r.Info.ETag {
			t.Fatalf("the ETag read, %q, is not the one replaced, %q", got.ETag, r.Info.ETag)
		}
		etag = r.Info.ETag
	}
	wantRefused(t, s.ReplaceIfMatch(ctx, "m/root.json", []byte("x"), ""), objstore.ErrMismatch)
	wantRefused(t, s.ReplaceIfMatch(ctx, "m/gone", []byte("x"), etag), objstore.ErrMismatch)
	wantRefused(t, s.ReplaceIfMatch(ctx, "no/such/dir", []byte("x"), etag), objstore.ErrMismatch)
}

func deleteFrees(t *testing.T, s objstore.Store) {
	ctx := t.Context()
	must(t, s, "d/x", "1")
	for range 2 {
		if err := s.Delete(ctx, "d/x"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(ctx, "never/was"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(ctx, "d/x"); !errors.Is(err, objstore.ErrNotFound) {
		t.Fatal(err)
	}
	must(t, s, "d/x", "2")
	wantBody(t, s, "d/x", "2")
}

func malformed(t *testing.T, s objstore.Store) {
	ctx := t.Context()
	for _, key := range []string{"", "/a", "a/", "a//b", "a/../b", "..", "./a", "a/.", "a\x00b", string(make([]byte, 2000))} {
		_, _, getErr := s.Get(ctx, key)
		_, createErr := s.Create(ctx, key)
		put, replace := s.PutIfAbsent(ctx, key, nil), s.ReplaceIfMatch(ctx, key, nil, "e")
		for _, err := range []error{getErr, createErr, put.Err, replace.Err, s.Delete(ctx, key)} {
			if objstore.CodeOf(err) != objstore.CodeInvalid {
				t.Errorf("key %q: %v, want invalid", key, err)
			}
		}
		if put.Outcome != objstore.Refused || replace.Outcome != objstore.Refused {
			t.Errorf("key %q: %v, %v, want refused", key, put.Outcome, replace.Outcome)
		}
	}
	must(t, s, "k", "x")
	if _, err := s.GetRange(ctx, "k", -1, 1); objstore.CodeOf(err) != objstore.CodeInvalid {
		t.Errorf("negative offset: %v", err)
	}
	if _, err := s.List(ctx, objstore.ListRequest{Max: 1001}); objstore.CodeOf(err) != objstore.CodeInvalid {
		t.Errorf("too large a page: %v", err)
	}
	if _, err := s.List(ctx, objstore.ListRequest{Prefix: "../"}); objstore.CodeOf(err) != objstore.CodeInvalid {
		t.Errorf("a prefix above the root: %v", err)
	}
}

func cancelled(t *testing.T, s objstore.Store) {
	info := must(t, s, "k", "x")
	ctx, cancel := context.WithCancelCause(t.Context())
	because := errors.New("because")
	cancel(because)
	wantRefused(t, s.PutIfAbsent(ctx, "new", []byte("x")), because)
	wantRefused(t, s.ReplaceIfMatch(ctx, "k", []byte("y"), info.ETag), because)
	_, _, getErr := s.Get(ctx, "k")
	_, listErr := s.List(ctx, objstore.ListRequest{})
	_, createErr := s.Create(ctx, "up")
	for _, err := range []error{getErr, listErr, createErr, s.Delete(ctx, "k")} {
		if !errors.Is(err, because) {
			t.Errorf("%v, want %v", err, because)
		}
	}
	wantBody(t, s, "k", "x")
}

func uploadAppears(t *testing.T, s objstore.Store) {
	ctx := t.Context()
	for _, parts := range [][]string{{}, {"a"}, {"abc", "", "def"}} {
		key := fmt.Sprintf("t/part-%d.parquet", len(parts))
		u, err := s.Create(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if n, err := u.Write([]byte(p)); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		if _, err := s.Head(ctx, key); !errors.Is(err, objstore.ErrNotFound) {
			t.Fatalf("visible before it is complete: %v", err)
		}
		info, err := u.Complete(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want := string(bytes.Join(byteSlices(parts), nil))
		if got := wantBody(t, s, key, want); got.ETag != info.ETag || got.Size != info.Size || info.Key != key {
			t.Errorf("complete said %+v, get says %+v", info, got)
		}
		if err := u.Abort(ctx); err != nil {
			t.Errorf("abort after complete: %v", err)
		}
		wantBody(t, s, key, want)
		if _, err := u.Write([]byte("x")); err == nil {
			t.Error("a write after the end was accepted")
		}
		if _, err := u.Complete(ctx); err == nil {
			t.Error("a second completion was accepted")
		}
	}
}

func byteSlices(parts []string) [][]byte {
	var b [][]byte
	for _, p := range parts {
		b = append(b, []byte(p))
	}
	return b
}

func uploadAborted(t *testing.T, s objstore.Store) {
	ctx := t.Context()
	u, err := s.Create(ctx, "t/part")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := u.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Write([]byte("x")); err == nil {
		t.Error("a write after the abort was accepted")
	}
	if _, err := u.Complete(ctx); err == nil {
		t.Error("a completion after the abort was accepted")
	}
	if keys := all(t, s, ""); len(keys) != 0 {
		t.Errorf("left behind: %q", keys)
	}
}

func uploadLarge(t *testing.T, s objstore.Store) {
	ctx := t.Context()
	body := make([]byte, 23<<20+12345)
	_, _ = rand.Read(body)
	u, err := s.Create(ctx, "t/large")
	if err != nil {
		t.Fatal(err)
	}
	for rest, chunk := body, 1; len(rest) > 0; chunk = chunk*3 + 1 {
		n, err := u.Write(rest[:min(chunk, len(rest))])
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if _, err := u.Complete(ctx); err != nil {
		t.Fatal(err)
	}
	got, _, err := s.Get(ctx, "t/large")
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("read back %d bytes, %v", len(got), err)
	}
	middle, err := s.GetRange(ctx, "t/large", 10<<20-7, 1<<20)
	if err != nil || !bytes.Equal(middle, body[10<<20-7:][:1<<20]) {
		t.Fatalf("read back a range of %d bytes, %v", len(middle), err)
	}
}

func uploadContext(t *testing.T, s objstore.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	u, err := s.Create(ctx, "t/part")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := u.Complete(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("completion: %v", err)
	}
	if err := u.Abort(t.Context()); err != nil {
		t.Errorf("abort: %v", err)
	}
	if keys := all(t, s, ""); len(keys) != 0 {
		t.Errorf("left behind: %q", keys)
	}
}

func probeAccepts(t *testing.T, s objstore.Store) {
	if err := objstore.Probe(t.Context(), s, random.New()); err != nil {
		t.Fatal(err)
	}
	if keys := all(t, s, ""); len(keys) != 0 {
		t.Errorf("left behind: %q", keys)
	}
}

func all(t *testing.T, s objstore.Store, prefix string) []string {
	t.Helper()
	var keys []string
	for info, err := range objstore.ListAll(t.Context(), s, prefix) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	if !slices.IsSorted(keys) {
		t.Fatalf("not in byte order: %q", keys)
	}
	return keys
}
