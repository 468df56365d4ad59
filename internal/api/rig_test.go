package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/control"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/observe"
	"tidemark/internal/random"
	"tidemark/internal/schedule"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
	"tidemark/test/etcd/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSlots = 8

// rig is /api/v1 of a cluster on a real etcd and a root in memory, in which the test plays masters and executors.
type rig struct {
	t      testing.TB
	client *clientv3.Client
	keys   etcd.Keys
	store  *objstore.Memory
	see    *observe.Observer
	v1     *V1
	http   http.Handler
}

func newRig(t testing.TB) *rig {
	t.Helper()
	c, rnd := clock.System(), random.New()
	r := &rig{t: t, client: etcdtest.Start(t), keys: etcd.KeysOf("test"), store: objstore.NewMemory(c)}
	r.put(r.keys.Cluster(), etcd.Cluster{V: 1, Name: "test", ID: "id", Root: "mem://", Slots: testSlots})
	r.see = observe.New(observe.Config{Client: r.client, Keys: r.keys, Store: r.store, Clock: c, Random: rnd, Log: hclog.NewNullLogger()})
	act := control.New(control.Deps{Client: r.client, Keys: r.keys, Store: r.store, Clock: c, Random: rnd})
	r.v1 = NewV1(r.see, act)
	r.http = r.v1.Handler()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.see.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	r.until("the mirror is complete", r.see.Fresh)
	return r
}

func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		changed := r.see.Changed()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.t.Fatalf("waited in vain: %s", what)
		}
	}
}

func (r *rig) put(key string, value any) {
	r.t.Helper()
	body, raw := value.([]byte)
	if !raw {
		var err error
		if body, err = json.Marshal(value); err != nil {
			r.t.Fatal(err)
		}
	}
	if _, err := r.client.Put(context.Background(), key, string(body)); err != nil {
		r.t.Fatal(err)
	}
}

// fill makes a cluster of which every list has something: table prod/events with shard good, of which 2 generations are
// pending, and shard bad, whose generation 1 fails for good; an execution on executor e; master m.
func (r *rig) fill() *table.Table {
	r.t.Helper()
	ctx, c, rnd := context.Background(), clock.System(), random.New()
	s, err := schema.Parse(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}`)
	if err != nil {
		r.t.Fatal(err)
	}
	made, err := table.Create(ctx, r.store, "prod/events", table.CreateOptions{Schema: s}, table.Deps{Clock: c, Random: rnd})
	if err != nil {
		r.t.Fatal(err)
	}
	for shard, n := range map[string]int{"good": 2, "bad": 1} {
		chain := shardmanifest.Open(r.store, made.Name, made.ID, shard, shardmanifest.Options{Clock: c, Random: rnd})
		hold, err := chain.Claim(ctx, shardmanifest.ClaimOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		for range n {
			g := shardmanifest.Generation{Path: chain.GenerationPath(hold.Next()), Bytes: 100, Rows: 10, SealedMS: time.Now().UnixMilli()}
			if _, err := hold.Seal(ctx, g); err != nil {
				r.t.Fatal(err)
			}
		}
		d := demand.Record{TableID: made.ID, Incarnation: 1, Source: demand.Writer, Merged: &demand.Mark{},
			Sealed: &demand.Mark{Gen: uint64(n), Epoch: 1, Bytes: int64(100 * n), Rows: int64(10 * n)}, SealedTimes: []demand.SealTime{{Gen: 1, MS: time.Now().UnixMilli()}}}
		r.put(r.keys.Demand(r.slot(), made.Name, shard), d.Encode())
	}
	r.put(r.keys.Table(r.slot(), made.Name), map[string]any{"v": 1, "table_id": made.ID, "incarnation": 1, "mode": "append"})
	r.put(r.keys.Master("m"), map[string]any{"v": 1, "address": "a:1", "version": "v", "started_ms": 1})
	for slot := range testSlots {
		r.put(r.keys.Slot(slot), map[string]any{"v": 1, "owner": "m", "token": "t", "epoch": 1})
	}
	r.put(r.keys.Executor("e"), map[string]any{"v": 1, "address": "a:2", "version": "v", "slots": 2, "memory": 1 << 30})
	failure := schedule.Failure{Code: "corrupt_file", Class: schedule.Data, Message: "damaged", Generation: 1, Count: 1, FailedMS: time.Now().UnixMilli()}
	out, err := schedule.Outcome{Execution: "x0", Executor: "e", Incarnation: 1, Kind: schedule.KindMerge, Result: schedule.ResultFailed,
		EndedMS: time.Now().UnixMilli(), Shards: map[string]schedule.Failure{"bad": failure}}.Marshal()
	if err != nil {
		r.t.Fatal(err)
	}
	r.put(r.keys.Outcome(made.Name, etcd.GroupOf("bad")), out)
	free := etcd.GroupOf("good") // the turn that is held; those of the failing shard must be free to be skipped
	turn := map[string]any{"v": 1, "execution": "x1", "executor": "e", "token": "t", "turns": "0001", "started_ms": time.Now().UnixMilli(),
		"unit": json.RawMessage(`{"v":1,"id":"u","kind":"merge","table":"prod/events","groups":[` + string(rune('0'+free%10)) + `],"bytes":200}`)}
	r.put(r.keys.Turn(made.Name, free), turn)
	r.put(r.keys.Progress("x1"), map[string]any{"v": 1, "seq": 3, "stage": "writing", "rows": 5, "bytes": 50})
	r.until("everything is seen", func() bool {
		row, _ := r.see.Table(made.Name)
		turns := r.see.Turns("")
		return row.Shards == 2 && row.Failures == 1 && row.State == "active" && len(turns) == 1 && turns[0].Sequence == 3 && len(r.see.Executors()) == 1
	})
	return made
}

func (r *rig) slot() int { return etcd.SlotOf("prod/events", testSlots) }

// call sends one request and returns the answer.
func (r *rig) call(method, path, body string) *httptest.ResponseRecorder {
	r.t.Helper()
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer := httptest.NewRecorder()
	r.http.ServeHTTP(answer, request)
	return answer
}

// done calls an action that has to succeed.
func (r *rig) done(path, body string) control.Done {
	r.t.Helper()
	answer := r.call("POST", base+path, body)
	var d control.Done
	if err := json.Unmarshal(answer.Body.Bytes(), &d); answer.Code != 200 || err != nil {
		r.t.Fatalf("%s: %d %s", path, answer.Code, answer.Body)
	}
	return d
}

// refused calls something that has to be refused with a status and a code.
func (r *rig) refused(method, path, body string, status int, code string) {
	r.t.Helper()
	answer := r.call(method, path, body)
	var p Problem
	if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || answer.Code != status || p.Code != code || p.Status != status || p.Detail == "" ||
		answer.Header().Get("Content-Type") != "application/problem+json" {
		r.t.Errorf("%s %s %s: %d %s, want %d %s", method, path, body, answer.Code, answer.Body, status, code)
	}
}

var eventsTable = "/tables/" + url.PathEscape("prod/events")

func read(t testing.TB, body io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
