package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// pageKeysStart is how many keys the first page asks for; 512 records of 2 KiB are one page of bytes.
	pageKeysStart = 512
	// pageKeysMax bounds how far a page grows back when records are small.
	pageKeysMax = 8192
	// pageBytes is the size of a reply above which pages are halved, and below half of which they grow.
	pageBytes = 1 << 20
)

// ErrPageTooLarge: not even a single key fits into a reply.
var ErrPageTooLarge = errors.New("a single key exceeds the largest reply")

// Version is where etcd stood when it answered.
type Version struct {
	Cluster  uint64 // id of the etcd cluster
	Revision int64
}

// before says that v, seen later than earlier was, is of another etcd or of one that has gone back in time.
func (v Version) before(earlier Version) bool {
	return v.Cluster != earlier.Cluster || v.Revision < earlier.Revision
}

// ReadPages reads every key under a prefix, in order, all at one revision, in pages bounded by bytes. It returns that
// revision. An error of page ends it.
func ReadPages(ctx context.Context, kv clientv3.KV, prefix string, page func([]*mvccpb.KeyValue) error, opts ...clientv3.OpOption) (Version, error) {
	var at Version
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for limit := int64(pageKeysStart); ; {
		all := append([]clientv3.OpOption{
			clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(at.Revision),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend),
		}, opts...)
		reply, err := kv.Get(ctx, from, all...)
		switch {
		case err != nil && tooLarge(err) && limit > 1:
			limit /= 2
			continue
		case err != nil && tooLarge(err):
			return at, fmt.Errorf("reading %s from %s: %w: %w", prefix, from, ErrPageTooLarge, err)
		case err != nil:
			return at, fmt.Errorf("reading %s from %s: %w", prefix, from, err)
		}
		now := Version{reply.Header.ClusterId, reply.Header.Revision}
		if at == (Version{}) {
			at = now
		}
		if now.before(at) {
			return at, fmt.Errorf("reading %s: %w", prefix, ErrReplaced)
		}
		if len(reply.Kvs) > 0 {
			if err := page(reply.Kvs); err != nil {
				return at, err
			}
			from = string(reply.Kvs[len(reply.Kvs)-1].Key) + "\x00"
		}
		if !reply.More {
			return at, nil
		}
		switch size := bytesOf(reply.Kvs); {
		case size > pageBytes:
			limit = max(1, limit/2)
		case size < pageBytes/2:
			limit = min(2*limit, pageKeysMax)
		}
	}
}

func bytesOf(kvs []*mvccpb.KeyValue) int {
	n := 0
	for _, kv := range kvs {
		n += len(kv.Key) + len(kv.Value)
	}
	return n
}

// tooLarge says whether a reply was refused for its size, by the client's or the server's limit.
func tooLarge(err error) bool { return status.Code(err) == codes.ResourceExhausted }
