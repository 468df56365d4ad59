package shardmanifest

import (
	"slices"
	"sort"
)

const (
	// FormatVersion is the format this package writes, and the only one it reads: an unknown version is refused.
	FormatVersion = 1

	// GenerationsMax bounds a manifest, and with it every seal's put, to about a mebibyte. At the bound sealing is
	// refused as backlogged.
	GenerationsMax = 4096

	// TrimDue and TrimCritical are the numbers of merged but untrimmed generations at which cleanup of a shard is
	// due, and at which it is critical. The distance to GenerationsMax is what writers may still seal meanwhile.
	TrimDue      = 1024
	TrimCritical = 2048

	// claimsMax claims are remembered. A seal that is settled later than that many claims after its own, and after
	// its generation was trimmed, is in doubt.
	claimsMax = 16

	// versionsKept versions stay above the boundary, so that a reader between its list and its get rarely has to
	// list again. It has no bearing on correctness.
	versionsKept = 16

	// trimsMax trims are remembered until their files may be deleted, an hour later. One more than that replaces
	// the youngest, which delays its files only.
	trimsMax = 8

	// keyBoundMax is the length to which a generation's key range is cut, in bytes: a manifest may hold 8,192 bounds.
	keyBoundMax = 32
)

// State says whether a shard can be written.
type State string

const (
	// StateOpen: a writer has the shard, or had it and did not close it.
	StateOpen State = "open"
	// StateClosed: its last writer closed it. Any claim opens it again.
	StateClosed State = "closed"
	// StateRetired: nobody can claim it any more. It is final.
	StateRetired State = "retired"
)

// Manifest is one version of a shard's manifest. Manifests are immutable: every event makes a new one.
type Manifest struct {
	Format  int    `json:"format"`
	Nonce   string `json:"nonce"` // drawn for each version, so that equal bytes have one author
	TableID string `json:"table_id"`
	Shard   string `json:"shard"`
	Version uint64 `json:"version"` // from 1, contiguous
	// Boundary: versions at or below it may be deleted, and a put at or below it counts for nothing.
	Boundary uint64 `json:"boundary"`
	State    State  `json:"state"`

	Epoch       uint64  `json:"epoch"` // of the writer that holds the shard; from 1, raised by each claim
	WriterID    string  `json:"writer_id"`
	WriterLabel string  `json:"writer_label,omitempty"` // for people
	Claims      []Claim `json:"claims"`                 // the last 16, oldest first; the last is the holder's

	SealedThrough uint64 `json:"sealed_through"` // newest generation; 0 is none
	Bytes         int64  `json:"bytes"`          // of all generations ever sealed
	Rows          int64  `json:"rows"`           // of all generations ever sealed

	TrimmedThrough uint64 `json:"trimmed_through"` // newest generation no longer listed; 0 is none
	TrimmedBytes   int64  `json:"trimmed_bytes"`   // cumulative at TrimmedThrough
	TrimmedRows    int64  `json:"trimmed_rows"`    // cumulative at TrimmedThrough
	TrimmedEpoch   uint64 `json:"trimmed_epoch"`   // of generation TrimmedThrough
	Trims          []Trim `json:"trims,omitempty"` // whose files may not all be deleted yet, oldest first

	Generations []Generation `json:"generations"` // TrimmedThrough+1 to SealedThrough, ascending
}

// Claim is one writer's taking of the shard.
type Claim struct {
	Epoch         uint64 `json:"epoch"`
	WriterID      string `json:"writer_id"`
	Label         string `json:"label,omitempty"`
	SealedThrough uint64 `json:"sealed_through"` // when it claimed; later generations up to the next claim's are its own
	ClaimedMS     int64  `json:"claimed_ms"`     // by the writer's clock, for people
}

// Trim is one removal of merged generations from the manifest. The store's date of the object that holds Version is
// the time of the trim.
type Trim struct {
	Through uint64 `json:"through"`
	Version uint64 `json:"version"`
}

