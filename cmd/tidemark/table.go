package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"tidemark/internal/ingest"
	"tidemark/internal/maintain"
	"tidemark/internal/process"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

type tableCommand struct {
	Create tableCreate `cmd:"" help:"Create a table from the columns of a file or of a Delta schema."`
	Adopt  tableAdopt  `cmd:"" help:"Make an append table of a Delta table that another engine made."`
	List   tableList   `cmd:"" help:"List the tables under the root."`
	Show   tableShow   `cmd:"" help:"Show a table, and how far each of its shards is merged."`
	Drop   tableDrop   `cmd:"" help:"Drop a table."`
}

type tableCreate struct {
	placeFlags
	Name   string `arg:"" help:"Path of the table under the root, such as flights or prod/events."`
	Like   string `help:"Take the columns of this file (Parquet, CSV, JSON, Arrow IPC)." type:"path" placeholder:"FILE" xor:"columns" required:""`
	Schema string `help:"Take the columns of this file, which holds a schema as Delta writes it (JSON)." type:"path" placeholder:"FILE" xor:"columns" required:""`

	Key           []string          `help:"Columns that identify a row. A table with a key is an upsert table: the newest version of each key stays." placeholder:"COLUMN,…"`
	Buckets       int               `help:"Number of buckets of an upsert table, which is the most writers it can have: 1 to 4096; 8 if not given." placeholder:"N"`
	Sequence      string            `help:"Column of an upsert table that says which version is newer; the order of arrival if not given." placeholder:"COLUMN"`
	PartitionBy   []string          `help:"Columns that partition an append table, outermost first: strings, whole numbers, decimals, booleans, dates or timestamps. Each file holds the rows of one value." placeholder:"COLUMN,…"`
	SanitizeNames bool              `help:"Replace characters that a column name cannot have by underscores."`
	Property      map[string]string `help:"Further table properties, such as delta.logRetentionDuration or tidemark.policy.max_wait." placeholder:"NAME=VALUE"`
}

func (c *tableCreate) Run(ctx context.Context, streams process.Streams) error {
	if len(c.Key) == 0 && (c.Buckets != 0 || c.Sequence != "") {
		return process.Usagef("--buckets and --sequence are for upsert tables: give --key too")
	}
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	columns, err := c.columns(ctx)
	if err != nil {
		return err
	}
	t, err := table.Create(ctx, p.store, c.Name, table.CreateOptions{
		Schema: columns, Key: c.Key, Buckets: c.Buckets, Sequence: c.Sequence, PartitionBy: c.PartitionBy, Properties: c.Property,
	}, p.tableDeps())
	if err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "created %s table %s with %d columns\n", t.Mode, t.Name, len(t.Schema.Arrow().Fields()))
	return nil
}

// columns is the schema of the new table.
func (c *tableCreate) columns(ctx context.Context) (*schema.Schema, error) {
	if c.Schema != "" {
		body, err := os.ReadFile(c.Schema)
		if err != nil {
			return nil, fmt.Errorf("cannot read the schema: %w", err)
		}
		parsed, err := schema.Parse(string(body))
		if err != nil {
			return nil, fmt.Errorf("schema file %s: %w", c.Schema, err)
		}
		return parsed, nil
	}
	source, err := ingest.Open(ctx, ingest.Options{Sanitize: c.SanitizeNames}, ingest.File(c.Like))
	if err != nil {
		return nil, err
	}
	columns, err := schema.FromArrow(source.Schema())
	return columns, errors.Join(err, source.Close())
}

type tableAdopt struct {
	placeFlags
	Name     string            `arg:"" help:"Path of the Delta table under the root."`
	Property map[string]string `help:"Further table properties, such as tidemark.policy.max_wait." placeholder:"NAME=VALUE"`
}

// Help says more than one line about the command.
func (c *tableAdopt) Help() string {
	return `One commit adds Tidemark's settings to the table's properties. Its files, columns and id stay as they are, and other engines
go on reading and writing it; Tidemark is one more writer. It leaves compaction to them (policy compact_files=0), because
two engines that compact one table can double its rows. A table that needs what Tidemark does not implement (column
mapping, deletion vectors, identity columns, ...) is refused by the name of what it needs.`
}

func (c *tableAdopt) Run(ctx context.Context, streams process.Streams) error {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	t, err := table.Adopt(ctx, p.store, c.Name, c.Property, p.tableDeps())
	if err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "adopted %s as an append table with %s and %s\n", t.Name, countedText(len(t.Schema.Fields()), "column"), countedText(t.Snapshot.FileCount(), "file"))
	if t.Policy["compact_files"] == "0" {
		fmt.Fprintf(streams.Out, "Tidemark does not compact it; if no other engine does: tidemark policy set %s compact_files=32\n", t.Name)
	}
	return nil
}

