package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tidemark/internal/objstore"
)

// treacherous holds keys whose byte order differs from the order of a walk through sorted directories: '-' and '.' sort
// before '/', and '0' after it.
var treacherous = []string{
	"t-1/x", "t.d/x", "t/_delta_log/00.json", "t/a-b/1", "t/a.b", "t/a/1", "t/a/b/c", "t/a0", "t0/x", "t1", "u/~", "u/ü", "ü/z",
}

func fill(t *testing.T, s objstore.Store, keys []string) {
	t.Helper()
	for i := range keys {
		must(t, s, keys[len(keys)-1-i], "x")
	}
}

func listingOrder(t *testing.T, s objstore.Store) {
	fill(t, s, treacherous)
	if got := all(t, s, ""); !slices.Equal(got, treacherous) {
		t.Errorf("got  %q\nwant %q", got, treacherous)
	}
	for _, prefix := range []string{"t", "t/", "t/a", "t/a/", "t/a/b/c", "ü", "x", "t/a/1/"} {
		if got, want := all(t, s, prefix), expect(treacherous, objstore.ListRequest{Prefix: prefix}); !slices.Equal(got, want) {
			t.Errorf("prefix %q: got  %q\nwant %q", prefix, got, want)
		}
	}
	page, err := s.List(t.Context(), objstore.ListRequest{Prefix: "t/a.b"})
	if err != nil || len(page.Objects) != 1 || page.More || page.Date.IsZero() {
		t.Fatalf("%+v %v", page, err)
	}
	head, err := s.Head(t.Context(), "t/a.b")
	if listed := page.Objects[0]; err != nil || listed.ETag != head.ETag || listed.Size != 1 || listed.Modified.IsZero() {
		t.Errorf("listed as %+v, head says %+v, %v", listed, head, err)
	}
}

func listingPages(t *testing.T, s objstore.Store) {
	fill(t, s, treacherous)
	for _, delimited := range []bool{false, true} {
		for _, prefix := range []string{"", "t", "t/", "t/a"} {
			want := expect(treacherous, objstore.ListRequest{Prefix: prefix, Delimited: delimited})
			for size := 1; size <= len(want)+1; size++ {
				if got := paged(t, s, objstore.ListRequest{Prefix: prefix, Max: size, Delimited: delimited}); !slices.Equal(got, want) {
					t.Errorf("prefix %q delimited %v in pages of %d: got  %q\nwant %q", prefix, delimited, size, got, want)
				}
			}
		}
	}
	for _, after := range []string{"t", "t-", "t/", "t/a/", "t/a/1", "t/a/2", "t/zz", "zz", "ü/z"} {
		req := objstore.ListRequest{After: after}
		if got, want := paged(t, s, req), expect(treacherous, req); !slices.Equal(got, want) {
			t.Errorf("after %q: got  %q\nwant %q", after, got, want)
		}
	}
}

func listingDelimited(t *testing.T, s objstore.Store) {
	fill(t, s, []string{"a.txt", "events/_delta_log/0.json", "events/p.parquet", "prod/flights/_delta_log/0.json"})
	page, err := s.List(t.Context(), objstore.ListRequest{Delimited: true})
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Key != "a.txt" || !slices.Equal(page.Dirs, []string{"events/", "prod/"}) {
		t.Fatalf("%+v %v", page, err)
	}
	if err := s.Delete(t.Context(), "prod/flights/_delta_log/0.json"); err != nil {
		t.Fatal(err)
	}
	page, err = s.List(t.Context(), objstore.ListRequest{Delimited: true})
	if err != nil || !slices.Equal(page.Dirs, []string{"events/"}) {
		t.Fatalf("a directory without objects is listed: %+v %v", page, err)
	}
}

func listingEmpty(t *testing.T, s objstore.Store) {
	for _, req := range []objstore.ListRequest{{}, {Prefix: "no/such/dir/"}, {Delimited: true}, {After: "x"}} {
		page, err := s.List(t.Context(), req)
		if err != nil || len(page.Objects)+len(page.Dirs) > 0 || page.More {
			t.Errorf("%+v: %+v %v", req, page, err)
		}
	}
	for _, err := range objstore.ListAll(t.Context(), s, "no/such/dir/") {
		t.Errorf("yielded something: %v", err)
	}
}

// listingModel compares listings with a filter over a sorted slice.
func listingModel(t *testing.T, s objstore.Store) {
	segment := rapid.SampledFrom([]string{"a", "a-", "a.", "a0", "b", "_x"})
	// Leaves have names of their own: on local disk a key cannot be a directory too.
	key := rapid.Custom(func(r *rapid.T) string {
		segments := rapid.SliceOfN(segment, 0, 3).Draw(r, "segments")
		return strings.Join(append(segments, rapid.SampledFrom([]string{"1", "2", "-f", ".f", "z"}).Draw(r, "leaf")), "/")
	})
	var keys []string
	for i := range 60 {
		k := key.Example(i)
		r := s.PutIfAbsent(t.Context(), k, nil)
		if r.Outcome == objstore.Applied {
			keys = append(keys, k)
		} else if !errors.Is(r.Err, objstore.ErrExists) {
			t.Fatal(r.Err)
		}
	}
	slices.Sort(keys)
	for i := range 60 {
		k, after := key.Example(1000+i), key.Example(2000+i)
		if i%3 == 0 {
			after = ""
		}
		req := objstore.ListRequest{Prefix: k[:i*len(k)/60], After: after, Max: 1 + i%7, Delimited: i%2 == 0}
		if got, want := paged(t, s, req), expect(keys, req); !slices.Equal(got, want) {
			t.Errorf("%+v: got  %q\nwant %q", req, got, want)
		}
	}
}

// expect is the listing as it should be, whatever the size of the pages.
func expect(sorted []string, req objstore.ListRequest) []string {
	var want []string
	for _, entry := range sorted {
		rest, found := strings.CutPrefix(entry, req.Prefix)
		if !found {
			continue
		}
		if head, _, folded := strings.Cut(rest, "/"); folded && req.Delimited {
			entry = req.Prefix + head + "/"
		}
		if entry > req.After && !slices.Contains(want, entry) {
			want = append(want, entry)
		}
	}
	return want
}

// paged reads a listing to its end, page by page, and checks each page.
func paged(t *testing.T, s objstore.Store, req objstore.ListRequest) []string {
	t.Helper()
	var got []string
	for range 1000 {
		page, err := s.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		entries := slices.Clone(page.Dirs)
		for _, info := range page.Objects {
			entries = append(entries, info.Key)
		}
		slices.Sort(entries)
		if req.Max > 0 && len(entries) > req.Max || page.More && len(entries) == 0 {
			t.Fatalf("%+v: a page of %d entries", req, len(entries))
		}
		got = append(got, entries...)
		if !page.More {
			return got
		}
		req.After = page.Next
	}
	t.Fatal(fmt.Errorf("%+v: the listing does not end", req))
	return nil
}
