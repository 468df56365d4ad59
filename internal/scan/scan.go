package scan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/compaction"
	"tidemark/internal/deltalog"
	"tidemark/internal/demand"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

const (
	// roundsMax bounds how often one scan starts over because the table was dropped and created again under its eyes.
	roundsMax = 3
	// snapshotBytesMax bounds the snapshots that are kept so that an idle table's log costs one listing.
	snapshotBytesMax = 128 << 20
)

// Deps are what a Scanner reads with.
type Deps struct {
	Store  objstore.Store
	Clock  clock.Clock
	Random random.Source
	Log    hclog.Logger
}

// Scanner scans tables and remembers, within bounds, what the last scan of each saw. It is safe for concurrent use; two
// scans of one table at once are a waste.
type Scanner struct {
	deps   Deps
	counts counts

	tables *table.Cache

	mu       sync.Mutex // guards what follows
	memories map[string]*memory
}

// memory is what a scan leaves for the next one of the same table.
type memory struct {
	tableID string
	version int64 // of the log
	shards  map[string]facts
}

// NewScanner makes a scanner that remembers nothing yet.
func NewScanner(deps Deps) *Scanner {
	return &Scanner{deps: deps, counts: counts{byResult: map[demand.Result]float64{}}, memories: map[string]*memory{},
		tables: table.NewCache(deps.Store, table.Deps{Clock: deps.Clock, Random: deps.Random, Log: deps.Log}, snapshotBytesMax)}
}

// Report is what storage shows of a table.
type Report struct {
	Table  *table.Table // with the snapshot that the merged marks are from
	Shards []Shard      // in the order of their names
	Broken []error      // shards whose manifest could not be read; the others are right all the same
	// Compaction is what joining small base files would amount to.
	Compaction compaction.Backlog
	AtMS       int64 // when the scan began
	Changed    bool  // the log or a shard is not as the last scan saw it, or there was no last scan
}

// Shard is what storage shows of one shard.
type Shard struct {
	Name      string
	Event     demand.Event // both marks, and the seal times that matter
	Trimmed   uint64       // newest generation that its manifest does not list any more
	Retired   bool         // nobody can write it any more
	Regressed bool         // its merged mark went back
}

// Over says that the shard is retired and everything it sealed is merged: its demand may go.
func (s Shard) Over() bool { return s.Retired && s.Event.Merged.Gen >= s.Event.Sealed.Gen }

// Seen tells the merged mark that was known of a shard before the scan, 0 if none. It must be of the table's current
// life: a mark of a former id says nothing.
type Seen func(tableID, shard string) uint64

// Scan reads a table. A table that does not exist, or is dropped, fails with table.ErrUnknownTable or table.ErrDropped.
//
//  1. List and read the newest manifests of the table's life that the last scan saw, or that the log names.
//  2. Load or refresh the snapshot, so that its marks are at least those that any trim was based on. Another life: again.
//  3. Where a mark is lower than it can be, read the log twice more, uncached.
func (s *Scanner) Scan(ctx context.Context, name string, seen Seen) (Report, error) {
	for range roundsMax {
		report, again, err := s.round(ctx, name, seen)
		if err != nil {
			s.Forget(name)
			return Report{}, fmt.Errorf("scanning table %s: %w", name, err)
		}
		if !again {
			return report, nil
		}
	}
	return Report{}, fmt.Errorf("scanning table %s: it was created again %d times meanwhile; the next scan tries again", name, roundsMax)
}

func (s *Scanner) round(ctx context.Context, name string, seen Seen) (report Report, again bool, err error) {
	report.AtMS = s.deps.Clock.Now().UnixMilli()
	last := s.memory(name)
	if last.tableID == "" {
		t, err := s.tables.Load(ctx, name)
		if err != nil {
			return Report{}, false, err
		}
		last.tableID = t.ID
	}
	manifests, broken, err := s.manifests(ctx, name, last)
	if err != nil {
		return Report{}, false, err
	}
	t, err := s.tables.Load(ctx, name)
	if err != nil {
		return Report{}, false, err
	}
	if t.ID != last.tableID {
		s.Forget(name)
		return Report{}, true, nil
	}
	report.Table, report.Broken = t, broken
	suspects := map[string]uint64{}
	for _, m := range manifests {
		shard, err := s.shard(ctx, t, m)
		if err != nil {
			report.Broken = append(report.Broken, err)
			continue
		}
		if least := max(m.facts.trimmed.Gen, seen(t.ID, m.name)); least > shard.Event.Merged.Gen {
			suspects[m.name] = least
		}
		report.Shards = append(report.Shards, shard)
	}
	if len(suspects) > 0 {
		if err := s.confirm(ctx, &report, suspects); err != nil {
			return Report{}, false, err
		}
	}
	if report.Compaction, err = compactable(t, report.Shards); err != nil {
		return Report{}, false, err
	}
	report.Changed = s.remember(name, t, manifests, last)
	return report, false, nil
}

// named is one shard's facts.
type named struct {
	name  string
	facts facts
}

