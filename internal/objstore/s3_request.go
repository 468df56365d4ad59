package objstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"tidemark/internal/random"
)

const (
	// dialTimeout bounds connecting and, again, the TLS handshake.
	dialTimeout = 10 * time.Second
	// An attempt gets answerTimeout plus the time its bytes need at slowestRate, 128 KiB/s: a server or a line slower
	// than that is as good as gone. What makes the server move bytes before it answers gets moveTimeout, and the first
	// request of all, which somebody waits for to see a process start, openTimeout.
	answerTimeout = 10 * time.Second
	moveTimeout   = 30 * time.Second
	openTimeout   = 5 * time.Second
	slowestRate   = 128 << 10
	// idleConnections kept per host; an executor has some dozens of requests under way at once.
	idleConnections = 64
	// conflictsMax bounds how often a 409 is sent again. Each means that somebody else's request was being carried
	// out, so that progress is made meanwhile.
	conflictsMax = 10
)

// retries bound the attempts of one request that may be repeated.
type retries struct {
	attempts  int
	total     time.Duration // from the first send to the last
	first     time.Duration // wait after the first attempt, doubled each time
	throttled time.Duration // the same after a 503 Slow Down
	longest   time.Duration
	answer    time.Duration // what an attempt gets, beside the time for its bytes
}

var (
	usualRetries = retries{attempts: 12, total: time.Minute, first: 100 * time.Millisecond, throttled: 500 * time.Millisecond, longest: 10 * time.Second, answer: answerTimeout}
	moveRetries  = usualRetries.answeredWithin(moveTimeout)
	// A conflict is over as soon as somebody else's put is.
	conflictRetries = retries{first: 50 * time.Millisecond, longest: time.Second}
	openRetries     = retries{attempts: 3, total: 3 * openTimeout, first: 200 * time.Millisecond, throttled: time.Second, longest: time.Second, answer: openTimeout}
)

func (r retries) answeredWithin(d time.Duration) retries {
	r.answer = d
	return r
}

func (r retries) wait(src random.Source, attempt int, t *trouble) time.Duration {
	first := r.first
	if t.code == CodeThrottled {
		first = r.throttled
	}
	return random.Jitter(src, min(first<<min(attempt, 10), r.longest))
}

// codeNoUpload is S3's code for an upload that was completed, was aborted or never was.
const codeNoUpload = "NoSuchUpload"

// What the store's answers mean beside the sentinels of the package.
var (
	errPrecondition = errors.New("the condition does not hold")
	errConflict     = errors.New("a concurrent conditional request was under way")
	errBehindEnd    = errors.New("the range begins behind the end of the object")
	errNoUpload     = errors.New("there is no such unfinished upload")
)

// exchange is what the transport sees of one attempt.
type exchange struct {
	op    string
	ctx   context.Context // of the attempt's owner: its scope is asked before anything is sent
	sent  atomic.Bool     // bytes may have gone out
	timer *time.Timer     // ends the attempt
	// patience is how long the attempt may take, from its start or from when its answer begins.
	patience time.Duration
	status   int       // of the answer; 0 without one
	date     time.Time // of the answer, by the store's clock
}

// trouble is why an attempt failed.
type trouble struct {
	code      Code
	err       error
	certain   bool // the store said no, or nothing was sent: it has not happened and will not
	transient bool // another attempt may fare better
}

type exchangeKey struct{}

// once makes one attempt. It gets the time answer, and more for size, the number of bytes that are expected to travel.
func (s *S3) once(ctx context.Context, op string, answer time.Duration, size int64, send func(context.Context) error) (*exchange, *trouble) {
	x := &exchange{op: op, ctx: ctx}
	if err := Admitted(ctx); err != nil {
		return x, &trouble{code: CodeCancelled, err: err, certain: true}
	}
	timeout := min(answer, s.answerMax) + time.Duration(size/slowestRate)*time.Second
	attempt, cancel := context.WithCancel(context.WithValue(ctx, exchangeKey{}, x))
	defer cancel()
	x.patience, x.timer = timeout, time.AfterFunc(timeout, cancel)
	defer x.timer.Stop()
	attempt = httptrace.WithClientTrace(attempt, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { x.take(got.Conn) }})
	err := send(attempt)
	if err == nil {
		return x, nil
	}
	if x.status != 0 {
		if t := judgeAnswer(x.status, err); t != nil {
			return x, t
		}
	}
	if err := Admitted(ctx); err != nil {
		return x, &trouble{code: CodeCancelled, err: err, certain: !x.sent.Load()}
	}
	var unsent *smithyhttp.RequestSendError
	switch {
	case attempt.Err() != nil:
		return x, &trouble{code: CodeUnavailable, err: fmt.Errorf("no answer within %v", timeout), certain: !x.sent.Load(), transient: true}
	case x.sent.Load():
		return x, &trouble{code: CodeUnavailable, err: fmt.Errorf("the answer was lost: %w", err), transient: true}
	case errors.As(err, &unsent):
		return x, &trouble{code: CodeUnavailable, err: fmt.Errorf("no connection: %w", unsent.Err), certain: true, transient: true}
	}
	// The SDK did not get as far as sending: no credentials, as a rule.
	return x, &trouble{code: CodeDenied, err: fmt.Errorf("the request could not be signed: %w", err), certain: true}
}

