package objstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tidemark/internal/clock"
)

// A Scope groups the requests of one owner (an execution, a lease holder) so that they can be stopped together:
//
//  1. A request is admitted if the scope is not fenced and its deadline has not come. Otherwise it is refused with
//     ErrFenced and nothing is sent.
//  2. Fence closes the scope first, then cancels every admitted request. A cancelled conditional request that had been
//     sent ends as Unknown.
//  3. The stores of this package ask the scope again right before each thing they send: every attempt, every part and
//     every chunk of a body. A process that was stopped past its deadline while a request was under way therefore
//     sends nothing when it wakes, before any timer has run.
//  4. The parts, the completion and the abort of an admitted upload are admitted one by one.
//
// A scope never opens again. It runs no timer: its owner fences it when it sees the loss.
type Scope struct {
	store Store
	clock clock.Clock

	mu       sync.Mutex // guards all below; nothing is called with it held
	cause    error      // of the fence; nil while open
	deadline *time.Duration
	next     uint64
	admitted map[uint64]context.CancelCauseFunc
}

// NewScope returns an open scope without a deadline over a store.
func NewScope(s Store, c clock.Clock) *Scope {
	return &Scope{store: s, clock: c, admitted: make(map[uint64]context.CancelCauseFunc)}
}

var _ Store = (*Scope)(nil)

var errDeadline = errors.New("the owner's deadline has passed")

// Fence closes the scope for good and cancels its admitted requests with a cause that wraps ErrFenced and cause. When
// it returns, nothing more is admitted; requests that had been sent may still be waiting to notice. Only the first
// fence counts.
func (s *Scope) Fence(cause error) {
	if cause == nil {
		cause = errors.New("no reason given")
	}
	s.mu.Lock()
	if s.cause != nil {
		s.mu.Unlock()
		return
	}
	s.cause = fmt.Errorf("%w: %w", ErrFenced, cause)
	cause = s.cause
	cancels := make([]context.CancelCauseFunc, 0, len(s.admitted))
	for _, cancel := range s.admitted {
		cancels = append(cancels, cancel)
	}
	clear(s.admitted)
	s.mu.Unlock()
	for _, cancel := range cancels {
		cancel(cause)
	}
}

// SetDeadline sets the moment, on the clock's Mono, from which on nothing is admitted. The owner moves it with each
// acknowledged renewal; a passed deadline that is moved admits again.
func (s *Scope) SetDeadline(mono time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = &mono
}

// Deadline returns the moment that SetDeadline has set; false before.
func (s *Scope) Deadline() (mono time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deadline == nil {
		return 0, false
	}
	return *s.deadline, true
}

// Err returns why a request would be refused now, or nil. It wraps ErrFenced.
func (s *Scope) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.errLocked()
}

func (s *Scope) errLocked() error {
	if s.cause != nil {
		return s.cause
	}
	if s.deadline != nil && s.clock.Mono() >= *s.deadline {
		return fmt.Errorf("%w: %w", ErrFenced, errDeadline)
	}
	return nil
}

type gateKey struct{}

// admit registers a request. The returned context ends with the fence and carries the gate that stores ask again;
// release must be called when the request has ended.
func (s *Scope) admit(ctx context.Context) (_ context.Context, release func(), _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.errLocked(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	id := s.next
	s.next++
	s.admitted[id] = cancel
	release = func() {
		s.mu.Lock()
		delete(s.admitted, id)
		s.mu.Unlock()
		cancel(nil)
	}
	outer, _ := ctx.Value(gateKey{}).(func() error)
	gate := func() error {
		if outer != nil {
			if err := outer(); err != nil {
				return err
			}
		}
		return s.Err()
	}
	return context.WithValue(ctx, gateKey{}, gate), release, nil
}

// Admitted returns why a request under ctx may not be sent now: the context's end or its scope's fence. It is for
// implementations of [Store], which ask right before each thing they send.
func Admitted(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if gate, ok := ctx.Value(gateKey{}).(func() error); ok {
		return gate()
	}
	return nil
}

// URL returns the URL of the store.
func (s *Scope) URL() string { return s.store.URL() }

// Get implements [Store].
func (s *Scope) Get(ctx context.Context, key string) ([]byte, Info, error) {
	ctx, release, err := s.admit(ctx)
	if err != nil {
		return nil, Info{}, fail(OpGet, key, CodeFenced, err)
	}
	defer release()
	return s.store.Get(ctx, key)
}

// GetRange implements [Store].
func (s *Scope) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	ctx, release, err := s.admit(ctx)
	if err != nil {
		return nil, fail(OpGetRange, key, CodeFenced, err)
	}
	defer release()
	return s.store.GetRange(ctx, key, offset, length)
}

