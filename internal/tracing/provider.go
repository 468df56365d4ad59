package tracing

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"tidemark/internal/random"
)

// flushTimeout bounds how long an ending process waits for a collector to take its last spans.
const flushTimeout = 3 * time.Second

// Config says where traces go. Besides it, OpenTelemetry's own variables hold: OTEL_EXPORTER_OTLP_…, OTEL_TRACES_SAMPLER,
// OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME, OTEL_SDK_DISABLED.
type Config struct {
	Endpoint string // URL of an OTLP/HTTP collector; empty leaves it to OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
	Service  string // such as "tidemark-executor"
	Instance string // its id
	Version  string
	Random   random.Source
	Log      hclog.Logger
}

// Provider sends spans to a collector. A nil one sends nothing.
type Provider struct {
	sdk *sdktrace.TracerProvider
	log hclog.Logger
}

// Start makes a provider, or nil if nothing says where traces go. The collector is not waited for.
func Start(ctx context.Context, c Config) (*Provider, error) {
	own := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if c.Endpoint == "" && own == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	var options []otlptracehttp.Option
	if own == "" {
		options = append(options, otlptracehttp.WithEndpointURL(strings.TrimSuffix(c.Endpoint, "/")+"/v1/traces"))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot send traces to %s: %w", c.Endpoint, err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", c.Service), attribute.String("service.instance.id", c.Instance), attribute.String("service.version", c.Version),
	), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES cannot be used: %w", err)
	}
	// Whatever goes wrong with traces is worth a line in the log, and nothing else.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Log.Warn("traces", "error", err) }))
	return &Provider{log: c.Log, sdk: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(about), sdktrace.WithIDGenerator(ids{c.Random}),
	)}, nil
}

// Tracers is the provider as OpenTelemetry's packages take it; nil if nothing is traced.
func (p *Provider) Tracers() trace.TracerProvider {
	if p == nil {
		return nil
	}
	return p.sdk
}

// Close sends what is left, for at most 3 s.
func (p *Provider) Close(ctx context.Context) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := p.sdk.Shutdown(ctx); err != nil {
		p.log.Warn("the last traces were not sent", "error", err)
	}
}