// Generation is one sealed file. An empty one has no rows, no bytes, no path and no file.
type Generation struct {
	Number   uint64 `json:"n"`
	Path     string `json:"path,omitempty"` // relative to the table
	Bytes    int64  `json:"bytes"`
	Rows     int64  `json:"rows"`
	CumBytes int64  `json:"cum_bytes"` // of this and every earlier generation of the shard
	CumRows  int64  `json:"cum_rows"`
	Epoch    uint64 `json:"epoch"`
	SealedMS int64  `json:"sealed_ms"` // by the writer's clock
	Schema   string `json:"schema,omitempty"`
	// KeyMin and KeyMax bound the row keys (upsert only), cut to 32 bytes: KeyMin ≤ every key, and every key ≤ KeyMax
	// unless KeyMax is empty, which means unbounded. They may be wider than the keys.
	KeyMin []byte `json:"key_min,omitempty"`
	KeyMax []byte `json:"key_max,omitempty"`
	XXH3   string `json:"xxh3,omitempty"` // of the file, 16 hexadecimal digits
	// ETag is the store's version of the file, if the store vouches for its bytes: then a merge may have the store copy
	// them unread, provided that this is still the version.
	ETag string `json:"etag,omitempty"`
}

// Pending returns the listed generations above a merged mark, ascending. The slice is shared: do not change it.
func (m *Manifest) Pending(merged uint64) []Generation {
	i := sort.Search(len(m.Generations), func(i int) bool { return m.Generations[i].Number > merged })
	return m.Generations[i:]
}

// CumAt returns the cumulative bytes and rows of the shard up to a generation, and the generation's epoch. It is false
// for a generation that is not sealed yet, or trimmed so long ago that only its successors are known. Generation 0,
// before the first, has none of anything.
func (m *Manifest) CumAt(generation uint64) (bytes, rows int64, epoch uint64, ok bool) {
	if generation == 0 {
		return 0, 0, 0, true
	}
	if generation == m.TrimmedThrough {
		return m.TrimmedBytes, m.TrimmedRows, m.TrimmedEpoch, true
	}
	if g, ok := m.Generation(generation); ok {
		return g.CumBytes, g.CumRows, g.Epoch, true
	}
	return 0, 0, 0, false
}

// Generation returns a listed generation by number.
func (m *Manifest) Generation(number uint64) (Generation, bool) {
	if number <= m.TrimmedThrough || number > m.SealedThrough {
		return Generation{}, false
	}
	return m.Generations[number-m.TrimmedThrough-1], true
}

// Mergeable is the number of listed generations at or below a merged mark: what a trim would remove.
func (m *Manifest) Mergeable(merged uint64) int {
	return len(m.Generations) - len(m.Pending(merged))
}

// Holder is the claim of the writer that holds the shard, or held it last.
func (m *Manifest) Holder() Claim {
	return m.Claims[len(m.Claims)-1]
}

// claim finds the listed claim of an epoch.
func (m *Manifest) claim(epoch uint64) (Claim, bool) {
	i := slices.IndexFunc(m.Claims, func(c Claim) bool { return c.Epoch == epoch })
	if i < 0 {
		return Claim{}, false
	}
	return m.Claims[i], true
}

// fences reports whether this manifest, being the newest, fences a writer.
func (m *Manifest) fences(epoch uint64, writerID string) bool {
	return m.Epoch != epoch || m.WriterID != writerID
}

// CutKeyMin shortens a row key to a lower bound that fits a manifest.
func CutKeyMin(key []byte) []byte {
	return slices.Clone(key[:min(len(key), keyBoundMax)])
}

// CutKeyMax shortens a row key to an upper bound that fits a manifest: the cut is raised to the next prefix. It is
// empty, which means unbounded, when there is none.
func CutKeyMax(key []byte) []byte {
	if len(key) <= keyBoundMax {
		return slices.Clone(key)
	}
	cut := slices.Clone(key[:keyBoundMax])
	for i := len(cut) - 1; i >= 0; i-- {
		if cut[i] < 0xff {
			cut[i]++
			return cut[:i+1]
		}
	}
	return nil
}
