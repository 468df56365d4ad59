package api

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"tidemark/internal/control"
	"tidemark/internal/observe"
)

// Limits of one request to /api/v1.
const (
	bodyBytesMax   = 64 << 10         // the largest sensible body, a policy with every value set, is under 2 KiB
	requestTimeout = 20 * time.Second // a log of thousands of commits since its checkpoint on a slow store
	namesBytesMax  = 1024             // of a table, a shard, an executor
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI is the OpenAPI 3.1 document of /api/v1.
func OpenAPI() []byte { return openAPI }

// V1 answers /api/v1.
type V1 struct {
	see     *observe.Observer
	act     *control.Control
	streams chan struct{} // one token per open stream of events
}

// NewV1 makes the handler of /api/v1/.
func NewV1(see *observe.Observer, act *control.Control) *V1 {
	return &V1{see: see, act: act, streams: make(chan struct{}, streamsMax)}
}

// route is one path and method.
type route struct {
	method, path string
	// read answers with a value to encode; nil where serve is set.
	read  func(ctx context.Context, r *http.Request) (any, error)
	serve http.HandlerFunc
	query []string // names of the parameters it knows
}

const base = "/api/v1"

func (v *V1) routes() []route {
	list := []string{"search", "sort", "desc", "limit", "cursor"}
	return []route{
		{method: "GET", path: "/openapi.json", serve: serveOpenAPI},
		{method: "GET", path: "/overview", read: v.overview},
		{method: "GET", path: "/history", read: v.history, query: []string{"after_ms"}},
		{method: "GET", path: "/events", serve: v.events},
		{method: "GET", path: "/tables", read: v.tables, query: list},
		{method: "GET", path: "/tables/{table}", read: v.table},
		{method: "GET", path: "/tables/{table}/shards", read: v.shards, query: list},
		{method: "GET", path: "/shards", read: v.everyShard, query: list},
		{method: "GET", path: "/tables/{table}/commits", read: v.commits, query: []string{"limit", "cursor"}},
		{method: "GET", path: "/tables/{table}/explain", read: v.explain},
		{method: "GET", path: "/tables/{table}/policy", read: v.policy},
		{method: "POST", path: "/tables/{table}/policy", read: v.changePolicy},
		{method: "POST", path: "/tables/{table}/merge", read: v.merge},
		{method: "POST", path: "/tables/{table}/pause", read: v.pause},
		{method: "POST", path: "/tables/{table}/resume", read: v.resume},
		{method: "POST", path: "/tables/{table}/retry", read: v.retry},
		{method: "POST", path: "/tables/{table}/skip", read: v.skip},
		{method: "GET", path: "/policy", read: v.policy},
		{method: "POST", path: "/policy", read: v.changePolicy},
		{method: "GET", path: "/turns", read: v.turns, query: []string{"table"}},
		{method: "POST", path: "/turns/{execution}/cancel", read: v.cancel},
		{method: "GET", path: "/executors", read: v.executors},
		{method: "POST", path: "/executors/{executor}/drain", read: v.drain},
		{method: "POST", path: "/executors/{executor}/undrain", read: v.undrain},
		{method: "GET", path: "/masters", read: v.masters},
		{method: "GET", path: "/failures", read: v.failures, query: list},
	}
}

// Handler is the handler of every path below /api/v1/.
func (v *V1) Handler() http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, rt := range v.routes() {
		mux.Handle(rt.method+" "+base+rt.path, v.limited(rt))
		methods[rt.path] = append(methods[rt.path], rt.method)
	}
	for path, allowed := range methods {
		mux.HandleFunc(base+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			problem(http.StatusMethodNotAllowed, "method_not_allowed", fmt.Sprintf("%s takes %s", r.URL.Path, strings.Join(allowed, " and "))).write(w)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem(http.StatusNotFound, "no_such_path", "nothing is served at "+r.URL.Path+"; see "+base+"/openapi.json").write(w)
	})
	return mux
}

// limited bounds what a request may cost and encodes its answer.
func (v *V1) limited(rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkRequest(r, rt); err != nil {
			ProblemOf(err).write(w)
			return
		}
		if rt.serve != nil {
			rt.serve(w, r)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, bodyBytesMax)
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		value, err := rt.read(ctx, r)
		if err != nil {
			ProblemOf(err).write(w)
			return
		}
		body, err := json.Marshal(value)
		if err != nil {
			ProblemOf(fmt.Errorf("encoding the answer: %w", err)).write(w)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(append(body, '\n'))
	})
}

// checkRequest refuses parameters that the route does not know, that come twice, and names that are no names.
func checkRequest(r *http.Request, rt route) error {
	query, err := parseQuery(r)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(rt.query, name):
			return &observe.QueryError{Field: "query", Reason: fmt.Sprintf("unknown parameter %q", name)}
		case len(query[name]) > 1:
			return &observe.QueryError{Field: name, Reason: "given more than once"}
		}
	}
	for _, name := range []string{"table", "execution", "executor"} {
		if v := r.PathValue(name); len(v) > namesBytesMax || strings.ContainsFunc(v, unprintable) {
			return &observe.QueryError{Field: name, Reason: "not a name"}
		}
	}
	return nil
}

// unprintable says that a character may be in no name.
func unprintable(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
}
