package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"tidemark/test/etcd/etcdtest"
)

func TestAPrefixIsReadInPagesAllAtOneRevision(t *testing.T) {
	client := etcdtest.Start(t)
	var ops []clientv3.Op
	var want []string
	for i := range 1500 {
		want = append(want, fmt.Sprintf("p/%05d", i))
		ops = append(ops, clientv3.OpPut(want[i], strings.Repeat("x", 1500)))
	}
	if written, err := WriteChunks(t.Context(), client, nil, append(ops, clientv3.OpPut("p0", "outside"))); err != nil || written != 1501 {
		t.Fatal(written, err)
	}
	var got []string
	pages, largest := 0, 0
	at, err := ReadPages(t.Context(), client, "p/", func(page []*mvccpb.KeyValue) error {
		pages++
		largest = max(largest, bytesOf(page))
		// What is written meanwhile belongs to no page.
		put(t, client, fmt.Sprintf("p/%05d-later", pages*400), "")
		for _, kv := range page {
			got = append(got, string(kv.Key))
		}
		return nil
	})
	if err != nil || !slices.Equal(got, want) || pages < 3 || largest > 1500*pageKeysStart+8*pageKeysStart {
		t.Fatalf("%d keys in %d pages of up to %d bytes, %v", len(got), pages, largest, err)
	}
	if now := put(t, client, "q", ""); at.Revision >= now-int64(pages) {
		t.Errorf("read at %d, now %d", at.Revision, now)
	}
}

// narrowKV refuses replies over a size, like a client's message limit.
type narrowKV struct {
	clientv3.KV
	keys  int // there are
	each  func(i int) int
	limit int
	asked []int64
}

func (n *narrowKV) Get(_ context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, opts...)
	first := 0
	if _, err := fmt.Sscanf(key, "p/%06d", &first); err == nil {
		first++
	}
	n.asked = append(n.asked, op.Limit())
	reply := &clientv3.GetResponse{Header: &pb.ResponseHeader{ClusterId: 1, Revision: 9}}
	size := 0
	for i := first; i < n.keys && int64(i-first) < op.Limit(); i++ {
		size += n.each(i)
		reply.Kvs = append(reply.Kvs, &mvccpb.KeyValue{Key: fmt.Appendf(nil, "p/%06d", i), Value: make([]byte, n.each(i))})
	}
	if size > n.limit {
		return nil, status.Error(codes.ResourceExhausted, "grpc: received message larger than max")
	}
	reply.More = first+len(reply.Kvs) < n.keys
	return reply, nil
}

func TestPagesShrinkUntilTheyFitAndGrowBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		big := rapid.IntRange(0, 2000).Draw(t, "big from")
		kv := &narrowKV{
			keys: rapid.IntRange(0, 3000).Draw(t, "keys"), limit: 2 << 20,
			each: func(i int) int {
				if i >= big && i < big+50 {
					return 400 << 10
				}
				return 10
			},
		}
		var got []string
		if _, err := ReadPages(context.Background(), kv, "p/", func(page []*mvccpb.KeyValue) error {
			for _, kv := range page {
				got = append(got, string(kv.Key))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(got) != kv.keys || !slices.IsSorted(got) {
			t.Fatalf("%d of %d keys", len(got), kv.keys)
		}
		if big+50 < kv.keys-1000 && kv.asked[len(kv.asked)-1] < 100 {
			t.Errorf("pages did not grow back: %v", kv.asked)
		}
	})
}

func TestAKeyThatFitsIntoNoReplyIsNamed(t *testing.T) {
	kv := &narrowKV{keys: 3, limit: 100, each: func(int) int { return 101 }}
	_, err := ReadPages(t.Context(), kv, "p/", func([]*mvccpb.KeyValue) error { return nil })
	if !errors.Is(err, ErrPageTooLarge) || !strings.Contains(err.Error(), "p/") {
		t.Fatalf("got %v", err)
	}
}

