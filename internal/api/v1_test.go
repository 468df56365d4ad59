package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/control"
	"tidemark/internal/observe"
	"tidemark/internal/table"
)

func TestADryRunSaysWhatWouldBeDoneAndDoesNothing(t *testing.T) {
	r := newRig(t)
	made := r.fill()
	before := r.state(made)
	for _, c := range calls {
		if c.method != "POST" {
			continue
		}
		address := c.address
		if address == "" {
			address = c.path
		}
		body := map[string]any{}
		if c.body != "" {
			if err := json.Unmarshal([]byte(c.body), &body); err != nil {
				t.Fatal(err)
			}
		}
		body["dry_run"] = true
		encoded, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if d := r.done(address, string(encoded)); !d.DryRun || d.Sentence == "" {
			t.Errorf("%s: %+v", address, d)
		}
	}
	if after := r.state(made); after != before {
		t.Errorf("etcd and storage were\n%s\nand are\n%s", before, after)
	}
}

// state is everything that an action could change.
func (r *rig) state(made *table.Table) string {
	r.t.Helper()
	got, err := r.client.Get(r.t.Context(), r.keys.Prefix, clientv3.WithPrefix())
	if err != nil {
		r.t.Fatal(err)
	}
	text := ""
	for _, kv := range got.Kvs {
		text += fmt.Sprintf("%s@%d\n", kv.Key, kv.ModRevision)
	}
	snapshot, err := made.Log.Snapshot(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	_, _, noPolicy := r.store.Get(r.t.Context(), "_tidemark/policy.json")
	return text + fmt.Sprint(snapshot.Version, noPolicy)
}

func TestActionsDoWhatTheySayAndItIsSeen(t *testing.T) {
	r := newRig(t)
	made := r.fill()
	state := func(want string) {
		t.Helper()
		r.until("the table is "+want, func() bool {
			var view TableView
			if err := json.Unmarshal(r.call("GET", base+eventsTable, "").Body.Bytes(), &view); err != nil {
				t.Fatal(err)
			}
			return view.State == want
		})
	}
	if d := r.done(eventsTable+"/pause", ""); !d.Changed || d.DryRun {
		t.Errorf("%+v", d)
	}
	state("paused")
	if d := r.done(eventsTable+"/pause", ""); d.Changed {
		t.Errorf("paused twice: %+v", d)
	}
	r.done(eventsTable+"/resume", "")
	state("active")
	r.done(eventsTable+"/merge", "")
	r.until("a merge is asked for", func() bool { v, _ := r.see.Table(made.Name); return v.Requested })
	r.done("/executors/e/drain", "")
	r.until("the executor is asked to drain", func() bool { return r.see.Executors()[0].DrainAsked })
	r.done("/turns/x1/cancel", `{}`)
	r.until("the turn is gone", func() bool { return len(r.see.Turns("")) == 0 })
	r.done(eventsTable+"/skip", `{"shard":"bad","generation":1,"reason":"lost"}`)
	r.until("the skipped generation fails no more", func() bool {
		page, err := r.see.Failures(observe.Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page.Items {
			if f.Shard == "bad" {
				return false
			}
		}
		return true
	})
	r.done(eventsTable+"/policy", `{"set":{"max_age":"77s"}}`)
	var view TableView
	if err := json.Unmarshal(r.call("GET", base+eventsTable, "").Body.Bytes(), &view); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, p := range view.Policy {
		found = found || p == control.PolicyValue{Name: "max_age", Value: "1m17s", Origin: control.OriginTable, Help: p.Help}
	}
	if !found {
		t.Errorf("the policy is %+v", view.Policy)
	}
}

func TestBadInputIsRefusedWithACodeThatSaysWhatIsWrong(t *testing.T) {
	r := newRig(t)
	r.fill()
	merge, skip := base+eventsTable+"/merge", base+eventsTable+"/skip"
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"GET", base + "/nothing", "", 404, "no_such_path"},
		{"DELETE", base + "/tables", "", 405, "method_not_allowed"},
		{"GET", base + "/tables?colour=red", "", 400, "bad_query"},
		{"GET", base + "/tables?limit=5&limit=6", "", 400, "bad_query"},
		{"GET", base + "/tables?limit=-1", "", 400, "bad_query"},
		{"GET", base + "/tables?limit=501", "", 400, "bad_query"},
		{"GET", base + "/tables?desc=yes", "", 400, "bad_query"},
		{"GET", base + "/tables?cursor=zzz", "", 400, "bad_query"},
		{"GET", base + "/tables?search=%zz", "", 400, "bad_query"},
		{"GET", base + "/history?after_ms=soon", "", 400, "bad_query"},
		{"GET", base + eventsTable + "/commits?cursor=!", "", 400, "bad_query"},
		{"GET", base + eventsTable + "/commits?limit=0", "", 400, "bad_query"},
		{"GET", base + "/tables/_hidden", "", 400, "table_name"},
		{"GET", base + "/tables/" + strings.Repeat("x", 2000), "", 400, "bad_query"},
		{"GET", base + "/tables/nope", "", 404, "unknown_table"},
		{"GET", base + "/tables/nope/shards", "", 404, "unknown_table"},
		{"GET", base + "/tables/nope/explain", "", 404, "unknown_table"},
		{"POST", merge, `{"priority":"high"}`, 400, "bad_body"},
		{"POST", merge, `{"when":"now"}`, 400, "bad_body"},
		{"POST", merge, `{} {}`, 400, "bad_body"},
		{"POST", merge, `{`, 400, "bad_body"},
		{"POST", merge, `[]`, 400, "bad_body"},
		{"POST", merge, `{"priority":"` + strings.Repeat("x", bodyBytesMax) + `"}`, 400, "bad_body"},
		{"POST", base + "/tables/nope/merge", ``, 404, "unknown_table"},
		{"POST", base + eventsTable + "/policy", `{"set":{"max_age":"soon"}}`, 400, "policy_invalid"},
		{"POST", base + eventsTable + "/policy", `{"set":{"max_age":"60s"},"unset":["max_age"]}`, 400, "bad_body"},
		{"POST", base + "/policy", `{}`, 400, "nothing_to_change"},
		{"POST", skip, `{"shard":"bad","generation":1,"reason":" "}`, 400, "reason_missing"},
		{"POST", skip, `{"shard":"bad"}`, 400, "bad_body"},
		{"POST", skip, `{"shard":"bad","generation":-1,"reason":"r"}`, 400, "bad_body"},
		{"POST", skip, `{"shard":"good","generation":1,"reason":"r"}`, 409, "not_the_failing"},
		{"POST", base + "/turns/nope/cancel", ``, 404, "unknown_execution"},
		{"POST", base + "/executors/nope/drain", ``, 404, "unknown_executor"},
	} {
		r.refused(c.method, c.path, c.body, c.status, c.code)
	}
	request := httptest.NewRequest("POST", merge, strings.NewReader(`{}`))
	answer := httptest.NewRecorder()
	r.http.ServeHTTP(answer, request)
	if answer.Code != 400 || !strings.Contains(answer.Body.String(), "Content-Type") {
		t.Errorf("a body without a type: %d %s", answer.Code, answer.Body)
	}
}

