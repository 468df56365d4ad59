package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// ChunkOps bounds the operations of a txn; etcd's default limit is 128.
	ChunkOps = 100
	// ChunkBytes bounds the bytes of a txn; etcd's default limit of a request is 1.5 MiB.
	ChunkBytes = 768 << 10
	// opOverhead is what an operation costs besides key and value, generously.
	opOverhead = 64
)

// ErrFence: a fence compare did not hold, so this chunk and all that follow were not written.
var ErrFence = errors.New("fenced: what must hold for this write holds no longer")

// Chunks cuts operations into txns of bounded size. An operation, and so a record, is never split; one that exceeds the
// bound alone is an error.
func Chunks(ops []clientv3.Op) ([][]clientv3.Op, error) {
	var chunks [][]clientv3.Op
	begin, size := 0, 0
	for i, op := range ops {
		n := len(op.KeyBytes()) + len(op.ValueBytes()) + opOverhead
		if n > ChunkBytes {
			return nil, fmt.Errorf("key %s: a record of %d bytes exceeds the %d bytes of a txn", op.KeyBytes(), n, ChunkBytes)
		}
		if i-begin == ChunkOps || size+n > ChunkBytes {
			chunks = append(chunks, ops[begin:i])
			begin, size = i, 0
		}
		size += n
	}
	if begin < len(ops) {
		chunks = append(chunks, ops[begin:])
	}
	return chunks, nil
}

// WriteChunks writes operations in order, in as many txns as it takes, each comparing every fence. It returns how many
// operations are known to be written; after an error the next chunk may have been written as well (ErrUnknown) or was
// not. The operations must be such that a part of them is harmless and all of them may be repeated.
func WriteChunks(ctx context.Context, kv clientv3.KV, fences []clientv3.Cmp, ops []clientv3.Op) (written int, err error) {
	chunks, err := Chunks(ops)
	if err != nil {
		return 0, err
	}
	for _, chunk := range chunks {
		answer, err := Commit(ctx, kv, Txn{If: fences, Then: chunk})
		if err != nil {
			return written, fmt.Errorf("after %d of %d operations: %w", written, len(ops), err)
		}
		if !answer.Succeeded {
			return written, fmt.Errorf("after %d of %d operations: %w", written, len(ops), ErrFence)
		}
		written += len(chunk)
	}
	return written, nil
}
