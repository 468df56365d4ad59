package tracing

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"tidemark/internal/random"
)

func recording() (*Provider, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return &Provider{sdk: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithIDGenerator(ids{random.Seeded(1)}))}, spans
}

func generation(n uint64, sealedMS int64) Generation {
	return Generation{Table: "t", TableID: "id", Shard: "s", Number: n, SealedMS: sealedMS}
}

func TestWriterAndExecutorAgreeOnATraceThatNeitherToldTheOther(t *testing.T) {
	p, spans := recording()
	// A program's own provider knows nothing of our ids.
	own := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx, caller := own.Tracer("program").Start(context.Background(), "rollout")
	sealed := time.UnixMilli(1_700_000_000_000)
	Sealed(ctx, own, generation(1, sealed.UnixMilli()), 3, 100, sealed.Add(-time.Second), sealed)
	x := p.Execution("x1", "e1", "merge")
	x.Stage("claim", sealed, sealed, nil)
	x.Stage("publish", sealed, sealed, errors.New("etcd was away"))
	x.Merged(generation(1, sealed.UnixMilli()))
	x.End(sealed.Add(time.Minute))

	byName := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		byName[s.Name()] = s
	}
	root, seal := byName["generation"], byName["seal"]
	if root == nil || seal == nil || byName["claim"] == nil || len(byName) != 4 {
		t.Fatalf("%v", byName)
	}
	for name, s := range byName {
		if s.SpanContext().TraceID() != generation(1, 0).TraceID() {
			t.Errorf("%s is in another trace", name)
		}
		if name != "generation" && s.Parent().SpanID() != root.SpanContext().SpanID() {
			t.Errorf("%s is not below the generation", name)
		}
	}
	if root.Parent().IsValid() || root.EndTime().Sub(root.StartTime()) != time.Minute {
		t.Errorf("the root: parent %v, %v long", root.Parent(), root.EndTime().Sub(root.StartTime()))
	}
	if links := seal.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != caller.SpanContext().SpanID() {
		t.Errorf("the seal does not lead back to its program: %v", links)
	}
	if byName["publish"].Status().Code != codes.Error || byName["claim"].Status().Code != codes.Unset {
		t.Error("which stage failed is lost")
	}
}

func TestTracesOfDifferentGenerationsDiffer(t *testing.T) {
	seen := map[trace.TraceID]Generation{}
	for _, g := range []Generation{
		generation(1, 0), generation(2, 0), {TableID: "id", Shard: "s1", Number: 2}, {TableID: "ids", Shard: "1", Number: 2}, {TableID: "other", Shard: "s", Number: 1},
	} {
		id, root := g.ids()
		if other, twice := seen[id]; twice || !id.IsValid() || !root.IsValid() {
			t.Errorf("%+v and %+v: %v, %v", g, other, id, root)
		}
		seen[id] = g
	}
}

func TestTheSpansOfAnExecutionAreBounded(t *testing.T) {
	p, spans := recording()
	x := p.Execution("x1", "e1", "merge")
	for i := range 100 * stagesMax {
		x.Stage(fmt.Sprint(i), time.Now(), time.Now(), nil)
	}
	want := map[trace.TraceID]bool{}
	for i := range 1000 {
		n := i*379%1000 + 1 // in no order
		x.Merged(generation(uint64(n), int64(n)*1000))
		if n <= GenerationsMax {
			want[generation(uint64(n), 0).TraceID()] = true
		}
	}
	x.End(time.Now())
	for _, s := range spans.Ended() {
		if !want[s.SpanContext().TraceID()] {
			t.Fatalf("a span of a generation that is not of the oldest %d", GenerationsMax)
		}
	}
	if n := len(spans.Ended()); n != GenerationsMax*(stagesMax+1) {
		t.Errorf("%d spans", n)
	}
}

func TestOffNothingIsMade(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"} {
		t.Setenv(name, "")
	}
	off := func(c Config) {
		t.Helper()
		p, err := Start(t.Context(), c)
		if p != nil || err != nil || p.Tracers() != nil {
			t.Fatalf("%v, %v", p, err)
		}
		x := p.Execution("x", "e", "merge")
		allocated := testing.AllocsPerRun(100, func() {
			x.Stage("plan", time.Time{}, time.Time{}, nil)
			x.Merged(Generation{})
			x.End(time.Time{})
		})
		if allocated != 0 {
			t.Errorf("%v allocations while off", allocated)
		}
		p.Close(t.Context())
	}
	off(Config{})
	t.Setenv("OTEL_SDK_DISABLED", "true")
	off(Config{Endpoint: "http://127.0.0.1:1"})
	t.Setenv("OTEL_SDK_DISABLED", "")
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	off(Config{Endpoint: "http://127.0.0.1:1"})
}
