package observe

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tidemark/internal/objstore"
	"tidemark/internal/table"
)

// Detail is what only a table's log knows.
type Detail struct {
	Version     int64             `json:"version"` // newest of the log
	Mode        string            `json:"mode"`
	Key         []string          `json:"key"`
	Sequence    string            `json:"sequence"`
	Buckets     int               `json:"buckets"`
	PartitionBy []string          `json:"partition_by"` // of an append table: the columns that divide it
	State       string            `json:"state"`
	Files       int               `json:"files"`
	Bytes       int64             `json:"bytes"`
	Rows        int64             `json:"rows"` // of the files whose statistics say
	Columns     []Column          `json:"columns"`
	Properties  map[string]string `json:"properties"`
}

// Column is one column of a table.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// Commit is one version of a table's log.
type Commit struct {
	Version      int64             `json:"version"`
	TimestampMS  int64             `json:"timestamp_ms"`
	Operation    string            `json:"operation"`
	Engine       string            `json:"engine"`
	Execution    string            `json:"execution"` // empty: not Tidemark's
	Generations  int64             `json:"generations"`
	Rows         int64             `json:"rows"` // read from generations
	FilesAdded   int               `json:"files_added"`
	FilesRemoved int               `json:"files_removed"`
	BytesAdded   int64             `json:"bytes_added"`
	Marks        int               `json:"marks"` // merged marks that it raised
	Parameters   map[string]string `json:"parameters"`
}

// commitsMax bounds a page of commits, and commitTables for how many tables commits are kept: 64 × 100 of them are
// about two megabytes. A page costs one read of an object for each commit that is not kept.
const (
	commitsDefault = 15
	commitsMax     = 100
	commitTables   = 64
	// lookFor is how old a table on a page may be, and looksMax for how many one is kept.
	lookFor  = 2 * time.Second
	looksMax = 64
)

// commitCache keeps the commits that were shown last. Commits never change while their table's id does not.
type commitCache struct {
	mu     sync.Mutex // guards tables
	tables map[string]map[int64]Commit
}

// Detail reads a table's log, as far as it is not known already. Its errors are those of table.Load.
func (o *Observer) Detail(ctx context.Context, name string) (Detail, error) {
	t, err := o.load(ctx, name)
	if err != nil {
		return Detail{}, err
	}
	d := Detail{
		Version: t.Snapshot.Version, Mode: string(t.Mode), Key: slices.Clone(t.Key), Sequence: t.Sequence, Buckets: t.Buckets, State: t.State,
		PartitionBy: append([]string{}, t.Snapshot.Metadata.PartitionColumns...),
		Columns:     []Column{}, Properties: maps.Clone(t.Snapshot.Metadata.Configuration),
	}
	if d.Key == nil {
		d.Key = []string{}
	}
	if d.Properties == nil {
		d.Properties = map[string]string{}
	}
	if d.State == "" {
		d.State = "active"
	}
	for add := range t.Snapshot.Files() {
		rows, _ := add.Rows()
		d.Files, d.Bytes, d.Rows = d.Files+1, d.Bytes+add.Size, d.Rows+rows
	}
	for _, f := range t.Schema.Arrow().Fields() {
		d.Columns = append(d.Columns, Column{Name: f.Name, Type: f.Type.String()})
	}
	return d, nil
}

// load returns a table that was read within the last moments, or reads it.
func (o *Observer) load(ctx context.Context, name string) (*table.Table, error) {
	if err := table.CheckName(name); err != nil {
		return nil, err
	}
	if t := o.looks.get(name, o.mono()); t != nil {
		return t, nil
	}
	t, err := o.cache.Load(ctx, name)
	if err == nil {
		o.looks.put(name, t, o.mono())
	}
	return t, err
}

// looks keeps the tables that were looked at last for lookFor, so that many people on one page cost one listing.
type looks struct {
	mu     sync.Mutex // guards tables
	tables map[string]look
}

type look struct {
	table *table.Table
	at    time.Duration // monotonic
}

func (l *looks) get(name string, now time.Duration) *table.Table {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found, ok := l.tables[name]; ok && now-found.at < lookFor {
		return found.table
	}
	return nil
}

func (l *looks) put(name string, t *table.Table, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tables == nil || len(l.tables) >= looksMax {
		l.tables = map[string]look{}
	}
	l.tables[name] = look{t, now}
}

// Commits is the history of a table, the newest first, below a version (0 or less: all). more says that there is more
// below; it may turn out to be cleaned up already.
func (o *Observer) Commits(ctx context.Context, name string, below int64, limit int) (commits []Commit, more bool, err error) {
	switch {
	case limit == 0:
		limit = commitsDefault
	case limit < 1 || limit > commitsMax:
		return nil, false, &QueryError{"limit", "must be from 1 to 100"}
	}
	t, err := o.load(ctx, name)
	if err != nil {
		return nil, false, err
	}
	top := t.Snapshot.Version
	if below > 0 {
		top = min(top, below-1)
	}
	commits = []Commit{}
	for v := top; v >= 0 && len(commits) < limit; v-- {
		c, ok := o.commits.get(t.ID, v)
		if !ok {
			c, err = o.readCommit(ctx, t, v)
			if errors.Is(err, objstore.ErrNotFound) {
				return commits, false, nil // cleaned up, and so is what is below
			}
			if err != nil {
				return nil, false, err
			}
			o.commits.put(t.ID, c)
		}
		commits = append(commits, c)
	}
	return commits, len(commits) == limit && commits[limit-1].Version > 0, nil
}

func (o *Observer) readCommit(ctx context.Context, t *table.Table, version int64) (Commit, error) {
	c, err := t.Log.At(ctx, version)
	if err != nil {
		return Commit{}, err
	}
	row := Commit{
		Version: c.Version, TimestampMS: c.Info.Timestamp, Operation: c.Info.Operation, Engine: c.Info.Engine, Execution: c.Info.ExecutionID,
		Generations: c.Info.Metrics["numGenerations"], Rows: c.Info.Metrics["numSourceRows"], FilesAdded: len(c.Adds), FilesRemoved: len(c.Removes),
		Parameters: maps.Clone(c.Info.Parameters),
	}
	if row.Parameters == nil {
		row.Parameters = map[string]string{}
	}
	for _, add := range c.Adds {
		row.BytesAdded += add.Size
	}
	for _, txn := range c.Txns {
		if strings.HasPrefix(txn.AppID, "tidemark/") {
			row.Marks++
		}
	}
	return row, nil
}

func (c *commitCache) get(tableID string, version int64) (Commit, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	row, ok := c.tables[tableID][version]
	return row, ok
}

// put keeps a commit. When there are too many, everything is forgotten: what is looked at comes back with the next look.
func (c *commitCache) put(tableID string, row Commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tables == nil || (c.tables[tableID] == nil && len(c.tables) >= commitTables) {
		c.tables = map[string]map[int64]Commit{}
	}
	if c.tables[tableID] == nil || len(c.tables[tableID]) >= commitsMax {
		c.tables[tableID] = map[int64]Commit{}
	}
	c.tables[tableID][row.Version] = row
}
