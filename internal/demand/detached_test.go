package demand

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/test/etcd/etcdtest"
)

type counter struct {
	mu      sync.Mutex // guards results
	results map[Result]int
}

func newCounter() *counter { return &counter{results: map[Result]int{}} }

func (c *counter) count(r Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results[r]++
}

func (c *counter) is(want map[Result]int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Equal(c.results, want)
}

func batchOf(n int) []ShardEvent {
	var merged []MergedEvent
	for i := range n {
		ev := mergedEvent(uint64(i+1), 1)
		ev.Shard = fmt.Sprint("s-", i)
		merged = append(merged, ev)
	}
	return newPublisher(nil).Events(merged)
}

func TestADetachedBatchPutsEachShardOnItsOwnAndCountsEveryResult(t *testing.T) {
	client := etcdtest.Start(t)
	if _, err := client.Put(t.Context(), testKey("t", "s-1"), `{"v":999}`); err != nil {
		t.Fatal(err)
	}
	counts := newCounter()
	d := NewDetached(newPublisher(client), counts.count)
	defer d.Close()
	if err := d.Do(t.Context(), batchOf(3)); err == nil {
		t.Error("the refused record is not reported")
	}
	if !d.Go(batchOf(3), func(error) {}) {
		t.Fatal("not taken")
	}
	d.wait.Wait()
	if !counts.is(map[Result]int{Written: 2, Unchanged: 2, Refused: 2}) {
		t.Errorf("%v", counts.results)
	}
}

// hangingKV never answers.
type hangingKV struct{ clientv3.KV }

func (hangingKV) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestDetachedBatchesAreBoundedInNumberAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := newCounter()
		d := NewDetached(newPublisher(hangingKV{}), counts.count)
		for i := range DetachedMax {
			if !d.Go(batchOf(10), func(error) {}) {
				t.Fatalf("batch %d was not taken", i)
			}
		}
		if d.Go(batchOf(10), func(error) {}) {
			t.Fatal("one more was taken")
		}
		if !counts.is(map[Result]int{Dropped: 10}) {
			t.Errorf("%v", counts.results)
		}
		begun := time.Now()
		d.wait.Wait()
		if took := time.Since(begun); took != DetachedTimeout {
			t.Errorf("the batches took %v", took)
		}
		if !counts.is(map[Result]int{Dropped: 10, Expired: 40}) {
			t.Errorf("%v", counts.results)
		}
		d.Close()
	})
}
