package objstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Code names the reason of an [Error]. Codes are stable: they appear in metrics, outcomes and the API, and classes of
// failure are decided by them, never by message text.
type Code string

// The codes of this package's errors.
const (
	CodeNotFound    Code = "not_found"   // no such key
	CodeExists      Code = "exists"      // a put-if-absent met an object
	CodeMismatch    Code = "mismatch"    // a replace-if-match met another version, or none
	CodeFenced      Code = "fenced"      // the owner's scope is closed
	CodeCancelled   Code = "cancelled"   // the caller's context ended
	CodeDenied      Code = "denied"      // permissions or credentials; a person has to act
	CodeBadRoot     Code = "bad_root"    // the root is missing or unusable; a person has to act
	CodeInvalid     Code = "invalid"     // the request itself is wrong: a malformed key or range
	CodeNoSpace     Code = "no_space"    // the disk or the quota is full
	CodeThrottled   Code = "throttled"   // the store asks for fewer requests
	CodeUnavailable Code = "unavailable" // the store failed, or its answer was lost
	CodeIO          Code = "io"          // any other failure
)

// The operations, as they appear in errors, metrics and fault scripts.
const (
	OpGet            = "get"
	OpGetRange       = "get-range"
	OpHead           = "head"
	OpList           = "list"
	OpPutIfAbsent    = "put-if-absent"
	OpReplaceIfMatch = "replace-if-match"
	OpDelete         = "delete"
	OpCreate         = "create"
	OpWrite          = "write"
	OpCopyRange      = "copy-range"
	OpComplete       = "complete"
	OpAbort          = "abort"
	opOpen           = "open"
)

// Error is the error of every operation of this package: which operation on which key failed, and why.
type Error struct {
	Op   string // one of the Op constants, or "open" with the root as Key
	Key  string
	Code Code
	Err  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %q: %v", e.Op, e.Key, e.Err)
}

// Unwrap returns the cause, so that errors.Is finds the sentinels of this package.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the outermost [Error] in err's chain, or CodeIO if there is none.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeIO
}

// fail wraps a cause that has a sentinel or is a context's end; other causes get the code given.
func fail(op, key string, code Code, err error) *Error {
	switch {
	case errors.Is(err, ErrFenced):
		code = CodeFenced
	case errors.Is(err, ErrNotFound):
		code = CodeNotFound
	case errors.Is(err, ErrExists):
		code = CodeExists
	case errors.Is(err, ErrMismatch):
		code = CodeMismatch
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		code = CodeCancelled
	}
	return &Error{Op: op, Key: key, Code: code, Err: err}
}

func refused(op, key string, code Code, err error) Result {
	return Result{Outcome: Refused, Err: fail(op, key, code, err)}
}

func unknown(op, key string, code Code, err error) Result {
	return Result{Outcome: Unknown, Err: fail(op, key, code, err)}
}

// keyBytesMax is S3's limit on the length of a key.
const keyBytesMax = 1024

// checkKey refuses keys that some store cannot hold, so that all stores accept the same ones.
func checkKey(op, key string) error {
	if key == "" {
		return fail(op, key, CodeInvalid, errors.New("the key is empty"))
	}
	return checkPath(op, key, false)
}

func checkPath(op, path string, prefix bool) error {
	if len(path) > keyBytesMax {
		return fail(op, path, CodeInvalid, fmt.Errorf("longer than %d bytes", keyBytesMax))
	}
	if !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl) {
		return fail(op, path, CodeInvalid, errors.New("contains control characters or is not UTF-8")) // S3 lists keys in XML
	}
	for rest, more := path, true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		last := !more
		if prefix && last {
			break // a prefix may end anywhere
		}
		if segment == "" || segment == "." || segment == ".." {
			return fail(op, path, CodeInvalid, fmt.Errorf("has the segment %q; keys are plain paths below the root", segment))
		}
	}
	if strings.HasPrefix(path, tempDir) {
		return fail(op, path, CodeInvalid, fmt.Errorf("names that begin with %s are reserved for unfinished files", tempDir))
	}
	return nil
}

func checkRange(key string, offset, length int64) error {
	if offset < 0 || length < 0 {
		return fail(OpGetRange, key, CodeInvalid, fmt.Errorf("offset %d and length %d must not be negative", offset, length))
	}
	return nil
}

// pageMax is the largest page of a listing, which is also S3's.
const pageMax = 1000

func checkList(req *ListRequest) error {
	if req.Max < 0 || req.Max > pageMax {
		return fail(OpList, req.Prefix, CodeInvalid, fmt.Errorf("a page of %d entries is outside 1 to %d", req.Max, pageMax))
	}
	if req.Max == 0 {
		req.Max = pageMax
	}
	return checkPath(OpList, req.Prefix, true)
}
