package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"tidemark/internal/objstore"
)

// processStore is the store as one process reaches it.
type processStore struct {
	p     *process
	inner *objstore.Memory
	seen  func(p *process, op, key string, body []byte) // told of every change that was made
	sent  func(p *process, op, key string, body []byte) // told of everything that is sent
}

var _ objstore.Store = (*processStore)(nil)

var (
	errNoAnswer   = errors.New("sim: the answer was lost")
	errTurnedAway = errors.New("sim: the store is busy")
)

func (s *processStore) URL() string { return "sim://store" }

// admitted asks, as every store does right before it sends, whether the request may be sent.
func (s *processStore) admitted(ctx context.Context, op, key string, body []byte) error {
	if err := s.p.awake(context.Background()); err != nil {
		return &objstore.Error{Op: op, Key: key, Code: objstore.CodeUnavailable, Err: err}
	}
	err := objstore.Admitted(ctx)
	if err == nil {
		s.sent(s.p, op, key, body)
		return nil
	}
	code := objstore.CodeCancelled
	if errors.Is(err, objstore.ErrFenced) {
		code = objstore.CodeFenced
	}
	return &objstore.Error{Op: op, Key: key, Code: code, Err: err}
}

// failure is what the sender is told of a request that was not answered.
func failure(ctx context.Context, op, key string, e end) *objstore.Error {
	err := &objstore.Error{Op: op, Key: key, Code: objstore.CodeUnavailable, Err: errNoAnswer}
	switch e {
	case refused:
		err.Code, err.Err = objstore.CodeThrottled, errTurnedAway
	case gone, unsent:
		err.Code, err.Err = objstore.CodeCancelled, errCrashed
		if cause := context.Cause(ctx); cause != nil {
			err.Err = cause
			if errors.Is(cause, objstore.ErrFenced) {
				err.Code = objstore.CodeFenced
			}
		}
	}
	return err
}

// read is a request that changes nothing.
func (s *processStore) read(ctx context.Context, op, key string, apply func() error) error {
	if err := s.admitted(ctx, op, key, nil); err != nil {
		return err
	}
	result := new(error)
	if e := s.p.perform(ctx, toStore, op+" "+key, false, func() { *result = apply() }); e != answered {
		return failure(ctx, op, key, e)
	}
	return *result
}

func (s *processStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	type got struct {
		body []byte
		info objstore.Info
	}
	g := new(got)
	err := s.read(ctx, objstore.OpGet, key, func() (err error) {
		g.body, g.info, err = s.inner.Get(context.Background(), key)
		return err
	})
	if err != nil {
		return nil, objstore.Info{}, err
	}
	return g.body, g.info, nil
}

func (s *processStore) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	body := new([]byte)
	err := s.read(ctx, objstore.OpGetRange, fmt.Sprintf("%s %d+%d", key, offset, length), func() (err error) {
		*body, err = s.inner.GetRange(context.Background(), key, offset, length)
		return err
	})
	if err != nil {
		return nil, err
	}
	return *body, nil
}

func (s *processStore) Head(ctx context.Context, key string) (objstore.Info, error) {
	info := new(objstore.Info)
	err := s.read(ctx, objstore.OpHead, key, func() (err error) {
		*info, err = s.inner.Head(context.Background(), key)
		return err
	})
	if err != nil {
		return objstore.Info{}, err
	}
	return *info, nil
}

func (s *processStore) List(ctx context.Context, req objstore.ListRequest) (objstore.Page, error) {
	page := new(objstore.Page)
	err := s.read(ctx, objstore.OpList, fmt.Sprintf("%s after %q", req.Prefix, req.After), func() (err error) {
		*page, err = s.inner.List(context.Background(), req)
		return err
	})
	if err != nil {
		return objstore.Page{}, err
	}
	return *page, nil
}

func (s *processStore) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	body = bytes.Clone(body)
	return s.mutate(ctx, objstore.OpPutIfAbsent, key, body, func() objstore.Result {
		return s.inner.PutIfAbsent(context.Background(), key, body)
	})
}

func (s *processStore) ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) objstore.Result {
	body = bytes.Clone(body)
	return s.mutate(ctx, objstore.OpReplaceIfMatch, key, body, func() objstore.Result {
		return s.inner.ReplaceIfMatch(context.Background(), key, body, etag)
	})
}

func (s *processStore) mutate(ctx context.Context, op, key string, body []byte, apply func() objstore.Result) objstore.Result {
	if err := s.admitted(ctx, op, key, body); err != nil {
		return objstore.Result{Outcome: objstore.Refused, Err: err}
	}
	result := new(objstore.Result)
	e := s.p.perform(ctx, toStore, op+" "+key, true, func() {
		*result = apply()
		if result.Outcome == objstore.Applied {
			s.seen(s.p, op, key, body)
		}
	})
	switch e {
	case answered:
		return *result
	case refused, unsent:
		return objstore.Result{Outcome: objstore.Refused, Err: failure(ctx, op, key, e)}
	}
	return objstore.Result{Outcome: objstore.Unknown, Err: failure(ctx, op, key, e)}
}

func (s *processStore) Delete(ctx context.Context, key string) error {
	if err := s.admitted(ctx, objstore.OpDelete, key, nil); err != nil {
		return err
	}
	result := new(error)
	e := s.p.perform(ctx, toStore, objstore.OpDelete+" "+key, true, func() {
		if _, err := s.inner.Head(context.Background(), key); err != nil {
			return
		}
		if *result = s.inner.Delete(context.Background(), key); *result == nil {
			s.seen(s.p, objstore.OpDelete, key, nil)
		}
	})
	if e != answered {
		return failure(ctx, objstore.OpDelete, key, e)
	}
	return *result
}

func (s *processStore) Create(ctx context.Context, key string) (objstore.Upload, error) {
	if err := s.read(ctx, objstore.OpCreate, key, func() error { return nil }); err != nil {
		return nil, err
	}
	inner, err := s.inner.Create(context.Background(), key)
	if err != nil {
		return nil, err
	}
	return &processUpload{store: s, ctx: ctx, key: key, inner: inner}, nil
}

// processUpload sends its parts without delay: nobody sees them before the end.
type processUpload struct {
	store *processStore
	ctx   context.Context // of Create
	key   string
	inner objstore.Upload
	body  []byte
}

func (u *processUpload) Write(b []byte) (int, error) {
	if err := u.store.admitted(u.ctx, objstore.OpWrite, u.key, nil); err != nil {
		return 0, err
	}
	u.body = append(u.body, b...)
	return u.inner.Write(b)
}

func (u *processUpload) Complete(ctx context.Context) (objstore.Info, error) {
	for _, c := range []context.Context{u.ctx, ctx} {
		if err := u.store.admitted(c, objstore.OpComplete, u.key, nil); err != nil {
			return objstore.Info{}, err
		}
	}
	type got struct {
		info objstore.Info
		err  error
	}
	g := new(got)
	e := u.store.p.perform(ctx, toStore, objstore.OpComplete+" "+u.key, true, func() {
		if g.info, g.err = u.inner.Complete(context.Background()); g.err == nil {
			u.store.seen(u.store.p, objstore.OpComplete, u.key, u.body)
		}
	})
	if e != answered {
		return objstore.Info{}, failure(ctx, objstore.OpComplete, u.key, e)
	}
	return g.info, g.err
}

// Abort throws the upload away, unless its completion is under way.
func (u *processUpload) Abort(context.Context) error { return nil }
