package objstore_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/test/s3/s3test"
)

// isCopy recognises the copy of a part.
func isCopy(r *http.Request) bool { return isPart(r) && r.Header.Get("X-Amz-Copy-Source") != "" }

// TestARangeOnS3IsCopiedByTheServer counts what a copy of three objects behind a file's magic number costs: one request
// each and the bytes that are written, whatever their size.
func TestARangeOnS3IsCopiedByTheServer(t *testing.T) {
	b := newBench(t, s3test.Start(t))
	body := make([]byte, 20<<20)
	copy(body, "PAR1")
	from, err := upload(t.Context(), b.plain, "from", body)
	if err != nil {
		t.Fatal(err)
	}
	before := len(b.proxy.Requests())
	sentBefore, receivedBefore := b.proxy.Bytes()
	u, err := b.store.Create(t.Context(), "joined")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Write([]byte("PAR1")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := objstore.CopyRange(u, "from", from.ETag, 4, int64(len(body)-4)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := u.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	info, err := u.Complete(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(4 + 3*(len(body)-4) + 1000); info.Size != want {
		t.Errorf("%d bytes, want %d", info.Size, want)
	}
	requests := b.proxy.Requests()[before:]
	copies := 0
	for _, r := range requests {
		if r.Header.Get("X-Amz-Copy-Source") != "" {
			copies++
		}
	}
	// The magic number is compared, then: begin, three copies, the last part, complete.
	if copies != 3 || len(requests) != 7 {
		t.Errorf("%d copies in %d requests: %v", copies, len(requests), requests)
	}
	sent, received := b.proxy.Bytes()
	if sent, received = sent-sentBefore, received-receivedBefore; sent+received > 16<<10 {
		t.Errorf("%d bytes were sent and %d received for a join of %d", sent, received, info.Size)
	}
}

func TestCopiesOnS3SurviveTransientTrouble(t *testing.T) {
	server := s3test.Start(t)
	body := make([]byte, 6<<20)
	for i, action := range []s3test.Action{s3test.Answer(503, "SlowDown"), s3test.Answer(500, "InternalError"), s3test.LoseAnswer, s3test.LoseRequest} {
		b := newBench(t, server)
		from, err := upload(t.Context(), b.plain, "from", body)
		if err != nil {
			t.Fatal(err)
		}
		b.on(isCopy, action)
		u, err := b.store.Create(t.Context(), "joined")
		if err != nil {
			t.Fatal(err)
		}
		if err := objstore.CopyRange(u, "from", from.ETag, 0, int64(len(body))); err != nil {
			t.Errorf("trouble %d: %v", i, err)
			continue
		}
		if _, err := u.Complete(t.Context()); err != nil {
			t.Errorf("trouble %d: %v", i, err)
		}
		if got, _, err := b.plain.Get(t.Context(), "joined"); err != nil || len(got) != len(body) {
			t.Errorf("trouble %d: %d bytes are there, %v", i, len(got), err)
		}
	}
}

// TestAFencedCopyOnS3SendsNoFurtherPartAndNoEnd fences while the server copies.
func TestAFencedCopyOnS3SendsNoFurtherPartAndNoEnd(t *testing.T) {
	b := newBench(t, s3test.Start(t))
	body := make([]byte, 6<<20)
	from, err := upload(t.Context(), b.plain, "from", body)
	if err != nil {
		t.Fatal(err)
	}
	scope := objstore.NewScope(b.store, clock.System())
	u, err := scope.Create(t.Context(), "joined")
	if err != nil {
		t.Fatal(err)
	}
	hanging := make(chan struct{})
	b.on(isCopy, func(_ http.ResponseWriter, r *http.Request, _ func() (*http.Response, error)) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(hanging)
		<-r.Context().Done() // the client has closed the connection
		panic(http.ErrAbortHandler)
	})
	copied := make(chan error)
	go func() { copied <- objstore.CopyRange(u, "from", from.ETag, 0, int64(len(body))) }()
	<-hanging
	before := len(b.proxy.Requests())
	scope.Fence(errLost)
	first := <-copied
	second := objstore.CopyRange(u, "from", from.ETag, 0, int64(len(body)))
	_, completeErr := u.Complete(t.Context())
	for _, err := range []error{first, second, completeErr, u.Abort(t.Context())} {
		if !errors.Is(err, errLost) || objstore.CodeOf(err) != objstore.CodeFenced {
			t.Errorf("%v, want fenced", err)
		}
	}
	if sent := b.proxy.Requests()[before:]; len(sent) != 0 {
		t.Errorf("sent after the fence: %v", sent)
	}
}