func TestEventsTellOfChangesAndEndWithTheServer(t *testing.T) {
	r := newRig(t)
	server := httptest.NewServer(r.http)
	defer server.Close()
	resp, err := server.Client().Get(server.URL + base + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("Content-Type %q", kind)
	}
	lines := bufio.NewScanner(resp.Body)
	for range 2 { // one at once, one more when something changes
		var event struct {
			NowMS int64 `json:"now_ms"`
			Fresh bool  `json:"fresh"`
		}
		if !lines.Scan() || lines.Text() != "event: change" || !lines.Scan() {
			t.Fatalf("got %q %v", lines.Text(), lines.Err())
		}
		data, _ := strings.CutPrefix(lines.Text(), "data: ")
		if err := json.Unmarshal([]byte(data), &event); err != nil || !event.Fresh || event.NowMS == 0 || !lines.Scan() {
			t.Fatalf("got %q %v", data, err)
		}
		r.put(r.keys.Master("another"), map[string]any{"v": 1})
	}
}

func FuzzNothingThatIsSentCausesAServerError(f *testing.F) {
	r := newRig(f)
	r.fill()
	for _, c := range calls {
		address := c.address
		if address == "" {
			address = c.path
		}
		path, query, _ := strings.Cut(address, "?")
		f.Add(c.method == "POST", path, query, c.body)
	}
	f.Add(false, "/tables", "cursor=eyJzIjoibmFtZSIsImsiOiIifQ", "")
	f.Add(true, eventsTable+"/skip", "", `{"shard":"bad","generation":18446744073709551615,"reason":"r","dry_run":true}`)
	f.Fuzz(func(t *testing.T, post bool, path, query, body string) {
		request := httptest.NewRequest("GET", "http://localhost"+base, nil)
		if post {
			request = httptest.NewRequest("POST", "http://localhost"+base, strings.NewReader(body))
			request.Header.Set("Content-Type", "application/json")
		}
		if strings.HasSuffix(path, "/events") {
			return // a stream, which does not end by itself
		}
		request.URL.RawPath = base + path
		request.URL.Path = base + strings.ReplaceAll(path, "%2F", "/")
		request.URL.RawQuery = query
		answer := httptest.NewRecorder()
		r.http.ServeHTTP(answer, request)
		if answer.Code >= 500 {
			t.Fatalf("%s?%s with %q: %d %s", path, query, body, answer.Code, answer.Body)
		}
		if kind := answer.Header().Get("Content-Type"); answer.Code >= 400 && kind != "application/problem+json" {
			t.Fatalf("%s: %d as %q", path, answer.Code, kind)
		}
	})
}
