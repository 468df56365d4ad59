package s3test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// Proxy stands between clients and a server. It counts every request and does with it what its rule says.
type Proxy struct {
	Endpoint string
	target   *url.URL
	server   *httptest.Server

	mu       sync.Mutex // guards all below
	rule     func(*http.Request) Action
	requests []Request

	sent, received atomic.Int64 // bytes of bodies, to the server and from it
}

// Bytes returns how many bytes of bodies clients have sent and received so far.
func (p *Proxy) Bytes() (sent, received int64) { return p.sent.Load(), p.received.Load() }

// counted counts what a client receives.
type counted struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// Flush implements http.Flusher, which actions ask for.
func (c counted) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

// countedBody counts what a client sends.
type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c countedBody) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// Request is one request that has reached the proxy.
type Request struct {
	Method string
	Path   string
	Query  url.Values
	Header http.Header
	At     time.Time
}

func (r Request) String() string { return r.Method + " " + r.Path }

// Action is what the proxy does with a request. forward passes it on and returns the server's answer.
type Action func(w http.ResponseWriter, r *http.Request, forward func() (*http.Response, error))

// NewProxy starts a proxy in front of a server. It stops when the test ends.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	target, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target}
	p.server = httptest.NewServer(http.HandlerFunc(p.serve))
	p.Endpoint = p.server.URL
	t.Cleanup(p.Close)
	return p
}

// Close stops the proxy: from then on nobody answers at its address. It may be called more than once.
func (p *Proxy) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// Rule sets what is done with requests from now on; for a nil Action, or without a rule, they are forwarded. The rule
// is called for one request at a time and must not call the proxy.
func (p *Proxy) Rule(rule func(*http.Request) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

// Requests returns what has reached the proxy so far, in order.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Request(nil), p.requests...)
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests = append(p.requests, Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Header: r.Header.Clone(), At: time.Now()})
	var action Action
	if p.rule != nil {
		action = p.rule(r)
	}
	p.mu.Unlock()
	if action == nil {
		action = Forward
	}
	r.Body = countedBody{r.Body, &p.sent}
	action(counted{w, &p.received}, r, func() (*http.Response, error) { return p.forward(r) })
}

func (p *Proxy) forward(r *http.Request) (*http.Response, error) {
	return p.forwardIn(r.Context(), r)
}

// Later is an action for one request: it closes the connection at once, and the server gets the request when land is
// called, which returns the status of the answer that nobody waits for.
func (p *Proxy) Later() (action Action, land func() (status int, err error)) {
	var late *http.Request
	arrived := make(chan struct{})
	action = func(_ http.ResponseWriter, r *http.Request, _ func() (*http.Response, error)) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			late = r.Clone(context.Background())
			late.Body = io.NopCloser(bytes.NewReader(body))
		}
		close(arrived)
		panic(http.ErrAbortHandler)
	}
	land = func() (int, error) {
		<-arrived
		if late == nil {
			return 0, errors.New("the request did not arrive whole")
		}
		resp, err := p.forwardIn(context.Background(), late)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	return action, land
}

func (p *Proxy) forwardIn(ctx context.Context, r *http.Request) (*http.Response, error) {
	out := r.Clone(ctx)
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host // Host, which is signed, stays
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	}
	return http.DefaultTransport.RoundTrip(out)
}

// Forward passes a request on and its answer back.
func Forward(w http.ResponseWriter, _ *http.Request, forward func() (*http.Response, error)) {
	resp, err := forward()
	if err != nil {
		panic(http.ErrAbortHandler) // which closes the connection
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// LoseAnswer passes a request on and closes the connection instead of answering.
func LoseAnswer(_ http.ResponseWriter, _ *http.Request, forward func() (*http.Response, error)) {
	if resp, err := forward(); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	panic(http.ErrAbortHandler)
}

// LoseRequest reads a request and closes the connection; the server never sees it.
func LoseRequest(_ http.ResponseWriter, r *http.Request, _ func() (*http.Response, error)) {
	_, _ = io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
}

// Hang reads a request and answers nothing until the client goes away; the server never sees it.
func Hang(_ http.ResponseWriter, r *http.Request, _ func() (*http.Response, error)) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// Answer answers with an S3 error in the server's place.
func Answer(status int, code string) Action {
	return func(w http.ResponseWriter, r *http.Request, _ func() (*http.Response, error)) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>by the proxy</Message></Error>`, code)
	}
}

// Strip drops a header and signs the request anew, as a gateway that ends the client's authentication does.
func Strip(header string) Action {
	return func(w http.ResponseWriter, r *http.Request, forward func() (*http.Response, error)) {
		r.Header.Del(header)
		r.Header.Del("Authorization")
		r.URL.Host = r.Host
		credentials := aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey}
		hash := r.Header.Get("X-Amz-Content-Sha256")
		if err := v4.NewSigner().SignHTTP(r.Context(), credentials, r, hash, "s3", Region, time.Now()); err != nil {
			panic(http.ErrAbortHandler)
		}
		Forward(w, r, forward)
	}
}