type tableList struct {
	placeFlags
	listFlags
}

// listedTable is one line of `table list`.
type listedTable struct {
	Table string     `json:"table"`
	Mode  table.Mode `json:"mode,omitempty"`
	Files int        `json:"files"`
	Bytes int64      `json:"bytes"`
	Key   []string   `json:"key,omitempty"`
	State string     `json:"state"` // active, dropped, not adopted, or what is wrong
}

func (c *tableList) Run(ctx context.Context, streams process.Streams) error {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	names, err := table.List(ctx, p.store)
	if err != nil {
		return err
	}
	rows := make([]listedTable, 0, len(names))
	for _, name := range names {
		row, err := p.listed(ctx, name)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return printList(streams.Out, c.listFlags, []string{"TABLE", "MODE", "KEY", "FILES", "SIZE", "STATE"}, rows, func(r listedTable) []string {
		return []string{r.Table, string(r.Mode), listText(r.Key), countText(r.Files), bytesText(r.Bytes), r.State}
	})
}

// listed reads what the list says about one table. A table that cannot be used is listed with the reason; only the end
// of the command is an error.
func (p *place) listed(ctx context.Context, name string) (listedTable, error) {
	row := listedTable{Table: name, State: "active"}
	t, err := table.Load(ctx, p.store, name, p.tableDeps())
	switch {
	case ctx.Err() != nil:
		return row, context.Cause(ctx)
	case errors.Is(err, table.ErrDropped):
		row.State = "dropped"
	case errors.Is(err, table.ErrNotAdopted):
		row.State = "not adopted"
	case err != nil:
		row.State = err.Error()
	default:
		row.Mode, row.Key = t.Mode, t.Key
		if t.State != "" {
			row.State = t.State
		}
		for add := range t.Snapshot.Files() {
			row.Files++
			row.Bytes += add.Size
		}
	}
	return row, nil
}

type tableShow struct {
	placeFlags
	listFlags
	Name string `arg:"" help:"The table."`
}

// shownTable is what `table show` says.
type shownTable struct {
	Table       string       `json:"table"`
	ID          string       `json:"id"`
	Incarnation int64        `json:"incarnation"`
	Mode        table.Mode   `json:"mode"`
	Key         []string     `json:"key,omitempty"`
	Sequence    string       `json:"sequence,omitempty"`
	Buckets     int          `json:"buckets,omitempty"`
	PartitionBy []string     `json:"partition_by,omitempty"`
	Version     int64        `json:"version"` // of the Delta log
	Files       int          `json:"files"`
	Bytes       int64        `json:"bytes"`
	Columns     []column     `json:"columns"`
	Shards      []shownShard `json:"shards"`
}

type column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// shownShard is where one shard stands, as storage has it.
type shownShard struct {
	Shard        string              `json:"shard"`
	State        shardmanifest.State `json:"state"`
	Epoch        uint64              `json:"epoch"`
	Writer       string              `json:"writer,omitempty"`
	Sealed       uint64              `json:"sealed"`
	Merged       uint64              `json:"merged"`
	PendingBytes int64               `json:"pending_bytes"`
	Rows         int64               `json:"rows"` // sealed since the beginning
}

func (c *tableShow) Run(ctx context.Context, streams process.Streams) error {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	t, shards, err := p.shards(ctx, c.Name)
	if err != nil {
		return err
	}
	shown := shownTable{
		Table: t.Name, ID: t.ID, Incarnation: t.Incarnation, Mode: t.Mode, Key: t.Key, Sequence: t.Sequence,
		PartitionBy: t.Snapshot.Metadata.PartitionColumns, Version: t.Snapshot.Version, Shards: shards,
	}
	if t.Mode == table.Upsert {
		shown.Buckets = t.Buckets
	}
	for add := range t.Snapshot.Files() {
		shown.Files++
		shown.Bytes += add.Size
	}
	for _, f := range t.Schema.Arrow().Fields() {
		shown.Columns = append(shown.Columns, column{Name: f.Name, Type: f.Type.String()})
	}
	if c.JSON {
		return printJSON(streams.Out, shown)
	}
	fmt.Fprintf(streams.Out, "%s: %s table, version %d, %s, %s\n", shown.Table, shown.Mode, shown.Version, countedText(shown.Files, "file"), bytesText(shown.Bytes))
	if t.Mode == table.Upsert {
		fmt.Fprintf(streams.Out, "key %s, sequence %s, %d buckets\n", listText(t.Key), orDash(t.Sequence), t.Buckets)
	}
	if len(shown.PartitionBy) > 0 {
		fmt.Fprintf(streams.Out, "partitioned by %s\n", listText(shown.PartitionBy))
	}
	fmt.Fprintln(streams.Out, "\ncolumns")
	for _, col := range shown.Columns {
		fmt.Fprintf(streams.Out, "  %s  %s\n", col.Name, col.Type)
	}
	fmt.Fprintln(streams.Out)
	return printList(streams.Out, c.listFlags, []string{"SHARD", "STATE", "EPOCH", "SEALED", "MERGED", "PENDING", "ROWS"}, shards, func(s shownShard) []string {
		return []string{s.Shard, string(s.State), countText(s.Epoch), countText(s.Sealed), countText(s.Merged), bytesText(s.PendingBytes), countText(s.Rows)}
	})
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// shards reads a table and what to show of each of its shards.
func (p *place) shards(ctx context.Context, name string) (*table.Table, []shownShard, error) {
	t, states, err := table.Shards(ctx, p.store, name, p.tableDeps())
	shards := make([]shownShard, 0, len(states))
	for _, state := range states {
		m := state.Manifest
		s := shownShard{Shard: m.Shard, State: m.State, Epoch: m.Epoch, Writer: m.WriterLabel, Sealed: m.SealedThrough, Merged: state.Merged, Rows: m.Rows}
		for _, g := range m.Pending(s.Merged) {
			s.PendingBytes += g.Bytes
		}
		shards = append(shards, s)
	}
	return t, shards, err
}

type tableDrop struct {
	placeFlags
	Name   string `arg:"" help:"The table."`
	Yes    bool   `help:"Confirm: the table's rows are gone for readers at once, and what is sealed and not merged is lost." required:"" xor:"sure"`
	DryRun bool   `help:"Say what would be done, and do nothing." required:"" xor:"sure"`
	Purge  bool   `help:"Also delete the objects of which the table's retention has passed since it was dropped. Repeat it later for the rest."`
}

// Help says more than one line about the command.
func (c *tableDrop) Help() string {
	return `Readers see an empty, dropped table at once. Its files stay until its retention (delta.deletedFileRetentionDuration, 7 days
unless set) has passed, so that readers of older versions can end; nobody deletes them by themselves. Run the same command
with --purge then; dropping what is dropped already does no harm. The table's log stays: a table that is created under
the same name goes on with it.`
}

func (c *tableDrop) Run(ctx context.Context, streams process.Streams) error {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	if c.DryRun {
		return c.dryRun(ctx, p, streams)
	}
	if err := table.Drop(ctx, p.store, c.Name, p.tableDeps()); err != nil {
		return err
	}
	fmt.Fprintf(streams.Out, "dropped table %s\n", c.Name)
	if !c.Purge {
		return nil
	}
	for more := true; more; {
		report, err := maintain.Purge(ctx, p.maintainDeps(), c.Name)
		if err != nil {
			return err
		}
		objects := 0
		for _, n := range report.ObjectsDeleted {
			objects += n
		}
		fmt.Fprintf(streams.Out, "deleted %s objects, %s\n", countText(objects), bytesText(report.BytesDeleted))
		more = report.More
	}
	return nil
}

func (c *tableDrop) dryRun(ctx context.Context, p *place, streams process.Streams) error {
	t, err := table.Load(ctx, p.store, c.Name, p.tableDeps())
	switch {
	case errors.Is(err, table.ErrDropped):
		fmt.Fprintf(streams.Out, "table %s is dropped already\n", c.Name)
	case err != nil:
		return err
	default:
		fmt.Fprintf(streams.Out, "dry run, nothing was changed: table %s with %s, %s, would be dropped\n", c.Name, countedText(t.Snapshot.FileCount(), "file"), bytesText(t.Snapshot.Bytes()))
		return nil // nothing of it could be purged yet
	}
	if !c.Purge {
		return nil
	}
	plan, err := maintain.PlanPurge(ctx, p.maintainDeps(), c.Name)
	if err != nil {
		return err
	}
	for _, d := range plan.Deletions {
		fmt.Fprintf(streams.Out, "%s  %s  %s\n", d.Kind, d.Key, d.Why)
	}
	fmt.Fprintf(streams.Out, "dry run, nothing was changed: %s objects would be deleted\n", countText(len(plan.Deletions)))
	return nil
}
