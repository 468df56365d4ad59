// Package api is the HTTP face of a Tidemark process: /healthz, /readyz, /metrics and /status, the same on masters,
// executors and the all-in-one development server.
//
// /healthz answers 200 while the process can do its job or expects to again without help, 503 once only a person can
// help. /readyz answers 200 while it would take work now. Both say why in one line when they do not. /status is one
// JSON document about this process's own state. /metrics is the Prometheus exposition of one registry. Nothing here
// changes anything, and no secret is part of any answer.
package api
