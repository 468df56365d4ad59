package objstore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/test/s3/s3test"
)

// hasty is a clock whose waits pass at once, but for the scheduler's turn. Its monotonic time includes them.
type hasty struct {
	clock.Clock
	waited *time.Duration
}

func (h hasty) Sleep(ctx context.Context, d time.Duration) error {
	*h.waited += d
	return context.Cause(ctx)
}

func (h hasty) Mono() time.Duration { return h.Clock.Mono() + *h.waited }

// bench is a store on the real server behind a proxy.
type bench struct {
	store objstore.Store
	proxy *s3test.Proxy
	plain objstore.Store // the same root, past the proxy
	retry objstore.Retry
}

func newBench(t *testing.T, server *s3test.Server) bench {
	t.Helper()
	b := bench{proxy: s3test.NewProxy(t, server)}
	root := server.Root()
	o := s3Options(b.proxy.Endpoint)
	o.Clock = hasty{clock.System(), new(time.Duration)}
	s, err := objstore.Open(t.Context(), root, o)
	if err != nil {
		t.Fatal(err)
	}
	b.store = s
	b.plain = openS3(t, server.Endpoint, root)
	b.retry = objstore.Retry{Clock: o.Clock, Random: random.Seeded(1)}
	return b
}

// onPut applies actions to the first, second … put that arrives from now on.
func (b bench) onPut(actions ...s3test.Action) {
	b.on(func(r *http.Request) bool { return r.Method == http.MethodPut }, actions...)
}

func (b bench) on(match func(*http.Request) bool, actions ...s3test.Action) {
	b.proxy.Rule(func(r *http.Request) s3test.Action {
		if !match(r) || len(actions) == 0 {
			return nil
		}
		action := actions[0]
		actions = actions[1:]
		return action
	})
}

// sent returns how many requests with a method have reached the proxy since before.
func (b bench) sent(method string, before int) int {
	n := 0
	for _, r := range b.proxy.Requests()[before:] {
		if r.Method == method {
			n++
		}
	}
	return n
}

func repeat(a s3test.Action, n int) []s3test.Action {
	var all []s3test.Action
	for range n {
		all = append(all, a)
	}
	return all
}

// TestOneAttemptOfAConditionalPutOnS3EndsAsItShould pins the outcome of each answer, and that nothing is sent again but
// after a 409.
func TestOneAttemptOfAConditionalPutOnS3EndsAsItShould(t *testing.T) {
	server := s3test.Start(t)
	b := newBench(t, server)
	for _, c := range []struct {
		name    string
		actions []s3test.Action
		outcome objstore.Outcome
		code    objstore.Code
		sent    int
	}{
		{"200", nil, objstore.Applied, "", 1},
		{"403", repeat(s3test.Answer(403, "AccessDenied"), 9), objstore.Refused, objstore.CodeDenied, 1},
		{"400 ExpiredToken", repeat(s3test.Answer(400, "ExpiredToken"), 9), objstore.Refused, objstore.CodeDenied, 1},
		{"400", repeat(s3test.Answer(400, "InvalidRequest"), 9), objstore.Refused, objstore.CodeInvalid, 1},
		{"501", repeat(s3test.Answer(501, "NotImplemented"), 9), objstore.Refused, objstore.CodeInvalid, 1},
		{"301", repeat(s3test.Answer(301, "PermanentRedirect"), 9), objstore.Refused, objstore.CodeBadRoot, 1},
		{"404 NoSuchBucket", repeat(s3test.Answer(404, "NoSuchBucket"), 9), objstore.Refused, objstore.CodeBadRoot, 1},
		{"503 SlowDown", repeat(s3test.Answer(503, "SlowDown"), 9), objstore.Unknown, objstore.CodeThrottled, 1},
		{"500", repeat(s3test.Answer(500, "InternalError"), 9), objstore.Unknown, objstore.CodeUnavailable, 1},
		{"504", repeat(s3test.Answer(504, "GatewayTimeout"), 9), objstore.Unknown, objstore.CodeUnavailable, 1},
		{"400 RequestTimeout", repeat(s3test.Answer(400, "RequestTimeout"), 9), objstore.Unknown, objstore.CodeUnavailable, 1},
		{"lost request", repeat(s3test.LoseRequest, 9), objstore.Unknown, objstore.CodeUnavailable, 1},
		{"lost answer", repeat(s3test.LoseAnswer, 9), objstore.Unknown, objstore.CodeUnavailable, 1},
		{"409 twice", repeat(s3test.Answer(409, "ConditionalRequestConflict"), 2), objstore.Applied, "", 3},
		{"409 always", repeat(s3test.Answer(409, "ConditionalRequestConflict"), 99), objstore.Refused, objstore.CodeUnavailable, 11},
	} {
		etag := ""
		if r := b.plain.PutIfAbsent(t.Context(), "replace/"+c.name, []byte("old")); r.Outcome == objstore.Applied {
			etag = r.Info.ETag
		}
		for op, run := range map[string]func() objstore.Result{
			"put": func() objstore.Result { return b.store.PutIfAbsent(t.Context(), "put/"+c.name, []byte("x")) },
			"replace": func() objstore.Result {
				return b.store.ReplaceIfMatch(t.Context(), "replace/"+c.name, []byte("x"), etag)
			},
		} {
			b.onPut(c.actions...)
			before := len(b.proxy.Requests())
			r := run()
			if r.Outcome != c.outcome || c.code != "" && objstore.CodeOf(r.Err) != c.code {
				t.Errorf("%s, %s: %v %v", op, c.name, r.Outcome, r.Err)
			}
			if n := b.sent(http.MethodPut, before); n != c.sent {
				t.Errorf("%s, %s: %d requests were sent, want %d", op, c.name, n, c.sent)
			}
		}
	}
}

