package rootlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

// ask sends one request of a machine.
func (r *run) ask(ctx context.Context, a Action) Answer {
	switch a.Request {
	case ReadRoot:
		root, etag, err := Read(ctx, r.Store)
		return answer(err, Answer{Root: root, ETag: etag})
	case ListBeats:
		beats, err := Beats(ctx, r.Store, a.ID)
		if err != nil || len(beats) == 0 {
			return answer(err, Answer{})
		}
		return Answer{Kind: Done, Any: true, Last: slices.Max(beats)}
	case PutClaim:
		return done(putClaim(ctx, r.Options, a.ID))
	case Acquire:
		record := r.record(Standalone, a.ID)
		record.LeaseMS = r.Lease.Milliseconds()
		return replace(ctx, r.Store, record, a.ETag, r.retry())
	case Look:
		_, err := r.beats.Head(ctx, claimKey(a.ID))
		if errors.Is(err, objstore.ErrNotFound) {
			return Answer{Kind: Done}
		}
		return answer(err, Answer{Any: true})
	case PutBeat:
		// One attempt: the machine sends it again, under the same number.
		return done(r.beats.PutIfAbsent(ctx, BeatKey(a.ID, a.Beat), fmt.Appendf(nil, `{"v":1,"nonce":%q}`, random.ID(r.Random))))
	case RemoveBeats:
		return answer(removeBeats(ctx, r.Store, a.ID), Answer{})
	default:
		released := r.record(Released, a.ID)
		released.Etcd = nil
		return replace(ctx, r.Store, released, a.ETag, r.retry())
	}
}

func answer(err error, a Answer) Answer {
	a.Kind = Done
	if err != nil {
		return Answer{Kind: Failed, Err: err}
	}
	return a
}

// done is the answer for an object that need only be there, whoever put it.
func done(r objstore.Result) Answer {
	if errors.Is(r.Err, objstore.ErrExists) {
		return Answer{Kind: Done}
	}
	return answer(r.Err, Answer{})
}

// replace puts a record in the place of the version etag, or of none.
func replace(ctx context.Context, s objstore.Store, record Record, etag string, retry objstore.Retry) Answer {
	var r objstore.Result
	if etag == "" {
		r = objstore.PutOnce(ctx, s, RootKey, record.Encode(), retry)
	} else {
		r = objstore.Replace(ctx, s, RootKey, record.Encode(), etag, retry)
	}
	if r.Outcome == objstore.Refused && (errors.Is(r.Err, objstore.ErrExists) || errors.Is(r.Err, objstore.ErrMismatch)) {
		return Answer{Kind: Lost, Err: r.Err}
	}
	return answer(r.Err, Answer{ETag: r.Info.ETag})
}

// putClaim says on storage that a lock is about to be replaced. Its owner stops when it sees that.
func putClaim(ctx context.Context, o Options, id string) objstore.Result {
	body := fmt.Appendf(nil, `{"v":1,"nonce":%q,"by":%q}`, random.ID(o.Random), o.Holder)
	return objstore.PutOnce(ctx, o.Store, claimKey(id), body, o.retry())
}

func removeBeats(ctx context.Context, s objstore.Store, id string) error {
	beats, err := Beats(ctx, s, id)
	for _, n := range beats {
		if err == nil {
			err = s.Delete(ctx, BeatKey(id, n))
		}
	}
	return err
}
