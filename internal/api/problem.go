package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"tidemark/internal/control"
)

// Problem is an error as application/problem+json (RFC 9457) says it, with a code that never changes its meaning.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// problem makes a Problem.
func problem(status int, code, detail string) Problem {
	return Problem{Type: "urn:tidemark:problem:" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

func (p Problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{}`) // strings and numbers always encode
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// statuses of codes. A code that is not here and is no failure of ours is a conflict with how things stand.
var statuses = map[string]int{
	"bad_query": http.StatusBadRequest, "bad_body": http.StatusBadRequest, "table_name": http.StatusBadRequest,
	"policy_invalid": http.StatusBadRequest, control.CodeReasonMissing: http.StatusBadRequest, control.CodeNothingToChange: http.StatusBadRequest,

	"unknown_table": http.StatusNotFound, control.CodeUnknownShard: http.StatusNotFound, control.CodeUnknownExecutor: http.StatusNotFound,
	control.CodeUnknownRun: http.StatusNotFound, control.CodeDropped: http.StatusNotFound, control.CodeNotAdopted: http.StatusNotFound,

	control.CodeNoCluster: http.StatusServiceUnavailable, control.CodeUnreachable: http.StatusServiceUnavailable,
	control.CodeNoSpace: http.StatusServiceUnavailable, control.CodeStore: http.StatusServiceUnavailable,
	control.CodeNotSeen: http.StatusServiceUnavailable, "timed_out": http.StatusServiceUnavailable,

	control.CodeInternal: http.StatusInternalServerError,
}

// ProblemOf says an error of a read or an action.
func ProblemOf(err error) Problem {
	code := control.CodeOf(err)
	if errors.Is(err, context.DeadlineExceeded) {
		code = "timed_out"
	}
	status, ok := statuses[code]
	if !ok {
		status = http.StatusConflict
	}
	return problem(status, code, strings.ReplaceAll(err.Error(), "\n", "; "))
}
