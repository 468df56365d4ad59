package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"tidemark/internal/random"
)

// ProbePrefix is where Probe leaves its objects while it runs.
const ProbePrefix = "_tidemark/probe/"

const (
	probeKeys     = 5 // more than one, since a lost race is a matter of luck
	probeCreators = 8 // at once, per key
)

// The guarantees that a root must give. A *ProbeError names the one that is missing.
const (
	GuaranteePutIfAbsent    = "put-if-absent"
	GuaranteeReplaceIfMatch = "replace-if-match"
	GuaranteeListing        = "ordered listing"
)

// ProbeError says which guarantee a store does not give. Its root must not be used.
type ProbeError struct {
	Root      string
	Guarantee string // one of the Guarantee constants
	Reason    string // what was seen
}

func (e *ProbeError) Error() string {
	return fmt.Sprintf("root %s cannot be used: its store does not guarantee %s (%s); "+
		"use a store with atomic conditional writes, and no proxy that drops If-None-Match or If-Match", e.Root, e.Guarantee, e.Reason)
}

// Probe tests the guarantees that a root relies on, with some sixty small requests under fresh names which it deletes
// again:
//
//  1. Of eight parallel creators of each of five keys exactly one wins, and its bytes are what is read.
//  2. A replace with the current ETag works; one with a stale ETag, or of a missing key, is refused.
//  3. A listing is in byte order and starts after the key it is told to.
//
// A *ProbeError names the missing guarantee; any other error means that the store could not be tried.
func Probe(ctx context.Context, s Store, r random.Source) (err error) {
	p := probe{store: s, prefix: ProbePrefix + random.ID(r) + "/", random: r}
	defer func() { err = errors.Join(err, p.clean(ctx)) }()
	for _, step := range []func(context.Context) error{p.creators, p.replaces, p.listing} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

type probe struct {
	store  Store
	prefix string
	random random.Source
}

func (p *probe) missing(guarantee, format string, args ...any) error {
	return &ProbeError{Root: p.store.URL(), Guarantee: guarantee, Reason: fmt.Sprintf(format, args...)}
}

func (p *probe) key(i int) string { return fmt.Sprintf("%s%d", p.prefix, i) }

func (p *probe) body() []byte { return []byte("probe " + random.ID(p.random)) }

func (p *probe) creators(ctx context.Context) error {
	for i := range probeKeys {
		if err := p.race(ctx, p.key(i)); err != nil {
			return err
		}
	}
	return nil
}

// race lets eight creators loose on one key.
func (p *probe) race(ctx context.Context, key string) error {
	var bodies [probeCreators][]byte
	var results [probeCreators]Result
	for i := range bodies {
		bodies[i] = p.body()
	}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			<-start
			results[i] = p.store.PutIfAbsent(ctx, key, bodies[i])
		})
	}
	close(start)
	wg.Wait()

	winners, winner := 0, -1
	var trouble error
	for i, r := range results {
		switch {
		case r.Outcome == Applied:
			winners, winner = winners+1, i
		case !errors.Is(r.Err, ErrExists):
			trouble = r.Err
		}
	}
	if winners > 1 {
		return p.missing(GuaranteePutIfAbsent, "%d of %d parallel creators of one key were told that they had won", winners, probeCreators)
	}
	if winners == 0 && trouble == nil {
		return p.missing(GuaranteePutIfAbsent, "none of %d parallel creators of a fresh key has won", probeCreators)
	}
	if winners == 0 {
		return fmt.Errorf("probing root %s: %w", p.store.URL(), trouble)
	}
	found, _, err := p.store.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return p.missing(GuaranteePutIfAbsent, "an object that had been created could not be read")
	}
	if err != nil {
		return fmt.Errorf("probing root %s: %w", p.store.URL(), err)
	}
	if !bytes.Equal(found, bodies[winner]) {
		return p.missing(GuaranteePutIfAbsent, "the object holds the bytes of a creator that had not won")
	}
	return nil
}

func (p *probe) replaces(ctx context.Context) error {
	key := p.key(0)
	_, first, err := p.store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("probing root %s: %w", p.store.URL(), err)
	}
	switch r := p.store.ReplaceIfMatch(ctx, key, p.body(), first.ETag); {
	case errors.Is(r.Err, ErrMismatch):
		return p.missing(GuaranteeReplaceIfMatch, "the current ETag was refused")
	case r.Outcome != Applied:
		return fmt.Errorf("probing root %s: %w", p.store.URL(), r.Err)
	}
	if err := p.mustMismatch(ctx, key, first.ETag, "a stale ETag"); err != nil {
		return err
	}
	return p.mustMismatch(ctx, p.prefix+"missing", first.ETag, "the ETag of a missing object")
}

func (p *probe) mustMismatch(ctx context.Context, key, etag, what string) error {
	r := p.store.ReplaceIfMatch(ctx, key, p.body(), etag)
	switch {
	case r.Outcome == Applied:
		return p.missing(GuaranteeReplaceIfMatch, "%s was accepted", what)
	case !errors.Is(r.Err, ErrMismatch):
		return fmt.Errorf("probing root %s: %w", p.store.URL(), r.Err)
	}
	return nil
}

func (p *probe) listing(ctx context.Context) error {
	page, err := p.store.List(ctx, ListRequest{Prefix: p.prefix, After: p.key(1)})
	if err != nil {
		return fmt.Errorf("probing root %s: %w", p.store.URL(), err)
	}
	if len(page.Objects) != probeKeys-2 {
		return p.missing(GuaranteeListing, "a listing after a key returned %d keys instead of %d", len(page.Objects), probeKeys-2)
	}
	for i, info := range page.Objects {
		if info.Key != p.key(i+2) {
			return p.missing(GuaranteeListing, "a listing after a key returned %q where %q was due", info.Key, p.key(i+2))
		}
	}
	return nil
}

// clean deletes what the probe has made, the result of a broken replace included.
func (p *probe) clean(ctx context.Context) error {
	keys := []string{p.prefix + "missing"}
	for i := range probeKeys {
		keys = append(keys, p.key(i))
	}
	for _, key := range keys {
		if err := p.store.Delete(ctx, key); err != nil {
			return fmt.Errorf("probing root %s: removing the probe's objects: %w", p.store.URL(), err)
		}
	}
	return nil
}