// TestUnknownOutcomesOnS3AreSettled is the fault table of issue 3 §2 on the real server.
func TestUnknownOutcomesOnS3AreSettled(t *testing.T) {
	server := s3test.Start(t)
	for _, c := range []struct {
		name    string
		actions func(b bench) ([]s3test.Action, func() (int, error))
		rival   bool // another's object is there first
		put     objstore.Outcome
		replace objstore.Outcome
		kept    string // what is there in the end; empty means nothing, or the old version
	}{
		{"throttled, then nothing is found", fixed(s3test.Answer(503, "SlowDown")), false, objstore.Applied, objstore.Unknown, "ours"},
		{"throttled, then another's is found", fixed(s3test.Answer(503, "SlowDown")), true, objstore.Refused, objstore.Refused, "theirs"},
		{"throttled for ever", fixed(repeat(s3test.Answer(503, "SlowDown"), 99)...), false, objstore.Unknown, objstore.Unknown, ""},
		{"answer lost, then our own is found", fixed(s3test.LoseAnswer), false, objstore.Applied, objstore.Applied, "ours"},
		{"answer lost, then another's is found", fixed(s3test.LoseAnswer), true, objstore.Refused, objstore.Refused, "theirs"},
		{"every answer lost", fixed(repeat(s3test.LoseAnswer, 99)...), false, objstore.Unknown, objstore.Applied, "ours"},
		{"request lost, then nothing is found", fixed(s3test.LoseRequest), false, objstore.Applied, objstore.Unknown, "ours"},
		{"lands late, behind our own", late, false, objstore.Applied, objstore.Unknown, "ours"},
		{"lands late, behind another's", late, true, objstore.Refused, objstore.Refused, "theirs"},
		{"refused", fixed(s3test.Answer(403, "AccessDenied")), false, objstore.Refused, objstore.Refused, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, server)
			old := b.plain.PutIfAbsent(t.Context(), "replace", []byte("old"))
			if c.rival {
				b.plain.PutIfAbsent(t.Context(), "put", []byte("theirs"))
				b.plain.ReplaceIfMatch(t.Context(), "replace", []byte("theirs"), old.Info.ETag)
			}
			actions, land := c.actions(b)
			b.onPut(actions...)
			if r := objstore.PutOnce(t.Context(), b.store, "put", []byte("ours"), b.retry); r.Outcome != c.put {
				t.Errorf("put: %v %v, want %v", r.Outcome, r.Err, c.put)
			}
			b.proxy.Rule(nil)
			if land != nil {
				if status, err := land(); err != nil || status != http.StatusPreconditionFailed {
					t.Errorf("the late put: %d %v, want 412", status, err)
				}
			}
			if body, _, err := b.plain.Get(t.Context(), "put"); string(body) != c.kept || (c.kept == "") != errors.Is(err, objstore.ErrNotFound) {
				t.Errorf("put: there is %q %v in the end, want %q", body, err, c.kept)
			}

			actions, land = c.actions(b)
			b.onPut(actions...)
			r := objstore.Replace(t.Context(), b.store, "replace", []byte("ours"), old.Info.ETag, b.retry)
			if r.Outcome != c.replace {
				t.Errorf("replace: %v %v, want %v", r.Outcome, r.Err, c.replace)
			}
			b.proxy.Rule(nil)
			body, info, _ := b.plain.Get(t.Context(), "replace")
			if want := map[objstore.Outcome]string{objstore.Applied: "ours", objstore.Refused: "theirs", objstore.Unknown: "old"}[c.replace]; string(body) != want && !(c.kept == "" && string(body) == "old") {
				t.Errorf("replace: there is %q, want %q", body, want)
			}
			if land != nil {
				if _, err := land(); err != nil {
					t.Error(err)
				}
				body, info, _ = b.plain.Get(t.Context(), "replace")
			}
			// Whatever happened, the next operation on what is there works.
			if r := objstore.Replace(t.Context(), b.store, "replace", append(body, " next"...), info.ETag, b.retry); r.Outcome != objstore.Applied {
				t.Errorf("next: %v %v", r.Outcome, r.Err)
			}
		})
	}
}

