package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/api"
	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	serving "tidemark/internal/process"
	"tidemark/internal/random"
	"tidemark/test/etcd/etcdtest"
)

const (
	fleetTables = 13_400
	fleetSlots  = 64
	// nodesMax bounds what one page of a list is in the browser, however many rows the list has: 50 rows of about 30
	// elements, and the rest of the page.
	nodesMax = 2_500
)

// fleetName is the name of the table that is the i-th to have waited longest, from 0.
func fleetName(i int) string { return fmt.Sprintf("team-%02d/events-%05d", i%37, i) }

// seedFleet puts the records of a cluster of fleetTables tables with a shard each, as masters and writers do.
func seedFleet(t *testing.T, client *clientv3.Client, keys etcd.Keys) {
	t.Helper()
	encoded := func(v any) string {
		body, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	ops := []clientv3.Op{clientv3.OpPut(keys.Cluster(), encoded(etcd.Cluster{V: 1, Name: "fleet", ID: "id", Root: "mem://", Slots: fleetSlots}))}
	since := time.Now().Add(-5 * time.Hour).UnixMilli()
	for i := range fleetTables {
		name := fleetName(i)
		slot := etcd.SlotOf(name, fleetSlots)
		sealed := demand.Mark{Gen: uint64(i%90) + 2, Epoch: 1, Bytes: int64(i) * 4096, Rows: int64(i) * 10}
		record := demand.Record{
			TableID: "id-" + name, Incarnation: 1, Source: demand.Writer, Sealed: &sealed, Merged: &demand.Mark{Gen: 1, Epoch: 1},
			SealedTimes: []demand.SealTime{{Gen: 2, MS: since + int64(i)*1000}},
		}
		ops = append(ops,
			clientv3.OpPut(keys.Table(slot, name), encoded(map[string]any{"v": 1, "table_id": "id-" + name, "incarnation": 1, "mode": "append"})),
			clientv3.OpPut(keys.Demand(slot, name, "writer-0"), string(record.Encode())))
	}
	chunks, err := etcd.Chunks(ops)
	if err != nil {
		t.Fatal(err)
	}
	for _, chunk := range chunks {
		if _, err := client.Txn(t.Context()).Then(chunk...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// serveFace serves the page of a cluster in etcd, without a master that would look for its tables in storage.
func serveFace(t *testing.T, client *clientv3.Client, keys etcd.Keys) (address string) {
	t.Helper()
	c := clock.System()
	face, err := serving.NewFace(serving.FaceConfig{
		Client: client, Keys: keys, Store: objstore.NewMemory(c), Clock: c, Random: random.New(), Log: hclog.NewNullLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := api.Listen("127.0.0.1:0", api.Options{Metrics: serving.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	face.Mount(server)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- face.Run(ctx) }()
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return server.URL()
}

// A fleet's list of tables is as quick to read, search, sort and leaf through as a small one, because the server cuts it; the
// times are in the log of the test.
func TestPageListsAFleetOfTablesAPageAtATime(t *testing.T) {
	chromium(t) // before the work
	client, keys := etcdtest.Start(t), etcd.KeysOf("fleet")
	seedFleet(t, client, keys)
	b := newBrowser(t, serveFace(t, client, keys))

	first := `document.querySelector("tbody tr td.name")?.innerText.trim()`
	timed := func(what, expression string, do func()) {
		t.Helper()
		began := time.Now()
		do()
		b.wait(what, expression)
		t.Logf("%-28s %4d ms, to within %v", what, time.Since(began).Milliseconds(), pollInterval)
		if n := evaluate[int](b, `document.querySelectorAll("*").length`); n > nodesMax {
			t.Errorf("%s: %d elements on the page", what, n)
		}
		if n := evaluate[int](b, `document.querySelectorAll("tbody tr").length`); n < 1 || n > 50 {
			t.Errorf("%s: %d rows on the page", what, n)
		}
	}
	is := func(name string) string { return fmt.Sprintf("%s === %q", first, name) }

	timed("the longest wait is first", is(fleetName(0)), func() { b.do(chromedp.Navigate(b.base + "/tables")) })
	b.says("of 13,400")
	timed("the next page", is(fleetName(50)), func() { b.click(".pager", "Next →") })
	timed("the page before", is(fleetName(0)), func() { b.click(".pager", "← Previous") })
	timed("sorted by size", is(fleetName(fleetTables-1)), func() { b.click("thead", "Size") })
	timed("sorted by name", is("team-00/events-00000"), func() { b.click("thead", "Table") })
	timed("sorted by name, backwards", is("team-36/events-13393"), func() { b.click("thead", "Table") })
	timed("searched", is(fleetName(7777)), func() { b.do(chromedp.KeyEvent("/"), chromedp.KeyEvent("EVENTS-07777")) })
	if n := evaluate[int](b, `document.querySelectorAll("tbody tr").length`); n != 1 {
		t.Errorf("%d tables are found", n)
	}
	timed("everything again", is(fleetName(0)), func() {
		evaluate[bool](b, `((x) => { x.value = ""; return x.dispatchEvent(new Event("input", { bubbles: true })) })(document.querySelector("#search"))`)
	})
	timed("the overview", `document.body.innerText.includes("Longest waiting")`, func() { b.do(chromedp.Navigate(b.base + "/")) })
}
