package objstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

// careless is a store that lacks the guarantee its name says.
type careless struct {
	objstore.Store
	lacks string
}

func (s careless) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	r := s.Store.PutIfAbsent(ctx, key, body)
	if s.lacks != "put condition" || !errors.Is(r.Err, objstore.ErrExists) {
		return r
	}
	return objstore.Result{Outcome: objstore.Applied} // as a store that ignores If-None-Match
}

func (s careless) ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) objstore.Result {
	if s.lacks == "replace condition" {
		if err := s.Delete(ctx, key); err != nil {
			return objstore.Result{Outcome: objstore.Unknown, Err: err}
		}
		return s.Store.PutIfAbsent(ctx, key, body)
	}
	if s.lacks == "etags" {
		etag = "another"
	}
	return s.Store.ReplaceIfMatch(ctx, key, body, etag)
}

func (s careless) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	body, info, err := s.Store.Get(ctx, key)
	if s.lacks == "winner's bytes" {
		body = []byte("the loser's")
	}
	return body, info, err
}

func (s careless) List(ctx context.Context, req objstore.ListRequest) (objstore.Page, error) {
	if s.lacks == "start after" {
		req.After = ""
	}
	page, err := s.Store.List(ctx, req)
	if s.lacks == "order" {
		slices.Reverse(page.Objects)
	}
	return page, err
}

func TestProbeRefusesAStoreByItsMissingGuarantee(t *testing.T) {
	for lacks, want := range map[string]string{
		"put condition":     objstore.GuaranteePutIfAbsent,
		"winner's bytes":    objstore.GuaranteePutIfAbsent,
		"replace condition": objstore.GuaranteeReplaceIfMatch,
		"etags":             objstore.GuaranteeReplaceIfMatch,
		"start after":       objstore.GuaranteeListing,
		"order":             objstore.GuaranteeListing,
	} {
		memory := objstore.NewMemory(clock.System())
		err := objstore.Probe(t.Context(), careless{memory, lacks}, random.Seeded(1))
		var missing *objstore.ProbeError
		if !errors.As(err, &missing) || missing.Guarantee != want || !strings.Contains(err.Error(), "does not guarantee "+want) {
			t.Errorf("without %s: %v", lacks, err)
		}
		for info := range objstore.ListAll(t.Context(), memory, "") {
			t.Errorf("without %s: the probe has left %s", lacks, info.Key)
		}
	}
}

func TestProbeTellsATroubledStoreFromAnUnfitOne(t *testing.T) {
	for _, script := range []string{
		"put-if-absent *: refuse", "put-if-absent *: throttle", "get *: throttle", "replace-if-match * #1: throttle",
		"replace-if-match * #2: refuse", "list *: refuse", "delete *: refuse",
	} {
		err := objstore.Probe(t.Context(), wrap(t, objstore.NewMemory(clock.System()), script), random.Seeded(1))
		var missing *objstore.ProbeError
		if err == nil || errors.As(err, &missing) {
			t.Errorf("%s: %v", script, err)
		}
	}
}
