package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/partition"
	"tidemark/internal/random"
	"tidemark/internal/schema"
)

// Deps are what working on tables needs besides the store. Log may be nil.
type Deps struct {
	Clock  clock.Clock
	Random random.Source
	Log    hclog.Logger
}

func (d Deps) open(s objstore.Store, name string) *deltalog.Log {
	return deltalog.Open(s, name, deltalog.Options{Clock: d.Clock, Random: d.Random, Log: d.Log})
}

// Table is a table at one version. It is immutable.
type Table struct {
	Name string
	ID   string // of this life of the name
	Settings
	Schema   *schema.Schema
	Snapshot *deltalog.Snapshot
	Log      *deltalog.Log
}

// Mergeable returns nil if Tidemark may change the table's data: it implements all the table requires, and nobody else
// has changed the data of an upsert table. The errors are *deltalog.UnsupportedError and *deltalog.ForeignWriteError.
func (t *Table) Mergeable() error {
	return errors.Join(t.Snapshot.Foreign(), t.Snapshot.Writable(), partitionable(t.Name, t.Schema, t.Snapshot.Metadata.PartitionColumns))
}

// partitionable refuses partition columns of types that Tidemark does not write as text.
func partitionable(table string, s *schema.Schema, columns []string) error {
	if err := partition.Check(s, columns); err != nil {
		return &deltalog.UnsupportedError{Table: table, Name: "partition columns (" + strings.Join(columns, ", ") + ")", Why: err.Error()}
	}
	return nil
}

// Mark is the merged mark of a shard; 0 if nothing was ever merged.
func (t *Table) Mark(shard string) uint64 { return uint64(max(0, t.Snapshot.Mark(shard))) }

// At is the table at another version of its log, such as one that a commit has just made.
func (t *Table) At(s *deltalog.Snapshot) (*Table, error) { return view(t.Name, t.Log, s, t) }

// Load reads a table. The errors are ErrUnknownTable (as *UnknownTableError), ErrDropped, ErrNotAdopted, *SettingsError
// and what reading the log and the schema may give.
func Load(ctx context.Context, s objstore.Store, name string, d Deps) (*Table, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	log := d.open(s, name)
	snapshot, err := log.Snapshot(ctx)
	if errors.Is(err, deltalog.ErrNoTable) {
		return nil, unknown(ctx, s, name)
	}
	if err != nil {
		return nil, err
	}
	return view(name, log, snapshot, nil)
}

// view makes a table of a snapshot. An earlier view lends its schema if that has not changed.
func view(name string, log *deltalog.Log, snapshot *deltalog.Snapshot, earlier *Table) (*Table, error) {
	settings, err := ParseSettings(snapshot.Metadata)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	if settings.Dropped {
		return nil, fmt.Errorf("table %s: %w", name, ErrDropped)
	}
	t := &Table{Name: name, ID: snapshot.Metadata.ID, Settings: settings, Snapshot: snapshot, Log: log}
	if earlier != nil && earlier.Snapshot.Metadata.SchemaString == snapshot.Metadata.SchemaString {
		t.Schema = earlier.Schema
		return t, nil
	}
	if t.Schema, err = schema.Parse(snapshot.Metadata.SchemaString); err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	return t, nil
}

// closeMax is how many names an UnknownTableError offers, and closeDistance how far they may be.
const (
	closeMax      = 3
	closeDistance = 2
)

// unknown names the table that is not there, and those beside it whose names are close.
func unknown(ctx context.Context, s objstore.Store, name string) error {
	e := &UnknownTableError{Name: name, Root: s.URL()}
	parent := name[:strings.LastIndexByte(name, '/')+1]
	page, err := s.List(ctx, objstore.ListRequest{Prefix: parent, Delimited: true})
	if err != nil {
		return e // the names are a courtesy
	}
	for _, dir := range page.Dirs {
		other := strings.TrimSuffix(dir, "/")
		if last := other[len(parent):]; hidden(last) || distance(last, name[len(parent):], closeDistance) > closeDistance {
			continue
		}
		if len(e.Close) < closeMax {
			if is, err := isTable(ctx, s, other); err == nil && is {
				e.Close = append(e.Close, other)
			}
		}
	}
	slices.Sort(e.Close)
	return e
}
