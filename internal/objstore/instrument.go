package objstore

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Instrument counts the operations on a store in tidemark_objstore_operations_total, by op and outcome. Outcomes are
// applied, refused and unknown for conditional mutations, and ok or the error's code for everything else. On S3 it also
// counts every attempt that is sent, in tidemark_s3_requests_total by op and HTTP status ("none" without an answer):
// those are the requests that are paid for. Several stores may share one registry.
func Instrument(s Store, reg prometheus.Registerer) (Store, error) {
	operations, err := register(reg, prometheus.CounterOpts{
		Name: "tidemark_objstore_operations_total",
		Help: "Object store operations by kind and outcome.",
	}, "op", "outcome")
	if err != nil {
		return nil, err
	}
	if s3, ok := s.(*S3); ok {
		requests, err := register(reg, prometheus.CounterOpts{
			Name: "tidemark_s3_requests_total",
			Help: "HTTP requests sent to S3, retries and parts included, by the operation they belong to and the status of the answer.",
		}, "op", "status")
		if err != nil {
			return nil, err
		}
		s3.requests.Store(requests)
	}
	return &instrumented{Store: s, operations: operations}, nil
}

// register registers a counter, or finds the one that another store has registered.
func register(reg prometheus.Registerer, o prometheus.CounterOpts, labels ...string) (*prometheus.CounterVec, error) {
	vec := prometheus.NewCounterVec(o, labels)
	err := reg.Register(vec)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing, nil
		}
	}
	return vec, err
}

type instrumented struct {
	Store
	operations *prometheus.CounterVec // labels op, outcome
}

func (s *instrumented) count(op string, err error) {
	outcome := "ok"
	if err != nil {
		outcome = string(CodeOf(err))
	}
	s.operations.WithLabelValues(op, outcome).Inc()
}

func (s *instrumented) Get(ctx context.Context, key string) ([]byte, Info, error) {
	body, info, err := s.Store.Get(ctx, key)
	s.count(OpGet, err)
	return body, info, err
}

func (s *instrumented) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	body, err := s.Store.GetRange(ctx, key, offset, length)
	s.count(OpGetRange, err)
	return body, err
}

func (s *instrumented) Head(ctx context.Context, key string) (Info, error) {
	info, err := s.Store.Head(ctx, key)
	s.count(OpHead, err)
	return info, err
}

func (s *instrumented) List(ctx context.Context, req ListRequest) (Page, error) {
	page, err := s.Store.List(ctx, req)
	s.count(OpList, err)
	return page, err
}

func (s *instrumented) PutIfAbsent(ctx context.Context, key string, body []byte) Result {
	r := s.Store.PutIfAbsent(ctx, key, body)
	s.operations.WithLabelValues(OpPutIfAbsent, r.Outcome.String()).Inc()
	return r
}

func (s *instrumented) ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) Result {
	r := s.Store.ReplaceIfMatch(ctx, key, body, etag)
	s.operations.WithLabelValues(OpReplaceIfMatch, r.Outcome.String()).Inc()
	return r
}

func (s *instrumented) Delete(ctx context.Context, key string) error {
	err := s.Store.Delete(ctx, key)
	s.count(OpDelete, err)
	return err
}

func (s *instrumented) Create(ctx context.Context, key string) (Upload, error) {
	u, err := s.Store.Create(ctx, key)
	s.count(OpCreate, err)
	if err != nil {
		return nil, err
	}
	return &instrumentedUpload{Upload: u, store: s}, nil
}

type instrumentedUpload struct {
	Upload
	store *instrumented
	ended bool // completed or aborted: an Abort after that sends nothing
}

func (u *instrumentedUpload) Complete(ctx context.Context) (Info, error) {
	info, err := u.Upload.Complete(ctx)
	u.store.count(OpComplete, err)
	u.ended = err == nil
	return info, err
}

func (u *instrumentedUpload) Abort(ctx context.Context) error {
	err := u.Upload.Abort(ctx)
	if !u.ended {
		u.store.count(OpAbort, err)
		u.ended = true
	}
	return err
}

// Discard implements the forwarding of [Discard].
func (u *instrumentedUpload) Discard() { Discard(u.Upload) }