func TestChunksHoldEveryOperationInOrderWithinBothBounds(t *testing.T) {
	sizes := []int{0, 1, 99, 100, 101, 127, 128, 129, 10_000}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom(sizes).Draw(t, "operations")
		value := strings.Repeat("x", rapid.SampledFrom([]int{0, 100, 2_000, 60_000}).Draw(t, "bytes"))
		ops := make([]clientv3.Op, n)
		for i := range ops {
			ops[i] = clientv3.OpPut(fmt.Sprint("shard-", i), value)
		}
		chunks, err := Chunks(ops)
		if err != nil {
			t.Fatal(err)
		}
		next := 0
		for _, chunk := range chunks {
			size := 0
			for _, op := range chunk {
				if want := fmt.Sprint("shard-", next); string(op.KeyBytes()) != want {
					t.Fatalf("got %s, want %s", op.KeyBytes(), want)
				}
				next++
				size += len(op.KeyBytes()) + len(op.ValueBytes())
			}
			if len(chunk) == 0 || len(chunk) > ChunkOps || size > ChunkBytes {
				t.Fatalf("a chunk of %d operations, %d bytes", len(chunk), size)
			}
		}
		if next != n {
			t.Fatalf("%d of %d operations", next, n)
		}
	})
}

func TestARecordThatFitsIntoNoTxnIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	client := etcdtest.Start(t)
	written, err := WriteChunks(t.Context(), client, nil, []clientv3.Op{
		clientv3.OpPut("small", ""), clientv3.OpPut("large", strings.Repeat("x", ChunkBytes)),
	})
	if err == nil || written != 0 || !strings.Contains(err.Error(), "large") {
		t.Fatal(written, err)
	}
	if got, err := client.Get(t.Context(), "small"); err != nil || len(got.Kvs) != 0 {
		t.Fatal(got, err)
	}
}

func TestEveryChunkCarriesTheFence(t *testing.T) {
	for _, n := range []int{127, 128, 129, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			client := etcdtest.Start(t)
			fence := []clientv3.Cmp{Unchanged("fence", put(t, client, "fence", ""))}
			var ops []clientv3.Op
			for i := range n {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("p/%05d", i), ""))
			}
			if written, err := WriteChunks(t.Context(), client, fence, ops); err != nil || written != n {
				t.Fatal(written, err)
			}
			// Deposed after the first chunk: the second is refused.
			kv := etcdtest.NewFaultyKV(client)
			kv.Before(func() {
				if kv.Txns() == 2 {
					put(t, client, "fence", "deposed")
				}
			})
			written, err := WriteChunks(t.Context(), kv, fence, ops)
			if !errors.Is(err, ErrFence) || written != ChunkOps || kv.Txns() != 2 {
				t.Fatalf("%d written in %d txns: %v", written, kv.Txns(), err)
			}
		})
	}
}

// Whatever became of each txn, a batch that is written again until it succeeds leaves what one that succeeded at once does.
// Meanwhile every record is as it was before or as it shall be.
func TestABatchThatHalfSucceededIsCompletedByItsRepetition(t *testing.T) {
	client := etcdtest.Start(t)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		n := rapid.SampledFrom([]int{1, 100, 101, 129, 350}).Draw(t, "operations")
		key := func(i int) string { return fmt.Sprintf("%d/%04d", round, i) }
		want := map[string]string{}
		var before, ops []clientv3.Op
		for i := range n {
			before = append(before, clientv3.OpPut(key(i), "old"))
			if i%3 == 0 {
				ops = append(ops, clientv3.OpDelete(key(i)))
				continue
			}
			ops = append(ops, clientv3.OpPut(key(i), "new"))
			want[key(i)] = "new"
		}
		if _, err := WriteChunks(context.Background(), client, nil, before); err != nil {
			t.Fatal(err)
		}
		kv := etcdtest.NewFaultyKV(client)
		kv.Next(rapid.SliceOfN(rapid.SampledFrom([]etcdtest.Fault{etcdtest.None, etcdtest.LoseAnswer, etcdtest.LoseRequest}), 0, 6).Draw(t, "faults")...)
		standing := func() map[string]string {
			all := map[string]string{}
			if _, err := ReadPages(context.Background(), client, fmt.Sprintf("%d/", round), func(page []*mvccpb.KeyValue) error {
				for _, kv := range page {
					all[string(kv.Key)] = string(kv.Value)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return all
		}
		for attempt := 0; ; attempt++ {
			written, err := WriteChunks(context.Background(), kv, nil, ops)
			if err == nil {
				break
			}
			if !errors.Is(err, ErrUnknown) || written%ChunkOps != 0 || attempt > 6 {
				t.Fatalf("attempt %d: %d written, %v", attempt, written, err)
			}
			now := standing()
			for i := range n {
				value, there := now[key(i)]
				done := there == (i%3 != 0) && value != "old"
				if i < written && !done || !done && value != "old" {
					t.Fatalf("record %d is %q though %d are said to be written", i, value, written)
				}
			}
		}
		if got := standing(); !maps.Equal(got, want) {
			t.Fatalf("%d records, want %d", len(got), len(want))
		}
	})
}
