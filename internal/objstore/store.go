package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Store is one root on object storage. Keys are slash-separated paths below the root, without a leading slash.
// All methods are safe for concurrent use and honour their context.
//
// Reads and Create retry transient faults themselves. PutIfAbsent and ReplaceIfMatch make exactly one attempt: the
// caller resolves ambiguity, usually with [PutOnce] or [Replace].
type Store interface {
	// Get reads a whole object. A missing key is ErrNotFound.
	Get(ctx context.Context, key string) ([]byte, Info, error)
	// GetRange reads up to length bytes from offset; it returns fewer only at the end of the object, and none
	// behind it.
	GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error)
	// Head reads an object's description. A missing key is ErrNotFound.
	Head(ctx context.Context, key string) (Info, error)
	// List returns one page of keys under a prefix in byte order.
	List(ctx context.Context, req ListRequest) (Page, error)
	// PutIfAbsent creates a small object unless the key exists (then Refused with ErrExists).
	PutIfAbsent(ctx context.Context, key string, body []byte) Result
	// ReplaceIfMatch overwrites an object whose ETag is still etag (else Refused with ErrMismatch; a missing
	// object is also Refused with ErrMismatch).
	ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) Result
	// Delete removes an object; a missing key is not an error.
	Delete(ctx context.Context, key string) error
	// Create starts a streamed upload of a data file under a fresh name. Nothing is visible before Complete. The
	// context governs the whole upload: when it ends, writes fail and Complete is refused.
	Create(ctx context.Context, key string) (Upload, error)
	// URL is the root as the user wrote it, without credentials, for messages.
	URL() string
}

// Info describes one object.
type Info struct {
	Key      string
	Size     int64     // bytes
	ETag     string    // opaque version, for ReplaceIfMatch
	Modified time.Time // by the store's clock; only ever compared with the store's own Date
	// Vouched: an object of this ETag has the bytes that were uploaded, for the store checks them when they arrive and
	// while it keeps them. Only Head and the completion of an upload say it.
	Vouched bool
}

// ListRequest selects one page of a listing.
type ListRequest struct {
	Prefix string
	After  string // only keys greater than this; empty starts at the beginning
	Max    int    // most entries in the page, 1 to 1000; 0 means 1000
	// Delimited folds everything below the next slash after Prefix into one entry of Page.Dirs. An entry counts as
	// a key of its own for After and Max.
	Delimited bool
}

// Page is one page of a listing. With More, continue with After set to Next.
type Page struct {
	Objects []Info
	Dirs    []string // with a trailing slash; only when Delimited
	More    bool
	Next    string
	Date    time.Time // the store's clock when it answered; zero if it did not say, and then nothing may be aged by it
}

// Upload is a streamed upload in progress. It is not safe for concurrent use. Exactly one of Complete and Abort ends
// it; Abort after a successful Complete does nothing, so it can be deferred. A Complete that failed may have made the
// object visible all the same.
type Upload interface {
	io.Writer
	// Complete makes the object visible.
	Complete(ctx context.Context) (Info, error)
	// Abort throws the upload away.
	Abort(ctx context.Context) error
}

// Outcome is how a conditional mutation ended. The zero value is no outcome, so a forgotten one is noticed.
type Outcome int

const (
	// Applied: the store said yes.
	Applied Outcome = iota + 1
	// Refused: the store said no, or no request was ever sent. It has not happened and will not happen.
	Refused
	// Unknown: a request went out and nobody knows. It may have happened, or may still happen.
	Unknown
)

func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Refused:
		return "refused"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("outcome(%d)", int(o))
}

// Result is the end of one conditional mutation. Err is nil exactly when Outcome is Applied; it says why otherwise.
type Result struct {
	Outcome Outcome
	Info    Info // of the new object, when Applied
	Err     error
}

var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("not found")
	// ErrExists: a put-if-absent met an existing object.
	ErrExists = errors.New("already exists")
	// ErrMismatch: a replace-if-match met another version, or none.
	ErrMismatch = errors.New("changed since it was read")
	// ErrFenced: the scope of the request's owner has been fenced; no request was sent.
	ErrFenced = errors.New("fenced")
)
