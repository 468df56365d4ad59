package faultstore

import (
	"bytes"
	"context"
	"errors"

	"tidemark/internal/objstore"
)

// Get implements [objstore.Store].
func (s *Store) Get(ctx context.Context, key string) (body []byte, info objstore.Info, err error) {
	v := s.run(ctx, objstore.OpGet, key, func(ctx context.Context) verdict {
		body, info, err = s.inner.Get(ctx, key)
		return verdict{err: err}
	})
	return body, info, v.err
}

// GetRange implements [objstore.Store].
func (s *Store) GetRange(ctx context.Context, key string, offset, length int64) (body []byte, err error) {
	v := s.run(ctx, objstore.OpGetRange, key, func(ctx context.Context) verdict {
		body, err = s.inner.GetRange(ctx, key, offset, length)
		return verdict{err: err}
	})
	return body, v.err
}

// Head implements [objstore.Store].
func (s *Store) Head(ctx context.Context, key string) (info objstore.Info, err error) {
	v := s.run(ctx, objstore.OpHead, key, func(ctx context.Context) verdict {
		info, err = s.inner.Head(ctx, key)
		return verdict{err: err}
	})
	return info, v.err
}

// List implements [objstore.Store].
func (s *Store) List(ctx context.Context, req objstore.ListRequest) (page objstore.Page, err error) {
	v := s.run(ctx, objstore.OpList, req.Prefix, func(ctx context.Context) verdict {
		page, err = s.inner.List(ctx, req)
		return verdict{err: err}
	})
	return page, v.err
}

// PutIfAbsent implements [objstore.Store].
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	body = bytes.Clone(body) // it may land when the caller has reused its buffer
	return s.mutate(ctx, objstore.OpPutIfAbsent, key, func(ctx context.Context) objstore.Result {
		return s.inner.PutIfAbsent(ctx, key, body)
	})
}

// ReplaceIfMatch implements [objstore.Store].
func (s *Store) ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) objstore.Result {
	body = bytes.Clone(body)
	return s.mutate(ctx, objstore.OpReplaceIfMatch, key, func(ctx context.Context) objstore.Result {
		return s.inner.ReplaceIfMatch(ctx, key, body, etag)
	})
}

func (s *Store) mutate(ctx context.Context, op, key string, do func(context.Context) objstore.Result) objstore.Result {
	var info objstore.Info
	v := s.run(ctx, op, key, func(ctx context.Context) verdict {
		r := do(ctx)
		info = r.Info
		return verdict{r.Outcome, r.Err}
	})
	if v.outcome != objstore.Applied {
		// A request in flight may set info at any time from now on.
		return objstore.Result{Outcome: v.outcome, Err: v.err}
	}
	return objstore.Result{Outcome: v.outcome, Info: info}
}

// Delete implements [objstore.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.run(ctx, objstore.OpDelete, key, func(ctx context.Context) verdict {
		return verdict{err: s.inner.Delete(ctx, key)}
	}).err
}

// Create implements [objstore.Store]. The inner upload gets a context of its own, since its completion may land when
// that of the caller has ended; the caller's is asked before each operation.
func (s *Store) Create(ctx context.Context, key string) (objstore.Upload, error) {
	var inner objstore.Upload
	v := s.run(ctx, objstore.OpCreate, key, func(context.Context) verdict {
		err := objstore.Admitted(ctx)
		if err == nil {
			inner, err = s.inner.Create(context.Background(), key)
		}
		return verdict{err: err}
	})
	if v.err != nil {
		return nil, v.err
	}
	return &upload{store: s, ctx: ctx, key: key, inner: inner}, nil
}

type upload struct {
	store *Store
	ctx   context.Context // of Create
	key   string
	inner objstore.Upload
}

func (u *upload) Write(p []byte) (n int, err error) {
	v := u.store.run(u.ctx, objstore.OpWrite, u.key, func(ctx context.Context) verdict {
		if err = u.admitted(ctx, objstore.OpWrite); err == nil {
			n, err = u.inner.Write(p)
		}
		return verdict{err: err}
	})
	return n, v.err
}

// CopyRange implements [objstore.RangeCopier].
func (u *upload) CopyRange(key, etag string, offset, n int64) error {
	return u.store.run(u.ctx, objstore.OpCopyRange, u.key, func(ctx context.Context) verdict {
		err := u.admitted(ctx, objstore.OpCopyRange)
		if err == nil {
			err = objstore.CopyRange(u.inner, key, etag, offset, n)
		}
		return verdict{err: err}
	}).err
}

func (u *upload) Complete(ctx context.Context) (objstore.Info, error) {
	if err := u.admitted(u.ctx, objstore.OpComplete); err != nil {
		return objstore.Info{}, err
	}
	var info objstore.Info
	v := u.store.run(ctx, objstore.OpComplete, u.key, func(ctx context.Context) verdict {
		completed, err := u.inner.Complete(ctx)
		if err == nil {
			info = completed
		}
		return verdict{err: err}
	})
	if v.err != nil {
		return objstore.Info{}, v.err
	}
	return info, nil
}

func (u *upload) Abort(ctx context.Context) error {
	return u.store.run(ctx, objstore.OpAbort, u.key, func(ctx context.Context) verdict {
		return verdict{err: u.inner.Abort(ctx)}
	}).err
}

func (u *upload) admitted(ctx context.Context, op string) error {
	err := objstore.Admitted(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, objstore.ErrFenced):
		return &objstore.Error{Op: op, Key: u.key, Code: objstore.CodeFenced, Err: err}
	}
	return &objstore.Error{Op: op, Key: u.key, Code: objstore.CodeCancelled, Err: err}
}

// Discard implements the forwarding of [objstore.Discard].
func (u *upload) Discard() { objstore.Discard(u.inner) }
