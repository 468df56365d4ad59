package api

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

func document(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(OpenAPI())
	if err == nil {
		err = doc.Validate(context.Background(), openapi3.IsOpenAPI31OrLater())
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestEveryPathOfTheDocumentHasAHandlerAndTheOtherWayRound(t *testing.T) {
	documented := map[string][]string{}
	for path, item := range document(t).Paths.Map() {
		for method, op := range item.Operations() {
			var query []string
			for _, p := range op.Parameters {
				if p.Value.In == "query" {
					query = append(query, p.Value.Name)
				}
			}
			slices.Sort(query)
			documented[method+" "+path] = query
		}
	}
	served := map[string][]string{}
	for _, rt := range (&V1{}).routes() {
		query := slices.Clone(rt.query)
		slices.Sort(query)
		served[rt.method+" "+base+rt.path] = query
	}
	if !maps.EqualFunc(documented, served, slices.Equal) {
		t.Fatalf("the document says\n%v\nand served is\n%v", documented, served)
	}
}

// keeps says whether an answer keeps to the document.
func keeps(doc *openapi3.T, method, path string, answer *httptest.ResponseRecorder) error {
	item := doc.Paths.Value(base + path)
	op := item.GetOperation(method)
	options := &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: httptest.NewRequest(method, base+path, nil), Options: options,
			Route: &routers.Route{Spec: doc, Path: base + path, PathItem: item, Method: method, Operation: op},
		},
		Status: answer.Code, Header: answer.Header(), Body: io.NopCloser(bytes.NewReader(answer.Body.Bytes())), Options: options,
	})
}

// calls are requests that succeed on the cluster of fill, in this order, by route.
var calls = []struct{ method, path, address, body string }{
	{"GET", "/openapi.json", "", ""},
	{"GET", "/overview", "", ""},
	{"GET", "/history", "/history?after_ms=1", ""},
	{"GET", "/tables", "/tables?search=EV&sort=pending&desc=true&limit=10", ""},
	{"GET", "/tables/{table}", "/tables/prod%2Fevents", ""},
	{"GET", "/tables/{table}/shards", "/tables/prod%2Fevents/shards?sort=age", ""},
	{"GET", "/shards", "/shards?search=events&sort=age&desc=true", ""},
	{"GET", "/tables/{table}/commits", "/tables/prod%2Fevents/commits?limit=5", ""},
	{"GET", "/tables/{table}/explain", "/tables/prod%2Fevents/explain", ""},
	{"GET", "/tables/{table}/policy", "/tables/prod%2Fevents/policy", ""},
	{"GET", "/policy", "", ""},
	{"GET", "/turns", "/turns?table=prod%2Fevents", ""},
	{"GET", "/executors", "", ""},
	{"GET", "/masters", "", ""},
	{"GET", "/failures", "/failures?limit=1", ""},
	{"POST", "/tables/{table}/policy", "/tables/prod%2Fevents/policy", `{"set":{"max_age":"60s"},"unset":["max_wait"]}`},
	{"POST", "/tables/{table}/merge", "/tables/prod%2Fevents/merge", `{"priority":"low"}`},
	{"POST", "/tables/{table}/pause", "/tables/prod%2Fevents/pause", ``},
	{"POST", "/tables/{table}/resume", "/tables/prod%2Fevents/resume", `{}`},
	{"POST", "/tables/{table}/retry", "/tables/prod%2Fevents/retry", `{"shard":"bad","dry_run":true}`},
	{"POST", "/tables/{table}/skip", "/tables/prod%2Fevents/skip", `{"shard":"bad","generation":1,"reason":"the file is gone"}`},
	{"POST", "/policy", "", `{"set":{"min_generations":"4"}}`},
	{"POST", "/executors/{executor}/drain", "/executors/e/drain", ``},
	{"POST", "/executors/{executor}/undrain", "/executors/e/undrain", ``},
	{"POST", "/turns/{execution}/cancel", "/turns/x1/cancel", `{"sequence":3}`},
}

func TestAnswersKeepToTheirSchemas(t *testing.T) {
	r, doc := newRig(t), document(t)
	r.fill()
	called := map[string]bool{"GET /events": true} // a stream, which has a test of its own
	for _, c := range calls {
		address := c.address
		if address == "" {
			address = c.path
		}
		answer := r.call(c.method, base+address, c.body)
		if answer.Code != 200 {
			t.Errorf("%s %s: %d %s", c.method, address, answer.Code, answer.Body)
		}
		if err := keeps(doc, c.method, c.path, answer); err != nil {
			t.Errorf("%s %s: %v\n%s", c.method, address, err, answer.Body)
		}
		called[c.method+" "+c.path] = true
	}
	for _, rt := range r.v1.routes() {
		if !called[rt.method+" "+rt.path] {
			t.Errorf("%s %s was not called", rt.method, rt.path)
		}
	}
	refusal := r.call("GET", base+"/tables/nope", "")
	if err := keeps(doc, "GET", "/tables/{table}", refusal); err != nil || refusal.Code != 404 {
		t.Errorf("a refusal: %d %v", refusal.Code, err)
	}
}

func TestAnAnswerThatBreaksItsSchemaIsNoticed(t *testing.T) {
	answer := httptest.NewRecorder()
	answer.Header().Set("Content-Type", "application/json")
	_, _ = answer.WriteString(`{"samples":[{"ms":"yesterday"}]}`)
	if err := keeps(document(t), "GET", "/history", answer); err == nil || !strings.Contains(err.Error(), "schema") {
		t.Fatalf("no error of a schema: %v", err)
	}
}
