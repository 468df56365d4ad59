package main

import (
	"context"
	"sync/atomic"
	"time"

	"tidemark/internal/objstore"
)

// slowStore answers every request of a store after a latency, as one far away does, and counts them.
type slowStore struct {
	objstore.Store
	latency  time.Duration
	requests atomic.Int64
}

// answer waits for the latency of one request.
func (s *slowStore) answer() {
	s.requests.Add(1)
	time.Sleep(s.latency)
}

func (s *slowStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	s.answer()
	return s.Store.Get(ctx, key)
}

func (s *slowStore) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	s.answer()
	return s.Store.GetRange(ctx, key, offset, length)
}

func (s *slowStore) Head(ctx context.Context, key string) (objstore.Info, error) {
	s.answer()
	return s.Store.Head(ctx, key)
}

func (s *slowStore) List(ctx context.Context, req objstore.ListRequest) (objstore.Page, error) {
	s.answer()
	return s.Store.List(ctx, req)
}

func (s *slowStore) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	s.answer()
	return s.Store.PutIfAbsent(ctx, key, body)
}

func (s *slowStore) ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) objstore.Result {
	s.answer()
	return s.Store.ReplaceIfMatch(ctx, key, body, etag)
}

func (s *slowStore) Delete(ctx context.Context, key string) error {
	s.answer()
	return s.Store.Delete(ctx, key)
}

// Create sends nothing: a small upload is one request, when it is completed.
func (s *slowStore) Create(ctx context.Context, key string) (objstore.Upload, error) {
	upload, err := s.Store.Create(ctx, key)
	return &slowUpload{upload, s}, err
}

type slowUpload struct {
	objstore.Upload
	store *slowStore
}

func (u *slowUpload) Complete(ctx context.Context) (objstore.Info, error) {
	u.store.answer()
	return u.Upload.Complete(ctx)
}
