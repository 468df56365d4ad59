package tracing

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"tidemark/internal/random"
)

const (
	// GenerationsMax is for how many generations of one execution spans are sent. Those that have waited longest are
	// what somebody looks for, and a merge may take in thousands.
	GenerationsMax = 16
	// stagesMax bounds the spans of one execution: four commits of plan, merge and commit, and the rest.
	stagesMax = 16
	// scope is the name of the instrumentation.
	scope = "tidemark"
)

// Generation is what a trace is about.
type Generation struct {
	Table, TableID string
	Shard          string
	Number         uint64
	SealedMS       int64 // 0: not known
}

// ids of the generation's trace and of its root span. Neither is ever zero.
func (g Generation) ids() (t trace.TraceID, root trace.SpanID) {
	h := xxh3.HashString128(fmt.Sprintf("tidemark\x00%s\x00%s\x00%d", g.TableID, g.Shard, g.Number))
	binary.BigEndian.PutUint64(t[:8], h.Hi|1)
	binary.BigEndian.PutUint64(t[8:], h.Lo)
	binary.BigEndian.PutUint64(root[:], (h.Hi^h.Lo)|1)
	return t, root
}

// TraceID is the id of the generation's trace.
func (g Generation) TraceID() trace.TraceID {
	t, _ := g.ids()
	return t
}

// parent is a context below the generation's root span, wherever that is made.
func (g Generation) parent(ctx context.Context) context.Context {
	t, root := g.ids()
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: t, SpanID: root, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
}

func (g Generation) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("tidemark.table", g.Table), attribute.String("tidemark.shard", g.Shard),
		attribute.Int64("tidemark.generation", int64(g.Number)),
	}
}

// Sealed sends the span of a seal. It is linked to the span that ctx is in, if any: that of the program whose rows these are.
func Sealed(ctx context.Context, provider trace.TracerProvider, g Generation, rows, bytes int64, began, ended time.Time) {
	options := []trace.SpanStartOption{
		trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(g.attributes()...),
		trace.WithAttributes(attribute.Int64("tidemark.rows", rows), attribute.Int64("tidemark.bytes", bytes)),
	}
	if caller := trace.SpanContextFromContext(ctx); caller.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: caller}))
	}
	_, span := provider.Tracer(scope).Start(g.parent(context.Background()), "seal", options...)
	span.End(trace.WithTimestamp(ended))
}

// Execution notes what an execution does, until End sends it. A nil one notes nothing.
type Execution struct {
	provider *Provider
	fixed    []attribute.KeyValue

	mu     sync.Mutex // guards the following
	stages []stage
	oldest []Generation
}

type stage struct {
	name         string
	began, ended time.Time
	err          error
}

// Execution begins to note one; nil if nothing is traced.
func (p *Provider) Execution(id, executor, kind string) *Execution {
	if p == nil {
		return nil
	}
	return &Execution{provider: p, fixed: []attribute.KeyValue{
		attribute.String("tidemark.execution", id), attribute.String("tidemark.executor", executor), attribute.String("tidemark.kind", kind),
	}}
}

// Stage notes a part of the execution that has ended, err saying how.
func (x *Execution) Stage(name string, began, ended time.Time, err error) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.stages) < stagesMax {
		x.stages = append(x.stages, stage{name, began, ended, err})
	}
}

// Merged notes a generation that was committed.
func (x *Execution) Merged(g Generation) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	bySeal := func(a, b Generation) int {
		return cmp.Or(cmp.Compare(a.SealedMS, b.SealedMS), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Number, b.Number))
	}
	i, _ := slices.BinarySearchFunc(x.oldest, g, bySeal)
	if i < GenerationsMax {
		x.oldest = slices.Insert(x.oldest, i, g)
		x.oldest = x.oldest[:min(len(x.oldest), GenerationsMax)]
	}
}

// End sends the spans of the generations that were merged.
func (x *Execution) End(now time.Time) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	tracer := x.provider.sdk.Tracer(scope)
	for _, g := range x.oldest {
		for _, s := range x.stages {
			_, span := tracer.Start(g.parent(context.Background()), s.name, trace.WithTimestamp(s.began), trace.WithAttributes(x.fixed...))
			if s.err != nil {
				span.SetStatus(codes.Error, s.err.Error())
			}
			span.End(trace.WithTimestamp(s.ended))
		}
		began := now
		if g.SealedMS > 0 {
			began = time.UnixMilli(g.SealedMS)
		}
		_, span := tracer.Start(context.WithValue(context.Background(), rootKey{}, g), "generation",
			trace.WithTimestamp(began), trace.WithAttributes(g.attributes()...), trace.WithAttributes(x.fixed...), trace.WithLinks(x.others(g)...))
		span.End(trace.WithTimestamp(now))
	}
}

// others are links to the roots of the other generations of the execution. mu is held.
func (x *Execution) others(than Generation) []trace.Link {
	var links []trace.Link
	for _, g := range x.oldest {
		if g != than {
			links = append(links, trace.Link{SpanContext: trace.SpanContextFromContext(g.parent(context.Background()))})
		}
	}
	return links
}

// rootKey holds, in a context, the Generation of which the span to be started is the root.
type rootKey struct{}

// ids gives the root span of a generation's trace the ids that everybody expects, and every other span one of its own.
type ids struct{ random random.Source }

var _ sdktrace.IDGenerator = ids{}

func (i ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if g, ok := ctx.Value(rootKey{}).(Generation); ok {
		return g.ids()
	}
	var t trace.TraceID
	binary.BigEndian.PutUint64(t[:8], i.random.Uint64()|1)
	binary.BigEndian.PutUint64(t[8:], i.random.Uint64())
	return t, i.NewSpanID(ctx, t)
}

func (i ids) NewSpanID(context.Context, trace.TraceID) (s trace.SpanID) {
	binary.BigEndian.PutUint64(s[:], i.random.Uint64()|1)
	return s
}
