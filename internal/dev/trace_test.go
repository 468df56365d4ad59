package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/process"
	"tidemark/internal/request"
	"tidemark/internal/schema"
	"tidemark/internal/table"
	"tidemark/internal/tracing"
	"tidemark/writer"
)

// receiver is an OTLP/HTTP collector.
type receiver struct {
	t *testing.T

	mu    sync.Mutex // guards spans
	spans []*otlp.Span
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var export collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &export)
	}
	if err != nil || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
		r.t.Errorf("%s %s: %v", req.URL, req.Header.Get("Content-Type"), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range export.ResourceSpans {
		if !strings.Contains(fmt.Sprint(resource.Resource), "tidemark-dev") {
			r.t.Errorf("spans of %v", resource.Resource)
		}
		for _, s := range resource.ScopeSpans {
			r.spans = append(r.spans, s.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func TestOneTraceLeadsFromTheSealToTheMergedMark(t *testing.T) {
	to := &receiver{t: t}
	server := httptest.NewServer(to)
	defer server.Close()
	var wanted tracing.Generation
	err := Run(t.Context(), Options{
		RootFlags: process.RootFlags{Root: t.TempDir()}, Cluster: "default", Keys: etcd.KeysOf("default"), Executors: 1, Slots: 2, Memory: 256 << 20,
		Listen: "127.0.0.1:0", Lease: ownership.DefaultConfig(ownership.DefaultTTL), Out: io.Discard, Log: hclog.NewNullLogger(),
		Metrics: process.NewRegistry(), Traces: process.TraceFlags{OTLPEndpoint: server.URL},
	}, nil, func(ctx context.Context, s *Server) (err error) {
		wanted, err = sealAndMerge(ctx, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	id := wanted.TraceID()
	spans := map[string]*otlp.Span{}
	for _, s := range to.spans {
		if bytes.Equal(s.TraceId, id[:]) {
			spans[s.Name] = s
		}
	}
	want := []string{"claim", "commit", "generation", "merge", "plan", "publish", "release", "seal"}
	if got := slices.Sorted(maps.Keys(spans)); !slices.Equal(got, want) {
		t.Fatalf("the trace has %v, want %v", got, want)
	}
	root := spans["generation"]
	if len(root.ParentSpanId) != 0 {
		t.Error("the generation is not the root")
	}
	order := []string{"seal", "claim", "plan", "merge", "commit", "release", "publish"}
	for i, name := range order {
		s := spans[name]
		if !bytes.Equal(s.ParentSpanId, root.SpanId) {
			t.Errorf("%s is not below the generation", name)
		}
		if s.EndTimeUnixNano < s.StartTimeUnixNano || s.EndTimeUnixNano > root.EndTimeUnixNano {
			t.Errorf("%s does not end within the generation", name)
		}
		if i > 0 && s.StartTimeUnixNano < spans[order[i-1]].StartTimeUnixNano {
			t.Errorf("%s begins before %s", name, order[i-1])
		}
	}
}

// sealAndMerge seals one generation and returns it once it is merged, published and released.
func sealAndMerge(ctx context.Context, s *Server) (tracing.Generation, error) {
	if err := s.awaitReady(ctx); err != nil {
		return tracing.Generation{}, err
	}
	columns, err := schema.Parse(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}`)
	if err != nil {
		return tracing.Generation{}, err
	}
	made, err := table.Create(ctx, s.store, "events", table.CreateOptions{Schema: columns}, s.tableDeps())
	if err != nil {
		return tracing.Generation{}, err
	}
	w, err := writer.ClaimWith(ctx, writer.Config{Table: "events", Shard: "s", Tracers: s.traces.Tracers()}, writer.Deps{
		Store: s.store, Clock: s.clock, Random: s.random, Publisher: s.publisher,
	})
	if err != nil {
		return tracing.Generation{}, err
	}
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, columns.Arrow(), strings.NewReader(`[{"a":1},{"a":2}]`))
	if err != nil {
		return tracing.Generation{}, err
	}
	defer rec.Release()
	if err := w.Append(ctx, rec); err != nil {
		return tracing.Generation{}, err
	}
	sealed, err := w.Seal(ctx)
	err = errors.Join(err, w.Close(ctx))
	if err == nil {
		err = request.Wait(ctx, s.client, s.options.Keys, s.store, "events", s.tableDeps(), "the test")
	}
	for _, e := range s.executors {
		for err == nil && e.Active() > 0 {
			err = s.clock.Sleep(ctx, 10*time.Millisecond)
		}
	}
	// The mark is published beside whatever comes next.
	for published := false; err == nil && !published; {
		if published, err = s.published(ctx, "events", "s", sealed.Generation); err == nil && !published {
			err = s.clock.Sleep(ctx, 10*time.Millisecond)
		}
	}
	return tracing.Generation{TableID: made.ID, Shard: "s", Number: sealed.Generation}, err
}

// published says whether etcd has a shard's merged mark.
func (s *Server) published(ctx context.Context, name, shard string, mark uint64) (bool, error) {
	cluster, err := etcd.ReadCluster(ctx, s.client, s.options.Keys)
	if err != nil {
		return false, err
	}
	got, err := s.client.Get(ctx, s.options.Keys.Demand(etcd.SlotOf(name, cluster.Slots), name, shard))
	if err != nil || len(got.Kvs) == 0 {
		return false, err
	}
	record, err := demand.Parse(got.Kvs[0].Value)
	return err == nil && record.Merged != nil && record.Merged.Gen >= mark, err
}
