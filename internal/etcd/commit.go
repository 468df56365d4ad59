package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var (
	// ErrUnknown: a txn went out and nobody knows whether it was applied. Read back what it would have written.
	ErrUnknown = errors.New("etcd: outcome of the txn is unknown")
	// ErrNoSpace: etcd is out of space; only deletes pass until an operator makes some. It always comes with
	// ErrUnknown: the txn that fills etcd up is applied and answered like those that are then turned away.
	ErrNoSpace = errors.New("etcd is out of space, only deletes pass: compact, defragment and disarm its alarm")
	// ErrReplaced: etcd is another cluster than before, or has gone back in time. What was learned from it is void.
	ErrReplaced = errors.New("etcd was replaced: another cluster id, or a lower revision than seen before")
)

// notApplied are the answers of etcd that come with certainty: the txn was turned away before any of it was applied.
var notApplied = []error{
	rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyRequests, rpctypes.ErrRequestTooLarge, rpctypes.ErrTooManyOps,
	rpctypes.ErrDuplicateKey, rpctypes.ErrEmptyKey, rpctypes.ErrUserEmpty, rpctypes.ErrPermissionDenied,
	rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision,
}

// Txn is one txn as a value: compare, then write and read, else read.
type Txn struct {
	If   []clientv3.Cmp
	Then []clientv3.Op
	Else []clientv3.Op
}

// Commit runs a txn once. Without an error the answer says whether the compares held. With ErrUnknown nobody knows
// whether the txn was or will be applied; with any other error it was not and will not be.
func Commit(ctx context.Context, kv clientv3.KV, txn Txn) (*clientv3.TxnResponse, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("txn not sent: %w", err)
	}
	answer, err := kv.Txn(ctx).If(txn.If...).Then(txn.Then...).Else(txn.Else...).Commit()
	if err == nil {
		return answer, nil
	}
	err = rpctypes.Error(err)
	for _, certain := range notApplied {
		if errors.Is(err, certain) {
			return nil, err
		}
	}
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return nil, fmt.Errorf("%w: %w", ErrUnknown, ErrNoSpace)
	}
	return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
}

// Absent compares that a key does not exist.
func Absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// Unchanged compares that a key was last written at a revision; revision 0 compares that it does not exist.
func Unchanged(key string, modRevision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", modRevision)
}