func fixed(actions ...s3test.Action) func(bench) ([]s3test.Action, func() (int, error)) {
	return func(bench) ([]s3test.Action, func() (int, error)) { return actions, nil }
}

func late(b bench) ([]s3test.Action, func() (int, error)) {
	action, land := b.proxy.Later()
	return []s3test.Action{action}, land
}

func TestAPutOnS3ThatIsCancelledBeforeItIsSentIsRefused(t *testing.T) {
	b := newBench(t, s3test.Start(t))
	before := len(b.proxy.Requests())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := b.store.PutIfAbsent(ctx, "k", nil); r.Outcome != objstore.Refused || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("%+v", r)
	}
	b.proxy.Close()
	b.store.PutIfAbsent(t.Context(), "k", nil) // may still go out on the old connection, into the void
	if r := b.store.PutIfAbsent(t.Context(), "k", nil); r.Outcome != objstore.Refused || objstore.CodeOf(r.Err) != objstore.CodeUnavailable {
		t.Errorf("without a connection: %+v", r)
	}
	if n := len(b.proxy.Requests()) - before; n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestAPutOnS3ThatIsCancelledAfterItWasSentIsUnknown(t *testing.T) {
	b := newBench(t, s3test.Start(t))
	arrived := make(chan struct{})
	b.onPut(func(w http.ResponseWriter, r *http.Request, forward func() (*http.Response, error)) {
		close(arrived)
		s3test.Hang(w, r, forward)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if r := b.store.PutIfAbsent(ctx, "k", nil); r.Outcome != objstore.Unknown || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("%+v", r)
	}
}

func TestASilentS3IsGivenUpInTime(t *testing.T) {
	b := newBench(t, s3test.Start(t))
	b.plain.PutIfAbsent(t.Context(), "there", []byte("x"))
	objstore.SetAnswerTimeout(b.store, 100*time.Millisecond)
	b.onPut(s3test.Hang)
	if r := b.store.PutIfAbsent(t.Context(), "k", nil); r.Outcome != objstore.Unknown || objstore.CodeOf(r.Err) != objstore.CodeUnavailable {
		t.Errorf("%+v, want unknown and unavailable", r)
	}
	objstore.SetAnswerTimeout(b.store, time.Minute)
	b.onPut(s3test.Hang)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if r := b.store.PutIfAbsent(ctx, "k", nil); r.Outcome != objstore.Unknown || objstore.CodeOf(r.Err) != objstore.CodeCancelled {
		t.Errorf("%+v, want unknown and cancelled: it was the caller who gave up", r)
	}
}

// A process that starts while the store swallows a request asks again instead of giving up with it.
func TestOpeningASilentS3AsksAgain(t *testing.T) {
	b := newBench(t, s3test.Start(t))
	objstore.SetOpenTimeout(t, 100*time.Millisecond)
	o := s3Options(b.proxy.Endpoint)
	any := func(*http.Request) bool { return true }
	b.on(any, s3test.Hang)
	if _, err := objstore.Open(t.Context(), b.plain.URL(), o); err != nil {
		t.Errorf("one request was swallowed: %v", err)
	}
	b.on(any, repeat(s3test.Hang, 10)...)
	if _, err := objstore.Open(t.Context(), b.plain.URL(), o); err == nil || !strings.Contains(err.Error(), "attempt 3, the last") {
		t.Errorf("every request was swallowed: %v", err)
	}
}

func TestReadsOnS3SurviveTransientTrouble(t *testing.T) {
	b := newBench(t, s3test.Start(t))
	ctx := t.Context()
	b.plain.PutIfAbsent(ctx, "k", []byte("body"))
	trouble := []s3test.Action{s3test.Answer(503, "SlowDown"), s3test.Answer(500, "InternalError"), s3test.LoseAnswer, cutShort}
	any := func(*http.Request) bool { return true }
	for name, read := range map[string]func() (string, error){
		"get":   func() (string, error) { body, _, err := b.store.Get(ctx, "k"); return string(body), err },
		"range": func() (string, error) { body, err := b.store.GetRange(ctx, "k", 0, 4); return string(body), err },
		"head":  func() (string, error) { info, err := b.store.Head(ctx, "k"); return "body"[:info.Size], err },
		"list": func() (string, error) {
			page, err := b.store.List(ctx, objstore.ListRequest{})
			return "body"[:4*len(page.Objects)], err
		},
		"delete": func() (string, error) { return "body", b.store.Delete(ctx, "other") },
	} {
		b.on(any, trouble...)
		if got, err := read(); err != nil || got != "body" {
			t.Errorf("%s: %q %v", name, got, err)
		}
		before := len(b.proxy.Requests())
		b.on(any, repeat(s3test.Answer(503, "SlowDown"), 1000)...)
		if _, err := read(); objstore.CodeOf(err) != objstore.CodeThrottled || !strings.Contains(err.Error(), "the last") {
			t.Errorf("%s, throttled for ever: %v", name, err)
		}
		if n := len(b.proxy.Requests()) - before; n < 5 || n > 12 {
			t.Errorf("%s, throttled for ever: %d requests", name, n)
		}
		before = len(b.proxy.Requests())
		b.on(any, repeat(s3test.Answer(403, "AccessDenied"), 1000)...)
		if _, err := read(); objstore.CodeOf(err) != objstore.CodeDenied || len(b.proxy.Requests())-before != 1 {
			t.Errorf("%s, denied: %v after %d requests", name, err, len(b.proxy.Requests())-before)
		}
	}
}

// TestAnAnswerOfS3WithoutALengthIsReadToItsEnd pins that no gateway which re-chunks answers makes objects look empty.
func TestAnAnswerOfS3WithoutALengthIsReadToItsEnd(t *testing.T) {
	b := newBench(t, s3test.Start(t))
	b.plain.PutIfAbsent(t.Context(), "k", []byte("body"))
	chunked := func(w http.ResponseWriter, r *http.Request, forward func() (*http.Response, error)) {
		flushing := w.(http.Flusher)
		resp, err := forward()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		resp.Header.Del("Content-Length")
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		flushing.Flush()
		_, _ = io.Copy(w, resp.Body)
	}
	b.proxy.Rule(func(*http.Request) s3test.Action { return chunked })
	if body, info, err := b.store.Get(t.Context(), "k"); err != nil || string(body) != "body" || info.Size != 4 {
		t.Errorf("get: %q %+v %v", body, info, err)
	}
	if body, err := b.store.GetRange(t.Context(), "k", 1, 2); err != nil || string(body) != "od" {
		t.Errorf("range: %q %v", body, err)
	}
}

// cutShort announces more bytes than it sends.
func cutShort(w http.ResponseWriter, r *http.Request, forward func() (*http.Response, error)) {
	resp, err := forward()
	if err != nil || r.Method != http.MethodGet {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write([]byte("b"))
	panic(http.ErrAbortHandler)
}

func TestOpenSaysInOneLineWhatIsWrongWithABucket(t *testing.T) {
	server := s3test.Start(t)
	proxy := s3test.NewProxy(t, server)
	proxy.Close()
	for name, c := range map[string]struct {
		root, endpoint, key, want string
	}{
		"missing bucket":    {"s3://nobucket/x", server.Endpoint, s3test.AccessKey, "the bucket does not exist"},
		"wrong credentials": {server.Root(), server.Endpoint, "stranger", "No user exists with the provided access key"},
		"nobody there":      {server.Root(), proxy.Endpoint, s3test.AccessKey, "no connection"},
		"no bucket":         {"s3://", server.Endpoint, s3test.AccessKey, "write s3://bucket"},
		"no credentials":    {server.Root(), server.Endpoint, "", "could not be signed"},
		"credentials":       {"s3://me:secret@bucket", server.Endpoint, s3test.AccessKey, "do not belong into the URL"},
		"bad prefix":        {"s3://tidemark/a//b", server.Endpoint, s3test.AccessKey, "bad prefix"},
	} {
		t.Setenv("AWS_ACCESS_KEY_ID", c.key)
		_, err := objstore.Open(t.Context(), c.root, s3Options(c.endpoint))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "secret@") ||
			objstore.CodeOf(err) != objstore.CodeBadRoot {
			t.Errorf("%s: %v, want one line with %q", name, err, c.want)
		}
	}
}

func TestProbeRefusesAGatewayThatDropsConditions(t *testing.T) {
	server := s3test.Start(t)
	for header, guarantee := range map[string]string{
		"If-None-Match": objstore.GuaranteePutIfAbsent,
		"If-Match":      objstore.GuaranteeReplaceIfMatch,
	} {
		b := newBench(t, server)
		b.proxy.Rule(func(r *http.Request) s3test.Action {
			if r.Header.Get(header) == "" {
				return nil
			}
			return s3test.Strip(header)
		})
		err := objstore.Probe(t.Context(), b.store, random.New())
		var missing *objstore.ProbeError
		if !errors.As(err, &missing) || missing.Guarantee != guarantee {
			t.Errorf("without %s: %v", header, err)
		}
	}
}
