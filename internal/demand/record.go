package demand

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Format is the major version of a stored record that this version writes and understands.
const Format = 1

// Source says who reported an event.
type Source string

// The three sources of events.
const (
	Writer   Source = "writer"
	Executor Source = "executor"
	Scan     Source = "scan"
)

// Mark is a generation of a shard with everything up to it: the epoch of the writer that sealed it, and bytes and rows
// of all generations from the first.
type Mark struct {
	Gen   uint64 `json:"gen"`
	Epoch uint64 `json:"epoch"`
	Bytes int64  `json:"bytes"`
	Rows  int64  `json:"rows"`
}

// Compare orders marks by generation, then epoch. Two reports of one generation and epoch carry the same bytes and rows;
// should they ever not, the larger wins, so that even then the order of arrival decides nothing.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(cmp.Compare(m.Gen, o.Gen), cmp.Compare(m.Epoch, o.Epoch),
		cmp.Compare(m.Bytes, o.Bytes), cmp.Compare(m.Rows, o.Rows))
}

// SealTime is when a generation was sealed, by its writer's clock, in milliseconds since 1970. It is written as a pair.
type SealTime struct {
	Gen uint64
	MS  int64
}

// MarshalJSON writes [generation, milliseconds].
func (t SealTime) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%d,%d]", t.Gen, t.MS), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (t *SealTime) UnmarshalJSON(b []byte) error {
	inner, opened := bytes.CutPrefix(b, []byte("["))
	inner, closed := bytes.CutSuffix(inner, []byte("]"))
	gen, ms, two := bytes.Cut(inner, []byte(","))
	if !opened || !closed || !two {
		return fmt.Errorf("seal time %q: want a pair of generation and milliseconds", b)
	}
	var err error
	if t.Gen, err = strconv.ParseUint(string(bytes.TrimSpace(gen)), 10, 64); err != nil {
		return fmt.Errorf("seal time %q: generation: %w", b, err)
	}
	if t.MS, err = strconv.ParseInt(string(bytes.TrimSpace(ms)), 10, 64); err != nil {
		return fmt.Errorf("seal time %q: milliseconds: %w", b, err)
	}
	return nil
}

// Record is the demand of one shard: the join of everything published so far about one incarnation of its table. The
// zero Record is that of a shard about which nothing is known. Records share their slices and are never changed.
type Record struct {
	V           int    `json:"v"`
	TableID     string `json:"table_id"`
	Incarnation int64  `json:"incarnation"`
	// Sealed and Merged are nil while nobody has reported them.
	Sealed *Mark `json:"sealed,omitempty"`
	Merged *Mark `json:"merged,omitempty"`
	// SealedTimes are the seal times known of the lowest 63 generations above the merged mark and of the newest,
	// ascending by generation.
	SealedTimes []SealTime `json:"sealed_times,omitempty"`
	Source      Source     `json:"source"`     // of the last event that changed the record
	UpdatedMS   int64      `json:"updated_ms"` // by that source's clock
}

// ErrFormat: a stored record has another major version; it is neither understood nor overwritten.
var ErrFormat = errors.New("demand record of an unknown version")

// ErrDamaged: a stored record is not one. Deleting its key is safe: a scan writes it anew from storage.
var ErrDamaged = errors.New("damaged demand record")

// Parse reads a stored record. A record of another version is ErrFormat; anything else that is not a record is
// ErrDamaged.
func Parse(value []byte) (Record, error) {
	var r Record
	err := json.Unmarshal(value, &r)
	if err != nil {
		// Another version may well have another shape.
		var head struct {
			V int `json:"v"`
		}
		if json.Unmarshal(value, &head) != nil || head.V == Format {
			return Record{}, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		r.V = head.V
	}
	if r.V != Format {
		return Record{}, fmt.Errorf("%w: version %d, this program knows %d: use a newer one", ErrFormat, r.V, Format)
	}
	// What was stored by this package is normal already and comes back as it is.
	r.SealedTimes = keptTimes(normalTimes(r.SealedTimes), r.Merged)
	return r, nil
}

// Encode writes a record as it is stored: at most about 2 KiB.
func (r Record) Encode() []byte {
	r.V = Format
	b, err := json.Marshal(r)
	if err != nil {
		// Numbers, strings and pairs of numbers always encode.
		panic(fmt.Sprintf("demand: encoding %+v: %v", r, err))
	}
	return b
}

// Equal says whether two records state the same demand, whoever said it last.
func (r Record) Equal(o Record) bool {
	return r.TableID == o.TableID && r.Incarnation == o.Incarnation &&
		sameMark(r.Sealed, o.Sealed) && sameMark(r.Merged, o.Merged) && slices.Equal(r.SealedTimes, o.SealedTimes)
}

func sameMark(a, b *Mark) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// Pending is the number of generations that are sealed and not merged. It is unknown while either mark is absent.
func (r Record) Pending() (generations uint64, known bool) {
	if r.Sealed == nil || r.Merged == nil {
		return 0, false
	}
	if r.Merged.Gen >= r.Sealed.Gen {
		return 0, true
	}
	return r.Sealed.Gen - r.Merged.Gen, true
}

// PendingBytes is the size of the pending generations; 0 while it is unknown or nothing is pending.
func (r Record) PendingBytes() int64 {
	if n, _ := r.Pending(); n == 0 {
		return 0
	}
	return max(0, r.Sealed.Bytes-r.Merged.Bytes)
}

// PendingRows is the number of rows of the pending generations; 0 while it is unknown or nothing is pending.
func (r Record) PendingRows() int64 {
	if n, _ := r.Pending(); n == 0 {
		return 0
	}
	return max(0, r.Sealed.Rows-r.Merged.Rows)
}
