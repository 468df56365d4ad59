package process

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/random"
	"tidemark/internal/tracing"
)

// TraceFlags say where traces go.
type TraceFlags struct {
	OTLPEndpoint string `name:"otlp-endpoint" help:"Send an OpenTelemetry trace of every generation, from its seal to its merged mark, to the OTLP/HTTP collector at this URL, such as http://collector:4318. Without it there are none. OpenTelemetry's own OTEL_… variables hold besides." env:"OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL"`
}

// Traces starts what sends traces; nil if none are asked for.
func (f TraceFlags) Traces(ctx context.Context, service, instance string, r random.Source, log hclog.Logger) (*tracing.Provider, error) {
	return tracing.Start(ctx, tracing.Config{
		Endpoint: f.OTLPEndpoint, Service: service, Instance: instance, Version: Version, Random: r, Log: log.Named("traces"),
	})
}
