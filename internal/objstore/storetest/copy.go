package storetest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"

	"tidemark/internal/objstore"
)

// copiesRanges pins that however written and copied bytes follow each other, the object is all of them in order. The sizes
// lie around the least part of S3.
func copiesRanges(t *testing.T, s objstore.Store) {
	ctx := t.Context()
	const mib = 1 << 20
	source := make([]byte, 12*mib)
	_, _ = rand.Read(source)
	copy(source, "PAR1")
	info := mustUpload(t, s, "t/from a b/ü=1+2.parquet", source)
	type step struct {
		write  string
		offset int64
		n      int64 // copied, if nothing is written
	}
	for i, steps := range [][]step{
		{{offset: 0, n: 0}},
		{{offset: 7, n: 5}},
		{{offset: 0, n: 12 * mib}},
		{{write: "PAR1"}, {offset: 4, n: 6 * mib}, {write: "end"}},
		{{write: "PAR1"}, {offset: 5, n: 6 * mib}, {write: "end"}},
		{{write: "PAR1"}, {offset: 4, n: 9*mib - 4}, {offset: 4, n: 100}, {offset: 4, n: 11 * mib}, {offset: 3, n: 5 * mib}},
		{{offset: 1, n: 5*mib - 1}, {offset: 2, n: 5 * mib}, {write: "x"}, {offset: 1, n: 10*mib + 1}},
		{{write: string(source[:9*mib])}, {offset: 9, n: 5 * mib}, {write: string(source[:6*mib])}, {offset: 0, n: 7 * mib}},
	} {
		key := fmt.Sprintf("t/joined-%d.parquet", i)
		u, err := s.Create(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for _, step := range steps {
			if step.write != "" {
				want = append(want, step.write...)
				if _, err := u.Write([]byte(step.write)); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want = append(want, source[step.offset:step.offset+step.n]...)
			if err := objstore.CopyRange(u, info.Key, info.ETag, step.offset, step.n); err != nil {
				t.Fatalf("%d: copying %d bytes at %d: %v", i, step.n, step.offset, err)
			}
		}
		done, err := u.Complete(ctx)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		got, at, err := s.Get(ctx, key)
		if err != nil || !bytes.Equal(got, want) || at.ETag != done.ETag || done.Size != int64(len(want)) {
			t.Errorf("%d: %d bytes of version %s are there (%v); want %d of %s, of which %d were completed", i, len(got), at.ETag, err, len(want), done.ETag, done.Size)
		}
	}
}

func mustUpload(t *testing.T, s objstore.Store, key string, body []byte) objstore.Info {
	t.Helper()
	u, err := s.Create(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Write(body); err != nil {
		t.Fatal(err)
	}
	info, err := u.Complete(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// copyConditions pins what cannot be copied, and that nothing of it appears.
func copyConditions(t *testing.T, s objstore.Store) {
	const size = 6 << 20
	info := mustUpload(t, s, "t/from", make([]byte, size))
	for name, c := range map[string]struct {
		key, etag string
		offset, n int64
		want      error
	}{
		"another version":                   {"t/from", "\"0123456789abcdef0123456789abcdef\"", 0, 10, objstore.ErrMismatch},
		"another version, by the server":    {"t/from", "\"0123456789abcdef0123456789abcdef\"", 0, size, objstore.ErrMismatch},
		"no version":                        {"t/from", "", 0, 10, objstore.ErrMismatch},
		"a missing object":                  {"t/gone", info.ETag, 0, 10, objstore.ErrNotFound},
		"a missing object, by the server":   {"t/gone", info.ETag, 0, size, objstore.ErrNotFound},
		"more than there is":                {"t/from", info.ETag, size - 5, 10, objstore.ErrShort},
		"more than there is, by the server": {"t/from", info.ETag, 5, size, nil},
		"what lies behind the end":          {"t/from", info.ETag, size + 5, 10, objstore.ErrShort},
		"a negative offset":                 {"t/from", info.ETag, -1, 10, nil},
	} {
		u, err := s.Create(t.Context(), "t/joined")
		if err != nil {
			t.Fatal(err)
		}
		err = objstore.CopyRange(u, c.key, c.etag, c.offset, c.n)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err := u.Abort(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := objstore.CopyRange(u, "t/from", info.ETag, 0, 1); err == nil {
			t.Errorf("%s: a copy after the end was accepted", name)
		}
	}
	if keys := all(t, s, ""); len(keys) != 1 {
		t.Errorf("there are %q, want t/from alone", keys)
	}
}
