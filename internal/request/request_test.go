package request

import (
	"encoding/json"
	"testing"
	"time"

	"tidemark/internal/etcd"
	"tidemark/internal/schedule"
	"tidemark/test/etcd/etcdtest"
)

// Whoever asks for a merge is heard, whatever was asked for before: a policy that was just changed leaves a request for a
// scan alone. A request for a merge that stands already stays as it is.
func TestAMergeIsAskedForBesideARequestForAScanAlone(t *testing.T) {
	client, keys := etcdtest.Start(t), etcd.KeysOf("test")
	put := func(key, value string) {
		t.Helper()
		if _, err := client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	put(keys.Cluster(), `{"v":1,"name":"test","id":"one","root":"memory","slots":4}`)
	key := keys.Requests(etcd.SlotOf("orders", 4), "orders")
	ask := func(by string) (schedule.Request, int64) {
		t.Helper()
		if err := Merge(t.Context(), client, keys, "orders", time.UnixMilli(1), by); err != nil {
			t.Fatal(err)
		}
		answer, err := client.Get(t.Context(), key)
		if err != nil || len(answer.Kvs) != 1 {
			t.Fatal(answer, err)
		}
		var r schedule.Request
		if err := json.Unmarshal(answer.Kvs[0].Value, &r); err != nil {
			t.Fatal(err)
		}
		return r, answer.Kvs[0].ModRevision
	}
	put(key, `{"v":1,"by":"policy","scan_only":true}`)
	first, revision := ask("first")
	if first.ScanOnly || first.By != "first" {
		t.Errorf("a request for a scan alone stands in the way of a merge: %+v", first)
	}
	if again, now := ask("second"); again.By != "first" || now != revision {
		t.Errorf("a standing request was put again: %+v", again)
	}
	if _, err := client.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if third, _ := ask("third"); third.By != "third" {
		t.Errorf("%+v", third)
	}
}
