// Package apiclient asks masters over /api/v1, as the command line does. It finds the master that answers, speaks for
// whoever runs it, and turns problems into errors that say which master, what and what to do.
//
// A token goes only to masters that were named: whoever can write to etcd can name any address there.
//
// Where no master is to be gone through, Local asks the same API of a handler in this process, so that there is one way in
// which everything is asked and shown.
package apiclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// findTimeout bounds how long one master is waited for before the next is asked: a handshake across a continent.
	findTimeout = 2 * time.Second
	// requestTimeout is above the 20 s that a master gives a request.
	requestTimeout = 30 * time.Second
	// answerBytesMax bounds an answer: a page of 500 shards is a tenth of it.
	answerBytesMax = 8 << 20
	// PageMax is the most items of a page.
	PageMax = 500
)

// ErrNoMaster: none of the masters that are known answers us.
var ErrNoMaster = errors.New("no master answers")

// Options say where masters are and who asks.
type Options struct {
	Masters []string    // URLs, such as http://10.0.0.1:7078, in the order in which they are asked
	Token   string      // empty: none
	TLS     *tls.Config // nil: what the system trusts
	By      string      // who asks, for the record, where no token says so
}

// Client asks one master.
type Client struct {
	base string
	o    Options
	http *http.Client
}

// Problem is a master's refusal.
type Problem struct {
	Status int    `json:"status"`
	Kind   string `json:"code"` // stable
	Detail string `json:"detail"`
}

func (p *Problem) Error() string { return p.Detail }

// Code is the problem's stable code.
func (p *Problem) Code() string { return p.Kind }

// Local returns a client of an API in this process.
func Local(api http.Handler) *Client {
	return &Client{base: "http://local", http: &http.Client{Transport: local{api}}}
}

// local answers requests by a handler. Handlers of streams do not end in it.
type local struct{ api http.Handler }

func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &written{header: http.Header{}}
	l.api.ServeHTTP(w, r)
	return &http.Response{
		StatusCode: max(w.status, http.StatusOK), Header: w.header, Body: io.NopCloser(&w.body), Request: r, ContentLength: int64(w.body.Len()),
	}, nil
}

// written is what a handler wrote.
type written struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *written) Header() http.Header         { return w.header }
func (w *written) Write(p []byte) (int, error) { return w.body.Write(p) }

func (w *written) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Find returns a client of the first master that answers us. Without one it is ErrNoMaster, with what happened to each.
func Find(ctx context.Context, o Options) (*Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.DisableKeepAlives = o.TLS, true
	// A redirect could carry the token elsewhere.
	c := &Client{o: o, http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	var tried []string
	for _, master := range o.Masters {
		u, err := url.Parse(master)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("%q is not the URL of a master, such as http://10.0.0.1:7078", master)
		}
		c.base = strings.TrimSuffix(master, "/")
		asking, cancel := context.WithTimeout(ctx, findTimeout)
		a, err := c.send(asking, http.MethodHead, "/api/v1/openapi.json", nil)
		cancel()
		switch {
		case err != nil:
			tried = append(tried, err.Error())
		case a.status == http.StatusUnauthorized && o.Token == "":
			tried = append(tried, fmt.Sprintf("master %s asks for a token: name it with --master, and give --token-file", c.base))
		case a.status == http.StatusUnauthorized:
			tried = append(tried, fmt.Sprintf("master %s does not know the token", c.base))
		case a.status != http.StatusOK:
			tried = append(tried, fmt.Sprintf("master %s answers with status %d; is it a master of Tidemark?", c.base, a.status))
		default:
			return c, nil
		}
	}
	if len(tried) == 0 {
		return nil, fmt.Errorf("%w: none is known", ErrNoMaster)
	}
	return nil, fmt.Errorf("%w: %s", ErrNoMaster, strings.Join(tried, "; "))
}

// Master is the URL of the master that answers.
func (c *Client) Master() string { return c.base }

// send sends one request; the answer's body is read whole.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	if c.o.By != "" {
		req.Header.Set("From", c.o.By)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if failed := (*url.Error)(nil); errors.As(err, &failed) {
			err = failed.Err
		}
		return nil, fmt.Errorf("master %s: %w", c.base, err)
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode}
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, answerBytesMax+1)); err != nil {
		return nil, fmt.Errorf("master %s: reading its answer: %w", c.base, err)
	}
	if len(a.body) > answerBytesMax {
		return nil, fmt.Errorf("master %s: its answer is longer than %d bytes", c.base, answerBytesMax)
	}
	return a, nil
}

type answer struct {
	status int
	body   []byte
}

// call sends a request to /api/v1 and decodes the answer.
func (c *Client) call(ctx context.Context, method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	a, err := c.send(ctx, method, "/api/v1"+path, body)
	if err != nil {
		return err
	}
	if a.status == http.StatusOK {
		if err := json.Unmarshal(a.body, into); err != nil {
			return fmt.Errorf("master %s answers %s with something else than the API's JSON: %w", c.base, path, err)
		}
		return nil
	}
	var p Problem
	if json.Unmarshal(a.body, &p) != nil || p.Detail == "" {
		return fmt.Errorf("master %s answers %s with status %d and no reason; is it a master of Tidemark?", c.base, path, a.status)
	}
	if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
		p.Detail = fmt.Sprintf("master %s: %s", c.base, p.Detail)
	}
	return &p
}

// Get reads a path below /api/v1.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.call(ctx, http.MethodGet, path, nil, into)
}

// Post acts on a path below /api/v1.
func (c *Client) Post(ctx context.Context, path string, body, into any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	return c.call(ctx, http.MethodPost, path, encoded, into)
}

// All reads every page of a list.
func All[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	q := url.Values{"limit": {fmt.Sprint(PageMax)}}
	for name, values := range query {
		q[name] = values
	}
	var all []T
	for {
		var page struct {
			Items []T    `json:"items"`
			Next  string `json:"next"`
		}
		if err := c.Get(ctx, path+"?"+q.Encode(), &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			return all, nil
		}
		q.Set("cursor", page.Next)
	}
}
