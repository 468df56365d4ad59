package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/objstore"
	"tidemark/test/s3/s3test"
)

// isPart, isComplete and isAbort recognise the requests of a multipart upload.
func isPart(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Has("partNumber")
}
func isComplete(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}
func isAbort(r *http.Request) bool {
	return r.Method == http.MethodDelete && r.URL.Query().Has("uploadId")
}

// unfinished returns the keys of the unfinished uploads in the server's bucket.
func unfinished(t *testing.T, server *s3test.Server) []string {
	t.Helper()
	out, err := server.Client().ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &server.Bucket})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, u := range out.Uploads {
		keys = append(keys, *u.Key)
	}
	return keys
}

func upload(ctx context.Context, s objstore.Store, key string, body []byte) (objstore.Info, error) {
	u, err := s.Create(ctx, key)
	if err != nil {
		return objstore.Info{}, err
	}
	defer func() { _ = u.Abort(ctx) }()
	if _, err := u.Write(body); err != nil {
		return objstore.Info{}, err
	}
	return u.Complete(ctx)
}

func TestUploadsToS3SurviveTransientTrouble(t *testing.T) {
	server := s3test.Start(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), (2*objstore.PartBytes+1000)/16)
	trouble := []s3test.Action{s3test.Answer(503, "SlowDown"), s3test.Answer(500, "InternalError"), s3test.LoseAnswer, s3test.LoseRequest}
	for name, c := range map[string]struct {
		body  []byte
		match func(*http.Request) bool
	}{
		"the put of a small object": {[]byte("small"), func(r *http.Request) bool { return r.Method == http.MethodPut }},
		"a part":                    {large, isPart},
		"the completion":            {large, isComplete},
		"the beginning":             {large, func(r *http.Request) bool { return r.URL.Query().Has("uploads") }},
	} {
		for i, action := range trouble {
			b := newBench(t, server)
			b.on(c.match, action)
			info, err := upload(t.Context(), b.store, "up", c.body)
			if err != nil {
				t.Errorf("%s, trouble %d: %v", name, i, err)
				continue
			}
			if got, at, err := b.plain.Get(t.Context(), "up"); err != nil || !bytes.Equal(got, c.body) || at.ETag != info.ETag {
				t.Errorf("%s, trouble %d: %d bytes at %s are there, %s was completed, %v", name, i, len(got), at.ETag, info.ETag, err)
			}
		}
	}
	for _, key := range unfinished(t, server) {
		if !strings.HasSuffix(key, "up") {
			t.Errorf("an upload of %s is left", key)
		}
	}
}

// TestACompletionOnS3ThatIsSentAgainIsDecidedByTheObject pins what NoSuchUpload means.
func TestACompletionOnS3ThatIsSentAgainIsDecidedByTheObject(t *testing.T) {
	server := s3test.Start(t)
	large := make([]byte, objstore.PartBytes+1)

	b := newBench(t, server)
	b.on(isComplete, s3test.LoseAnswer, s3test.Answer(404, "NoSuchUpload"))
	if info, err := upload(t.Context(), b.store, "there", large); err != nil || info.Size != int64(len(large)) || info.ETag == "" {
		t.Errorf("completed, answer lost: %+v %v", info, err)
	}
	b.on(isComplete, s3test.LoseRequest, s3test.Answer(404, "NoSuchUpload"))
	if _, err := upload(t.Context(), b.store, "gone", large); err == nil {
		t.Error("never completed, and the upload is gone: no error")
	}
	b.on(isComplete, s3test.Answer(404, "NoSuchUpload"))
	if _, err := upload(t.Context(), b.store, "at once", large); err == nil {
		t.Error("the upload is gone at the first attempt: no error")
	}
}

