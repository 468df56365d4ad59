// Package tracing follows a generation from its seal to the publish of its merged mark, as one OpenTelemetry trace.
//
// The processes that a generation passes through agree on its trace without telling each other: its id, and that of the
// trace's root span, are hashes of table id, shard and number, which no two generations share. Nothing is stored or sent
// for it, so it can neither hold up nor change what they do.
//
// The writer sends a span "seal" under that root. The executor that merges the generation sends the root itself,
// "generation", from the seal time to the publish, and below it the spans of its execution: claim, plan, merge, commit,
// release and publish. An execution that merges many generations sends them for the GenerationsMax that were sealed first,
// linked to each other. A merge that commits nothing sends nothing: what fails is in the failures.
//
// Spans are made after the fact from moments that were noted; off, which is the default, nothing is noted and nothing is
// dialled. Traces are lossy by design: a collector that is away or slow costs spans, never time.
package tracing