// Head implements [Store].
func (s *Scope) Head(ctx context.Context, key string) (Info, error) {
	ctx, release, err := s.admit(ctx)
	if err != nil {
		return Info{}, fail(OpHead, key, CodeFenced, err)
	}
	defer release()
	return s.store.Head(ctx, key)
}

// List implements [Store].
func (s *Scope) List(ctx context.Context, req ListRequest) (Page, error) {
	ctx, release, err := s.admit(ctx)
	if err != nil {
		return Page{}, fail(OpList, req.Prefix, CodeFenced, err)
	}
	defer release()
	return s.store.List(ctx, req)
}

// PutIfAbsent implements [Store].
func (s *Scope) PutIfAbsent(ctx context.Context, key string, body []byte) Result {
	ctx, release, err := s.admit(ctx)
	if err != nil {
		return refused(OpPutIfAbsent, key, CodeFenced, err)
	}
	defer release()
	return s.store.PutIfAbsent(ctx, key, body)
}

// ReplaceIfMatch implements [Store].
func (s *Scope) ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) Result {
	ctx, release, err := s.admit(ctx)
	if err != nil {
		return refused(OpReplaceIfMatch, key, CodeFenced, err)
	}
	defer release()
	return s.store.ReplaceIfMatch(ctx, key, body, etag)
}

// Delete implements [Store].
func (s *Scope) Delete(ctx context.Context, key string) error {
	ctx, release, err := s.admit(ctx)
	if err != nil {
		return fail(OpDelete, key, CodeFenced, err)
	}
	defer release()
	return s.store.Delete(ctx, key)
}

// Create implements [Store].
func (s *Scope) Create(ctx context.Context, key string) (Upload, error) {
	ctx, release, err := s.admit(ctx)
	if err != nil {
		return nil, fail(OpCreate, key, CodeFenced, err)
	}
	u, err := s.store.Create(ctx, key)
	if err != nil {
		release()
		return nil, err
	}
	return &scopedUpload{Upload: u, scope: s, key: key, release: release}, nil
}

// scopedUpload stays admitted, and cancellable, from Create to its end.
type scopedUpload struct {
	Upload
	scope   *Scope
	key     string
	release func()
}

func (u *scopedUpload) Write(p []byte) (int, error) {
	if err := u.scope.Err(); err != nil {
		return 0, fail(OpWrite, u.key, CodeFenced, err)
	}
	return u.Upload.Write(p)
}

func (u *scopedUpload) Complete(ctx context.Context) (Info, error) {
	ctx, release, err := u.scope.admit(ctx)
	if err != nil {
		return Info{}, fail(OpComplete, u.key, CodeFenced, err)
	}
	defer release()
	info, err := u.Upload.Complete(ctx)
	if err == nil {
		u.release()
	}
	return info, err
}

// Abort of a fenced upload sends nothing: what was uploaded stays behind for the store's own expiry of unfinished
// uploads, or a local root's next opening, to remove.
func (u *scopedUpload) Abort(ctx context.Context) error {
	ctx, release, err := u.scope.admit(ctx)
	if err != nil {
		Discard(u.Upload)
		u.release()
		return fail(OpAbort, u.key, CodeFenced, err)
	}
	defer release()
	defer u.release()
	return u.Upload.Abort(ctx)
}

// Discard frees what an upload holds in this process without sending anything. It is for wrappers of uploads.
func Discard(u Upload) {
	if d, ok := u.(interface{ Discard() }); ok {
		d.Discard()
	}
}

// Discard implements the forwarding of [Discard].
func (u *scopedUpload) Discard() {
	Discard(u.Upload)
	u.release()
}
