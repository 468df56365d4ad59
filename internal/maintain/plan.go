package maintain

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/table"
)

// deletionsMax bounds the deletions of one cleanup, so that it fits into a turn; the next one finds the rest. At some
// 100 requests a second this is about two minutes.
const deletionsMax = 10_000

// requestsAtOnce is how many shards are planned, manifests shortened, or objects deleted side by side: enough that a table of
// a thousand shards is planned in seconds on a store that answers in 20 ms, and few beside what merges send.
const requestsAtOnce = 16

// Deps are what maintenance works with. Store is the scope of the execution. Log and Progress may be nil.
type Deps struct {
	Store  objstore.Store
	Clock  clock.Clock
	Random random.Source
	Log    hclog.Logger
	// Progress is called after every piece of completed work, one call after the other.
	Progress func()
}

func (d Deps) table() table.Deps { return table.Deps{Clock: d.Clock, Random: d.Random, Log: d.Log} }

func (d Deps) progress() {
	if d.Progress != nil {
		d.Progress()
	}
}

// Kind is the kind of an object that is deleted.
type Kind string

// The kinds.
const (
	Manifest   Kind = "manifest"
	Generation Kind = "generation"
	Base       Kind = "base"
	LogFile    Kind = "log"
)

// Deletion is an object that may be deleted, and why.
type Deletion struct {
	Kind  Kind   `json:"kind"`
	Key   string `json:"key"`
	Bytes int64  `json:"bytes"` // 0 for log files: it is not looked up
	Why   string `json:"why"`
}

// Trim is a shard whose manifest need not list its merged generations any more.
type Trim struct {
	Shard       string `json:"shard"`
	Through     uint64 `json:"through"` // the merged mark
	Generations int    `json:"generations"`
	Bytes       int64  `json:"bytes"`
}

// Skipped is a shard that is left alone, and why.
type Skipped struct {
	Shard string `json:"shard"`
	Code  string `json:"code"` // stable
	Why   string `json:"why"`
}

// Plan is what a cleanup would do.
type Plan struct {
	Table, TableID string
	Version        int64 // of the log, that the plan was made from
	Trims          []Trim
	Deletions      []Deletion
	Skipped        []Skipped
	More           bool // there is more to delete than one cleanup may
}

// PlanCleanup says what Cleanup would do now, changing nothing.
func PlanCleanup(ctx context.Context, d Deps, name string) (Plan, error) {
	p, t, err := plan(ctx, d, name)
	if err != nil {
		return Plan{}, err
	}
	keys, err := dryCleanLog(ctx, d, t)
	if err != nil {
		return Plan{}, err
	}
	for _, key := range keys {
		p.Deletions = append(p.Deletions, Deletion{Kind: LogFile, Key: key, Why: "older than the log retention and below a checkpoint that stays"})
	}
	return p, nil
}

// plan makes the plan except for the log, whose files are chosen while it is cleaned.
func plan(ctx context.Context, d Deps, name string) (Plan, *table.Table, error) {
	// Base files are listed before the snapshot is loaded, so that what was committed meanwhile is seen as live.
	files, date, err := baseFiles(ctx, d.Store, name)
	if err != nil {
		return Plan{}, nil, err
	}
	t, err := table.Load(ctx, d.Store, name, d.table())
	if err != nil {
		return Plan{}, nil, err
	}
	if err := t.Mergeable(); err != nil {
		return Plan{}, nil, err
	}
	p := Plan{Table: name, TableID: t.ID, Version: t.Snapshot.Version}
	p.Deletions, err = sweep(t, files, date)
	if err != nil {
		return Plan{}, nil, err
	}
	if err := planShards(ctx, d, t, &p); err != nil {
		return Plan{}, nil, err
	}
	if len(p.Deletions) > deletionsMax {
		p.Deletions, p.More = p.Deletions[:deletionsMax], true
	}
	return p, t, nil
}

// dryCleanLog returns the keys that cleaning the log would delete, by cleaning it on a store that only takes notes.
func dryCleanLog(ctx context.Context, d Deps, t *table.Table) ([]string, error) {
	notes := &noteStore{Store: d.Store}
	log := deltalog.Open(notes, t.Name, deltalog.Options{Clock: d.Clock, Random: d.Random, Log: hclog.NewNullLogger()})
	if _, err := log.CleanLog(ctx, t.Snapshot); err != nil {
		return nil, err
	}
	return notes.deleted, nil
}

// noteStore writes deletions down instead of carrying them out.
type noteStore struct {
	objstore.Store
	deleted []string
}

func (s *noteStore) Delete(_ context.Context, key string) error {
	s.deleted = append(s.deleted, key)
	return nil
}
