package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/random"
)

// Retry is what settling an unknown outcome needs.
type Retry struct {
	Clock  clock.Clock
	Random random.Source
}

const (
	// reissuesMax bounds how often an unknown put-if-absent is sent again and an unknown replace-if-match is read
	// back. With the waits below, settling gives up after about 1.5 s plus the requests themselves.
	reissuesMax = 4
	// reissueWait is the wait before the first of them, doubled before each next, jittered to between half and all.
	reissueWait = 100 * time.Millisecond
)

func (r Retry) wait(ctx context.Context, attempt int) error {
	return r.Clock.Sleep(ctx, random.Jitter(r.Random, reissueWait<<attempt))
}

// PutOnce creates a small object and settles an unknown outcome as far as it can be settled:
//
//  1. Send the put. Applied, or refused for any reason but "exists": done.
//  2. Unknown: wait, and send the identical put again, up to four times.
//  3. "Exists" means that somebody's put has been applied: read the object back. Equal bytes are ours, since every
//     record carries a nonce of its author: Applied. Other bytes: Refused with ErrExists, for good.
//  4. Once any attempt was unknown, nothing but such an answer settles it: the outcome stays Unknown.
//
// A caller that must know sends the same bytes through PutOnce again, later.
func PutOnce(ctx context.Context, s Store, key string, body []byte, retry Retry) Result {
	return putOnce(ctx, s, key, body, retry, false)
}

// PutNext is PutOnce for whoever reads the key next in any case and recognises its own bytes: a first put that is told
// "exists" is refused without reading the object back, although something on the way may have sent it twice.
func PutNext(ctx context.Context, s Store, key string, body []byte, retry Retry) Result {
	return putOnce(ctx, s, key, body, retry, true)
}

func putOnce(ctx context.Context, s Store, key string, body []byte, retry Retry, readsNext bool) Result {
	var doubt error // why the outcome of an attempt is unknown
	for attempt := 0; ; attempt++ {
		r := s.PutIfAbsent(ctx, key, body)
		switch {
		case r.Outcome == Applied:
			return r
		case r.Outcome == Refused && errors.Is(r.Err, ErrExists) && readsNext && doubt == nil:
			return r
		case r.Outcome == Refused && errors.Is(r.Err, ErrExists):
			return readBack(ctx, s, key, body, r, doubt)
		case r.Outcome == Refused && doubt == nil:
			return r
		case r.Outcome == Refused:
			return unknown(OpPutIfAbsent, key, CodeOf(doubt), fmt.Errorf("%w; sent again: %w", doubt, r.Err))
		}
		doubt = r.Err
		if attempt == reissuesMax {
			return unknown(OpPutIfAbsent, key, CodeOf(doubt), fmt.Errorf("no answer to %d identical requests, the last: %w", attempt+1, doubt))
		}
		if err := retry.wait(ctx, attempt); err != nil {
			return unknown(OpPutIfAbsent, key, CodeOf(doubt), fmt.Errorf("%w; not sent again: %w", doubt, err))
		}
	}
}

// readBack settles a put-if-absent that was told "exists".
func readBack(ctx context.Context, s Store, key string, body []byte, exists Result, doubt error) Result {
	found, info, err := s.Get(ctx, key)
	switch {
	case err == nil && bytes.Equal(found, body):
		return Result{Outcome: Applied, Info: info}
	case err == nil:
		return exists
	case errors.Is(err, ErrNotFound) && doubt == nil:
		return exists // and deleted since; this request was refused all the same
	case errors.Is(err, ErrNotFound):
		return unknown(OpPutIfAbsent, key, CodeOf(doubt), fmt.Errorf("%w; sent again, the key existed, but it has been deleted since", doubt))
	}
	return unknown(OpPutIfAbsent, key, CodeOf(err), fmt.Errorf("the key exists, but whether the object is ours could not be read: %w", err))
}

// Replace replaces a small object that is still at etag. It is sent once and never again; an unknown outcome is read
// back up to four times. Equal bytes mean Applied. Another version, or none, means Refused with ErrMismatch: ours is
// not there and cannot come any more, though somebody may have replaced it in turn. While the old version is still
// there the request may yet land: Unknown, and the key must be read before it is mutated again.
func Replace(ctx context.Context, s Store, key string, body []byte, etag string, retry Retry) Result {
	r := s.ReplaceIfMatch(ctx, key, body, etag)
	if r.Outcome != Unknown {
		return r
	}
	doubt := r.Err
	for attempt := range reissuesMax {
		if err := retry.wait(ctx, attempt); err != nil {
			return unknown(OpReplaceIfMatch, key, CodeOf(doubt), fmt.Errorf("%w; not read back: %w", doubt, err))
		}
		found, info, err := s.Get(ctx, key)
		switch {
		case err == nil && bytes.Equal(found, body):
			return Result{Outcome: Applied, Info: info}
		case err == nil && info.ETag != etag, errors.Is(err, ErrNotFound):
			return refused(OpReplaceIfMatch, key, CodeMismatch, fmt.Errorf("%w: read back after %w", ErrMismatch, doubt))
		case err != nil && errors.Is(err, ErrFenced):
			return r
		}
	}
	return r
}

// ListAll yields every object under a prefix in byte order, page by page. After an error it stops.
func ListAll(ctx context.Context, s Store, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		req := ListRequest{Prefix: prefix}
		for {
			page, err := s.List(ctx, req)
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, info := range page.Objects {
				if !yield(info, nil) {
					return
				}
			}
			if !page.More {
				return
			}
			req.After = page.Next
		}
	}
}
