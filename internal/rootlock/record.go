package rootlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tidemark/internal/objstore"
)

const (
	// RootKey is the lock: who may serve the root.
	RootKey = "_tidemark/root.json"
	// format is what this program writes. A record of a later one is refused: it may mean anything.
	format = 1
	// LeaseMin and LeaseMax bound a lease. Shorter ones would be lost to any hiccup of a store, and longer ones would
	// keep a root closed for a quarter of an hour after a crash.
	LeaseMin, LeaseMax = 2 * time.Second, 600 * time.Second
	// LeaseDefault is the lease of a standalone server unless it is told otherwise.
	LeaseDefault = 30 * time.Second
)

// Kind is what holds a root.
type Kind string

// The kinds of records.
const (
	Cluster    Kind = "cluster"    // masters that share an etcd; without a lease
	Standalone Kind = "standalone" // one server; with a lease, except on a local root
	Released   Kind = "released"   // nobody: it was given back, or unlocked by a person
)

// Record is root.json. Every record that is written has a nonce of its own, so equal bytes are one author's one write.
type Record struct {
	Format  int      `json:"format"`
	Nonce   string   `json:"nonce"`
	Kind    Kind     `json:"kind"`
	Cluster string   `json:"cluster"`            // its name
	ID      string   `json:"id"`                 // of the lock; never used twice
	Holder  string   `json:"holder,omitempty"`   // host and process, for people
	LeaseMS int64    `json:"lease_ms,omitempty"` // 0 is none
	Etcd    []string `json:"etcd,omitempty"`     // endpoints of a standalone server, for commands
}

// Lease is how long the holder's silence must last, two thirds over, before it may be replaced; 0 if never.
func (r Record) Lease() time.Duration { return time.Duration(r.LeaseMS) * time.Millisecond }

// Encode writes a record.
func (r Record) Encode() []byte {
	r.Format = format
	body, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return append(body, '\n')
}

// describe names the holder for people.
func (r Record) describe() string {
	switch {
	case r.Kind == Released:
		return "nobody"
	case r.Kind == Standalone && r.Holder != "":
		return fmt.Sprintf("standalone server %s (id %s)", r.Holder, r.ID)
	case r.Kind == Standalone:
		return fmt.Sprintf("a standalone server (id %s)", r.ID)
	}
	return fmt.Sprintf("cluster %q (id %s)", r.Cluster, r.ID)
}

// ErrRecord: root.json is not a record that this program may act on.
var ErrRecord = errors.New("unusable " + RootKey)

// Parse reads a record and refuses what this program does not understand completely.
func Parse(body []byte) (Record, error) {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return Record{}, fmt.Errorf("%w: it is damaged: %w", ErrRecord, err)
	}
	if head.Format > format {
		return Record{}, fmt.Errorf("%w: it has format %d, and this program knows format %d: use the newer version of Tidemark that wrote it",
			ErrRecord, head.Format, format)
	}
	var r Record
	if err := json.Unmarshal(body, &r); err != nil {
		return Record{}, fmt.Errorf("%w: it is damaged: %w", ErrRecord, err)
	}
	if r.Kind == "" {
		r.Kind = Cluster // as the first ones were written
	}
	switch {
	case r.Format < 1 || r.ID == "":
		return Record{}, fmt.Errorf("%w: it has no format or no id", ErrRecord)
	case strings.ContainsAny(r.ID, "/."):
		return Record{}, fmt.Errorf("%w: its id %q is not one", ErrRecord, r.ID)
	case r.Kind != Cluster && r.Kind != Standalone && r.Kind != Released:
		return Record{}, fmt.Errorf("%w: it is of kind %q, which this program does not know", ErrRecord, r.Kind)
	case r.LeaseMS != 0 && (r.Kind != Standalone || r.LeaseMS < LeaseMin.Milliseconds() || r.LeaseMS > LeaseMax.Milliseconds()):
		return Record{}, fmt.Errorf("%w: it has a lease of %d ms, and only a standalone server may have one, of %v to %v",
			ErrRecord, r.LeaseMS, LeaseMin, LeaseMax)
	}
	return r, nil
}

// Read reads root.json and its version; nil if there is none.
func Read(ctx context.Context, s objstore.Store) (*Record, string, error) {
	body, info, err := s.Get(ctx, RootKey)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading %s of root %s: %w", RootKey, s.URL(), err)
	}
	r, err := Parse(body)
	if err != nil {
		return nil, "", fmt.Errorf("root %s: %w", s.URL(), err)
	}
	return &r, info.ETag, nil
}

// HeldError says who holds a root that somebody else wanted.
type HeldError struct {
	Root   string
	Record Record
	Reason string // why that one keeps it
}

// Code is the error's stable code.
func (e *HeldError) Code() string { return "root_held" }

func (e *HeldError) Error() string {
	if e.Record.Kind == Released {
		return fmt.Sprintf("root %s is not held any more, %s; start it again if it should claim the root again", e.Root, e.Reason)
	}
	return fmt.Sprintf("root %s is held by %s, %s; if it is stopped for good, run `%s`",
		e.Root, e.Record.describe(), e.Reason, unlockCommand(e.Root, e.Record.ID))
}

// unlockCommand is the exact command that takes a root from whoever holds it.
func unlockCommand(root, id string) string {
	return fmt.Sprintf("tidemark root unlock --root %s --id %s", root, id)
}

// Signs of life are fresh objects, so that giving one is a plain put-if-absent.

// BeatPrefix is what the keys of a lock's signs of life begin with.
func BeatPrefix(id string) string { return leasePrefix(id) + "beat-" }

// BeatKey is the key of one sign of life. Keys are in the order of their numbers.
func BeatKey(id string, n uint64) string { return fmt.Sprintf("%s%020d.json", BeatPrefix(id), n) }

func leasePrefix(id string) string { return "_tidemark/lease/" + id + "/" }

// claimKey is the claim on a lock: somebody has seen it silent and is about to replace it.
func claimKey(id string) string { return leasePrefix(id) + "superseded.json" }

// Beats are the numbers of a lock's signs of life, in order.
func Beats(ctx context.Context, s objstore.Store, id string) ([]uint64, error) {
	var beats []uint64
	for info, err := range objstore.ListAll(ctx, s, BeatPrefix(id)) {
		if err != nil {
			return nil, fmt.Errorf("looking for signs of life of lock %s: %w", id, err)
		}
		text := strings.TrimSuffix(strings.TrimPrefix(info.Key, BeatPrefix(id)), ".json")
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			beats = append(beats, n)
		}
	}
	return beats, nil
}