// manifests reads the newest manifest of every shard, those that changed since the last scan only.
func (s *Scanner) manifests(ctx context.Context, name string, last *memory) (all []named, broken []error, err error) {
	known := make(map[string]*shardmanifest.Manifest, len(last.shards))
	for shard, f := range last.shards {
		if f.thin {
			continue
		}
		known[shard] = &shardmanifest.Manifest{TableID: last.tableID, Shard: shard, Version: f.version}
	}
	for m, err := range shardmanifest.ListLatest(ctx, s.deps.Store, name, last.tableID, known) {
		var one *shardmanifest.ShardError
		switch {
		case errors.As(err, &one):
			broken = append(broken, err)
		case err != nil:
			return nil, nil, err
		case m == known[m.Shard]:
			all = append(all, named{m.Shard, last.shards[m.Shard]})
		default:
			all = append(all, named{m.Shard, factsOf(m)})
		}
	}
	return all, broken, nil
}

// shard joins a manifest and the log. A mark that the manifest does not know yet is of an execution that was faster
// than the listing, and the manifest is read again. A mark below what was trimmed has lost its bytes and rows; that does
// not matter, for it is never published.
func (s *Scanner) shard(ctx context.Context, t *table.Table, m named) (Shard, error) {
	number, f := t.Mark(m.name), m.facts
	merged, ok := f.mark(number)
	if !ok && number > f.trimmed.Gen {
		newest, err := shardmanifest.Open(s.deps.Store, t.Name, t.ID, m.name,
			shardmanifest.Options{Clock: s.deps.Clock, Random: s.deps.Random}).Latest(ctx)
		if err != nil {
			return Shard{}, &shardmanifest.ShardError{Shard: m.name, Err: err}
		}
		f = factsOf(newest)
		if merged, ok = f.mark(number); !ok && number > f.sealed.Gen {
			return Shard{}, &shardmanifest.ShardError{Shard: m.name, Err: fmt.Errorf(
				"shard %s of table %s: the table has merged generation %d, and the shard has sealed only %d; its manifests were replaced",
				m.name, t.Name, number, f.sealed.Gen)}
		}
	}
	if !ok {
		merged = demand.Mark{Gen: number}
	}
	return Shard{
		Name: m.name, Trimmed: f.trimmed.Gen, Retired: f.retired,
		Event: f.event(t.ID, t.Incarnation, merged, s.deps.Clock.Now().UnixMilli()),
	}, nil
}

// compactable counts what joining small files would amount to. Buckets with something pending are their merges' business.
func compactable(t *table.Table, shards []Shard) (compaction.Backlog, error) {
	properties, err := deltalog.ParseProperties(t.Snapshot.Metadata.Configuration)
	if err != nil {
		return compaction.Backlog{}, err
	}
	pending := map[string]bool{}
	for _, shard := range shards {
		pending[shard.Name] = shard.Event.Sealed.Gen > shard.Event.Merged.Gen
	}
	return compaction.Count(compaction.Plan(t.Snapshot.Files(), compaction.Options{
		Target: properties.TargetFileSize, Upsert: t.Mode == table.Upsert,
		Busy: func(bucket string) bool { return pending[bucket] },
	})), nil
}

// confirm decides about marks that are lower than they can be (suspects holds what they must be at least): two uncached
// snapshots in a row, loaded after the manifests and the marks were read, must both show it. Anything else was a race,
// and the next scan sees it right; until then the shard is left out.
func (s *Scanner) confirm(ctx context.Context, report *Report, suspects map[string]uint64) error {
	regressed := maps.Clone(suspects)
	for range 2 {
		snapshot, err := report.Table.Log.Snapshot(ctx)
		if err != nil {
			return err
		}
		for name, least := range regressed {
			if snapshot.Metadata.ID != report.Table.ID || uint64(max(snapshot.Mark(name), 0)) >= least {
				delete(regressed, name)
			}
		}
	}
	kept := report.Shards[:0]
	for _, shard := range report.Shards {
		_, suspect := suspects[shard.Name]
		if _, shard.Regressed = regressed[shard.Name]; shard.Regressed || !suspect {
			kept = append(kept, shard)
		}
	}
	report.Shards = kept
	return nil
}

// memory is what the last scan of the table left.
func (s *Scanner) memory(name string) *memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.memories[name]; m != nil {
		return m
	}
	return &memory{version: -1}
}

// remember keeps what the next scan can use and says whether anything is different from the last one.
func (s *Scanner) remember(name string, t *table.Table, manifests []named, last *memory) (changed bool) {
	next := &memory{tableID: t.ID, version: t.Snapshot.Version, shards: make(map[string]facts, len(manifests))}
	changed = last.version != next.version || len(last.shards) != len(manifests)
	for _, m := range manifests {
		next.shards[m.name] = m.facts.remembered(t.Mark(m.name))
		if last.shards[m.name].version != m.facts.version {
			changed = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memories[name] = next
	return changed
}

// Forget drops what is remembered of a table, because it is somebody else's now or gone.
func (s *Scanner) Forget(name string) {
	s.tables.Forget(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.memories, name)
}
