// Package api is the HTTP face of a Tidemark process: /healthz, /readyz, /metrics and /status, the same on masters,
// executors and the all-in-one development server, and on masters /api/v1: everything that people see and do.
//
//	server.go    the listener, its limits, the four paths of every process
//	access.go    who may do what: tokens.go, roles, same-origin protection; tls.go
//	v1.go        the routes of /api/v1: reads.go, actions.go, events.go; described by openapi.json
//	problem.go   errors as application/problem+json with stable codes
//
// It guarantees:
//   - /healthz answers 200 while the process can do its job or expects to again without help, 503 once only a person can
//     help. /readyz answers 200 while it would take work now. Both say why in one line when they do not, and need no token.
//   - Bad input is answered by a status of 400 to 499 that says what is wrong, never by a 500, and costs bounded memory and
//     time. Unknown fields and parameters are refused.
//   - Without tokens a listener beyond loopback is refused, and one on loopback answers only to loopback's names, so that
//     no web page can reach it by a name of its own. With tokens, a viewer can change nothing.
//   - No token is part of any answer, log line or metric.
//   - Every path of openapi.json has a handler and the other way round, and answers keep to its schemas.
//
// It relies on internal/observe for what it shows and on internal/control for what it does, and decides nothing itself.
package api
