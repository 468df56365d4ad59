package deltalog

import (
	"testing"

	"pgregory.net/rapid"
)

func TestPathsAreDecodedAndEncodedAsURIs(t *testing.T) {
	for _, c := range []struct{ uri, path, back string }{
		{"part-0.parquet", "part-0.parquet", "part-0.parquet"},
		{"a%20b.parquet", "a b.parquet", "a%20b.parquet"},
		{"d=2017-12-10/p.parquet", "d=2017-12-10/p.parquet", "d=2017-12-10/p.parquet"},
		{"x=a%2525b/p", "x=a%25b/p", "x=a%2525b/p"},
		{"x=%c3%a9/p", "x=é/p", "x=%C3%A9/p"},
		{"x=é/p", "x=é/p", "x=%C3%A9/p"}, // written unescaped by some engines
		{"a%3Ab", "a:b", "a%3Ab"},
		{"a:b", "a:b", "a%3Ab"}, // no scheme without a slash
		{"plus+sign", "plus+sign", "plus+sign"},
		{"s3://bucket/a%20b", "s3://bucket/a%20b", "s3://bucket/a%20b"},
		{"file:/tmp/x%20y", "file:/tmp/x%20y", "file:/tmp/x%20y"},
		{"/abs/x%20y", "/abs/x%20y", "/abs/x%20y"},
	} {
		path, err := decodePath(c.uri)
		if err != nil || path != c.path {
			t.Errorf("%q decodes to %q, %v; want %q", c.uri, path, err, c.path)
		}
		if back := encodePath(path); back != c.back {
			t.Errorf("%q encodes to %q, want %q", path, back, c.back)
		}
	}
	for _, bad := range []string{"", "a%", "a%2", "a%zz", "..", "a/../b", "%2e%2e/x"} {
		if path, err := decodePath(bad); err == nil {
			t.Errorf("%q decodes to %q, want an error", bad, path)
		}
	}
}

func TestEveryPathComesBackFromItsURI(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.StringMatching(`[^/.]([^/]|/[^/.]){0,20}`).Draw(t, "path")
		got, err := decodePath(encodePath(path))
		if err != nil || got != path {
			t.Fatalf("%q became %q by way of %q: %v", path, got, encodePath(path), err)
		}
	})
}

func TestAnotherEnginesSpellingOfAPathIsKept(t *testing.T) {
	c, err := parseCommit(3, []byte(`{"add":{"path":"x=é/p","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := encodeAdd(c.Adds[0]).Path; got != "x=é/p" {
		t.Errorf("written back as %q", got)
	}
}