func TestEveryFailedUploadToS3IsAborted(t *testing.T) {
	server := s3test.Start(t)
	large := make([]byte, 2*objstore.PartBytes+1)
	denied := repeat(s3test.Answer(403, "AccessDenied"), 100)
	for name, run := range map[string]func(b bench) error{
		"a part is refused": func(b bench) error {
			b.on(isPart, denied...)
			_, err := upload(t.Context(), b.store, "up", large)
			return err
		},
		"the completion is refused": func(b bench) error {
			b.on(isComplete, denied...)
			_, err := upload(t.Context(), b.store, "up", large)
			return err
		},
		"the completion fails for ever": func(b bench) error {
			b.on(isComplete, repeat(s3test.Answer(500, "InternalError"), 100)...)
			_, err := upload(t.Context(), b.store, "up", large)
			return err
		},
		"the context ends during a part": func(b bench) error {
			ctx, cancel := context.WithCancel(t.Context())
			b.on(isPart, func(w http.ResponseWriter, r *http.Request, forward func() (*http.Response, error)) {
				cancel()
				s3test.Hang(w, r, forward)
			})
			_, err := upload(ctx, b.store, "up", large)
			return err
		},
		"the abort meets trouble": func(b bench) error {
			b.on(func(r *http.Request) bool { return isComplete(r) || isAbort(r) },
				s3test.Answer(403, "AccessDenied"), s3test.LoseRequest, s3test.LoseAnswer)
			_, err := upload(t.Context(), b.store, "up", large)
			return err
		},
	} {
		b := newBench(t, server)
		if err := run(b); err == nil {
			t.Errorf("%s: no error", name)
		}
		if keys := unfinished(t, server); len(keys) != 0 {
			t.Errorf("%s: uploads are left: %q", name, keys)
		}
		if _, err := b.plain.Head(t.Context(), "up"); !errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("%s: %v, want not found", name, err)
		}
	}
}

func TestAnUploadToS3HoldsTwoPartsAtMost(t *testing.T) {
	server := s3test.Start(t)
	s := openS3(t, server.Endpoint, server.Root())
	u, err := s.Create(t.Context(), "big")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = u.Abort(t.Context()) }()
	chunk := make([]byte, 1<<20)
	held := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	for i := range 80 {
		if _, err := u.Write(chunk); err != nil {
			t.Fatal(err)
		}
		// Growing a buffer by appending overshoots by a quarter.
		if now := held(); now > before+5*objstore.PartBytes/2+(4<<20) {
			t.Fatalf("after %d MiB the upload holds %d bytes", i+1, now-before)
		}
	}
	if info, err := u.Complete(t.Context()); err != nil || info.Size != 80<<20 {
		t.Fatal(info, err)
	}
}

func TestTagsAndEncryptionArePassedThroughToS3(t *testing.T) {
	server := s3test.Start(t)
	proxy := s3test.NewProxy(t, server)
	o := s3Options(proxy.Endpoint)
	o.S3.Tags = map[string]string{"team": "data & more", "by": "tidemark"}
	o.S3.Encryption, o.S3.KMSKey = "aws:kms", "key-1"
	s, err := objstore.Open(t.Context(), server.Root(), o)
	if err != nil {
		t.Fatal(err)
	}
	// What the server makes of them is its business.
	s.PutIfAbsent(t.Context(), "put", nil)
	s.ReplaceIfMatch(t.Context(), "put", nil, "e")
	_, _ = upload(t.Context(), s, "small", nil)
	proxy.Rule(func(r *http.Request) s3test.Action {
		if r.Method == http.MethodPost {
			return s3test.Answer(403, "AccessDenied")
		}
		return nil
	})
	_, _ = upload(t.Context(), s, "large", make([]byte, objstore.PartBytes+1))
	seen := 0
	for _, r := range proxy.Requests() {
		if r.Method != http.MethodPut && r.Method != http.MethodPost {
			continue
		}
		seen++
		if r.Header.Get("X-Amz-Tagging") != "by=tidemark&team=data+%26+more" || r.Header.Get("X-Amz-Server-Side-Encryption") != "aws:kms" ||
			r.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id") != "key-1" {
			t.Errorf("%s: %v", r, r.Header)
		}
	}
	if seen != 4 {
		t.Errorf("%d requests create something, want 4: %v", seen, proxy.Requests())
	}
	o.S3.Encryption = "AES256"
	if _, err := objstore.Open(t.Context(), server.Root(), o); err == nil || !strings.Contains(err.Error(), "aws:kms") {
		t.Errorf("a key without aws:kms: %v", err)
	}
}

func TestRequestsToS3AreCountedByOperationAndStatus(t *testing.T) {
	b := newBench(t, s3test.Start(t))
	reg := prometheus.NewRegistry()
	s, err := objstore.Instrument(b.store, reg)
	if err != nil {
		t.Fatal(err)
	}
	b.onPut(s3test.LoseAnswer)
	s.PutIfAbsent(t.Context(), "k", nil)
	s.PutIfAbsent(t.Context(), "k", nil)
	b.on(func(*http.Request) bool { return true }, s3test.Answer(503, "SlowDown"))
	_, _, _ = s.Get(t.Context(), "k")
	if _, err := upload(t.Context(), s, "up", make([]byte, objstore.PartBytes+1)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"complete 200 1", "create 200 1", "get 200 1", "get 503 1", "put-if-absent 412 1", "put-if-absent none 1", "write 200 2",
	}
	if got := counters(t, reg, "tidemark_s3_requests_total"); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