// judgeAnswer says what an answer with a status means, or nil if the status was a success and something else failed.
func judgeAnswer(status int, err error) *trouble {
	code, message := "", ""
	var api smithy.APIError
	if errors.As(err, &api) {
		code, message = api.ErrorCode(), api.ErrorMessage()
	}
	said := fmt.Errorf("the store answered %d %s: %s", status, code, message)
	switch code {
	case "NoSuchBucket":
		return &trouble{code: CodeBadRoot, err: errors.New("the bucket does not exist"), certain: true}
	case codeNoUpload:
		return &trouble{code: CodeNotFound, err: errNoUpload, certain: true}
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "ExpiredToken", "InvalidToken":
		return &trouble{code: CodeDenied, err: said, certain: true} // with various statuses, by server
	}
	switch {
	case status == http.StatusNotFound && (code == "NoSuchKey" || code == "NotFound"): // not some gateway's 404
		return &trouble{code: CodeNotFound, err: ErrNotFound, certain: true}
	case status == http.StatusPreconditionFailed:
		return &trouble{code: CodeMismatch, err: errPrecondition, certain: true}
	case status == http.StatusConflict:
		return &trouble{code: CodeUnavailable, err: fmt.Errorf("%w (%s)", errConflict, code), certain: true, transient: true}
	case status == http.StatusRequestedRangeNotSatisfiable:
		return &trouble{code: CodeInvalid, err: errBehindEnd, certain: true}
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests, code == "SlowDown":
		return &trouble{code: CodeThrottled, err: said, transient: true}
	case status == http.StatusRequestTimeout, code == "RequestTimeout":
		return &trouble{code: CodeUnavailable, err: said, transient: true}
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return &trouble{code: CodeDenied, err: said, certain: true}
	case status/100 == 3:
		return &trouble{code: CodeBadRoot, err: fmt.Errorf("the bucket is in another region; set AWS_REGION (%w)", said), certain: true}
	case status/100 == 4, status == http.StatusNotImplemented:
		return &trouble{code: CodeInvalid, err: said, certain: true}
	case status/100 == 5, code != "":
		return &trouble{code: CodeUnavailable, err: said, transient: true}
	}
	return nil
}

// retried makes attempts until one ends in something other than transient trouble, within the bounds.
func (s *S3) retried(ctx context.Context, op, key string, size int64, r retries, send func(context.Context) error) (*exchange, error) {
	start := s.clock.Mono()
	for attempt := 0; ; attempt++ {
		x, t := s.once(ctx, op, r.answer, size, send)
		if t == nil {
			return x, nil
		}
		if !t.transient {
			return x, fail(op, key, t.code, t.err)
		}
		wait := r.wait(s.random, attempt, t)
		if attempt+1 >= r.attempts || s.clock.Mono()-start+wait > r.total {
			return x, fail(op, key, t.code, fmt.Errorf("%w (attempt %d, the last)", t.err, attempt+1))
		}
		s.log.Debug("object store request failed, trying again", "op", op, "key", key, "attempt", attempt+1, "wait", wait, "error", t.err)
		if err := s.clock.Sleep(ctx, wait); err != nil {
			return x, fail(op, key, t.code, fmt.Errorf("%w (after attempt %d: %w)", err, attempt+1, t.err))
		}
	}
}

// s3Transport sends the SDK's requests. It asks the scope before each, follows no redirects, and counts.
type s3Transport struct {
	store *S3
	http  http.RoundTripper
}

func newS3Transport(s *S3) *s3Transport {
	dialer := net.Dialer{Timeout: dialTimeout}
	return &s3Transport{store: s, http: &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &gatedConn{Conn: conn}, nil
		},
		TLSHandshakeTimeout:   dialTimeout,
		ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost:   idleConnections,
		IdleConnTimeout:       time.Minute,
		ForceAttemptHTTP2:     false, // a connection carries one request at a time
	}}
}

// Do implements the SDK's HTTPClient.
func (t *s3Transport) Do(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := Admitted(ctx); err != nil {
		return nil, err
	}
	resp, err := t.http.RoundTrip(req)
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	if x == nil {
		return resp, err
	}
	status := "none"
	if err == nil {
		x.status = resp.StatusCode
		x.date, _ = http.ParseTime(resp.Header.Get("Date")) // without one, the zero time
		status = strconv.Itoa(resp.StatusCode)
		if n := resp.ContentLength / slowestRate; n > 0 { // more than was expected: a whole object of unknown size
			x.timer.Reset(x.patience + time.Duration(n)*time.Second)
		}
	}
	if requests := t.store.requests.Load(); requests != nil {
		requests.WithLabelValues(x.op, status).Inc()
	}
	return resp, err
}

// gatedConn asks the scope of the request that it carries right before every write, so that a process which was stopped
// in the middle of a request sends nothing more of it when it wakes too late.
type gatedConn struct {
	net.Conn
	carried atomic.Pointer[exchange] // nil while the connection is set up
}

// take makes a connection carry the exchange.
func (x *exchange) take(conn net.Conn) {
	if tls, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = tls.NetConn()
	}
	if gated, ok := conn.(*gatedConn); ok {
		gated.carried.Store(x)
	}
}

func (c *gatedConn) Write(p []byte) (int, error) {
	if x := c.carried.Load(); x != nil {
		if err := Admitted(x.ctx); err != nil {
			return 0, err
		}
		x.sent.Store(true)
	}
	return c.Conn.Write(p)
}
