package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"tidemark/internal/observe"
)

// parseQuery reads the parameters; what is not one is an error rather than left out.
func parseQuery(r *http.Request) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &observe.QueryError{Field: "query", Reason: "not encoded as a query"}
	}
	return query, nil
}

// ListQuery reads the parameters of a list.
func ListQuery(query url.Values) (observe.Query, error) {
	q := observe.Query{Search: query.Get("search"), Sort: query.Get("sort"), Cursor: query.Get("cursor")}
	switch query.Get("desc") {
	case "", "false":
	case "true":
		q.Desc = true
	default:
		return q, &observe.QueryError{Field: "desc", Reason: "want true or false"}
	}
	n, err := number(query, "limit")
	q.Limit = int(n)
	if err == nil && query.Get("limit") != "" && (n < 1 || n > observe.LimitMax) {
		err = &observe.QueryError{Field: "limit", Reason: fmt.Sprintf("must be from 1 to %d", observe.LimitMax)}
	}
	return q, err
}

// number reads a whole number that is not negative; 0 if it is not given.
func number(query url.Values, name string) (int64, error) {
	text := query.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, &observe.QueryError{Field: name, Reason: "not a whole number"}
	}
	return n, nil
}

// BodyError says what is wrong with a request's body.
type BodyError struct{ Reason string }

// Code is the error's stable code.
func (e *BodyError) Code() string { return "bad_body" }

func (e *BodyError) Error() string { return "the body of the request: " + e.Reason }

// readBody reads one JSON object into a struct; unknown fields are refused. No body at all is an empty object.
func readBody(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &tooLarge):
		return &BodyError{fmt.Sprintf("longer than %d bytes", tooLarge.Limit)}
	case err != nil:
		return &BodyError{err.Error()}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &BodyError{"its Content-Type must be application/json"}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return &BodyError{"there is more than one JSON value in it"}
	}
	return nil
}
