package table

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/partition"
	"tidemark/internal/random"
	"tidemark/internal/rowkey"
	"tidemark/internal/schema"
)

// planRounds bounds how often a create or drop begins again because others commit meanwhile.
const planRounds = 16

// CreateOptions define a new table.
type CreateOptions struct {
	Schema   *schema.Schema
	Mode     Mode     // Append if there is no key, else Upsert, unless set
	Key      []string // the key columns of an upsert table
	Sequence string   // of an upsert table: the column that decides between versions of a key, or ""
	Buckets  int      // of an upsert table: 1 to 4096, 0 is 8
	// PartitionBy are the columns that partition an append table, outermost first: each of its files holds the rows of
	// one value of each.
	PartitionBy []string
	// Properties are further table properties, such as delta.logRetentionDuration or tidemark.policy.max_wait.
	Properties map[string]string
}

// Create makes a new table, or begins the next life of a dropped one: a new id and the next incarnation in the same log.
func Create(ctx context.Context, s objstore.Store, name string, o CreateOptions, d Deps) (*Table, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	settings, err := o.settings(name)
	if err != nil {
		return nil, err
	}
	if err := checkOuter(ctx, s, name); err != nil {
		return nil, err
	}
	// In a folder that has been a table nothing else was ever created.
	again, err := isTable(ctx, s, name)
	if err != nil {
		return nil, err
	}
	if !again {
		if err := checkInner(ctx, s, name, d); err != nil {
			return nil, err
		}
	}
	t, err := createIn(ctx, d.open(s, name), settings, o, d)
	if err != nil || again {
		return t, err
	}
	// Two creates at once, one inside the other, may both have found nothing: whoever sees it now gives up.
	if err := errors.Join(checkOuter(ctx, s, name), checkInner(ctx, s, name, d)); err != nil {
		return nil, errors.Join(err, Drop(ctx, s, name, d))
	}
	return t, nil
}

func createIn(ctx context.Context, log *deltalog.Log, settings Settings, o CreateOptions, d Deps) (*Table, error) {
	for range planRounds {
		old, err := log.Snapshot(ctx)
		switch {
		case errors.Is(err, deltalog.ErrNoTable):
			settings.Incarnation = 1
			m := o.metadata(settings, newID(d.Random), d)
			p := deltalog.NewProtocol(settings.Mode == Upsert, o.Schema.HasTimestampNTZ())
			snapshot, err := log.Create(ctx, p, m, createInfo(settings))
			if errors.Is(err, deltalog.ErrExists) {
				continue // somebody was faster; look at what is there now
			}
			if err != nil {
				return nil, err
			}
			return view(log.Table(), log, snapshot, nil)
		case err != nil:
			return nil, err
		}
		res, err := recreate(ctx, log, old, settings, o, d)
		var again *deltalog.PlanAgainError
		if errors.As(err, &again) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return view(log.Table(), log, res.Snapshot, nil)
	}
	return nil, fmt.Errorf("table %s: not created: others keep committing to its log; try again", log.Table())
}

// recreate commits the next life of a dropped table.
func recreate(ctx context.Context, log *deltalog.Log, old *deltalog.Snapshot, settings Settings, o CreateOptions, d Deps) (deltalog.CommitResult, error) {
	was, err := ParseSettings(old.Metadata)
	if err != nil || !was.Dropped {
		return deltalog.CommitResult{}, fmt.Errorf("table %s: %w", log.Table(), ErrTableExists)
	}
	settings.Incarnation = was.Incarnation + 1
	m := o.metadata(settings, newID(d.Random), d)
	p := deltalog.NewProtocol(settings.Mode == Upsert, o.Schema.HasTimestampNTZ() || old.Protocol.Has(deltalog.FeatureTimestampNTZ))
	if old.Protocol.Has(deltalog.FeatureTypeWidening) {
		p = p.With(deltalog.FeatureTypeWidening) // older versions still need it
	}
	in := deltalog.Intent{TableID: old.Metadata.ID, Read: old, Metadata: &m, Info: createInfo(settings), Whole: true}
	if !p.Equal(old.Protocol) {
		in.Protocol = &p
	}
	return log.Commit(ctx, in)
}

func createInfo(s Settings) deltalog.CommitInfo {
	return deltalog.CommitInfo{Operation: "CREATE TABLE", Parameters: map[string]string{
		"mode": string(s.Mode), "key": strings.Join(s.Key, ","), "incarnation": strconv.FormatInt(s.Incarnation, 10),
	}}
}

func (o CreateOptions) metadata(s Settings, id string, d Deps) deltalog.Metadata {
	c := maps.Clone(o.Properties)
	if c == nil {
		c = map[string]string{}
	}
	maps.Copy(c, s.properties(id))
	return deltalog.Metadata{
		ID: id, SchemaString: o.Schema.String(), PartitionColumns: o.PartitionBy, CreatedTime: d.Clock.Now().UnixMilli(), Configuration: c,
	}
}

// settings checks the definition of a table.
func (o CreateOptions) settings(name string) (Settings, error) {
	fail := func(format string, args ...any) (Settings, error) {
		return Settings{}, &DefinitionError{name, fmt.Sprintf(format, args...)}
	}
	s := Settings{Mode: o.Mode, Key: o.Key, Sequence: o.Sequence, Buckets: o.Buckets}
	if s.Mode == "" {
		s.Mode = Append
		if len(o.Key) > 0 {
			s.Mode = Upsert
		}
	}
	if o.Schema == nil || len(o.Schema.Fields()) == 0 {
		return fail("it has no columns")
	}
	if err := errors.Join(checkColumns(name, o.Schema), checkFurther(name, o.Properties)); err != nil {
		return Settings{}, err
	}
	switch s.Mode {
	case Append:
		if len(o.Key) > 0 || o.Sequence != "" || o.Buckets != 0 {
			return fail("key, sequence and buckets are for upsert tables")
		}
		if err := partition.Check(o.Schema, o.PartitionBy); err != nil {
			return fail("%v", err)
		}
		return s, nil
	case Upsert:
	default:
		return fail("mode %q; want append or upsert", s.Mode)
	}
	if len(o.PartitionBy) > 0 {
		return fail("its files are divided by key; only an append table can be partitioned")
	}
	if s.Buckets == 0 {
		s.Buckets = bucketsDefault
	}
	if s.Buckets < 1 || s.Buckets > bucketsMax {
		return fail("%d buckets; want 1 to %d", s.Buckets, bucketsMax)
	}
	return s, o.checkKey(name)
}

// checkColumns refuses columns whose names cannot be a table's.
func checkColumns(name string, columns *schema.Schema) error {
	if err := schema.CheckNames(columns.Arrow()); err != nil {
		return fmt.Errorf("table %s: %w", name, err)
	}
	for _, f := range columns.Fields() {
		if strings.EqualFold(f.Name, schema.OpColumn) {
			return &DefinitionError{name, fmt.Sprintf("the column name %s is kept for marking deletes in generations; rename it", f.Name)}
		}
	}
	return nil
}

// checkFurther refuses properties that are not anybody's to choose.
func checkFurther(name string, properties map[string]string) error {
	for property := range properties {
		if strings.HasPrefix(property, "tidemark.") && !strings.HasPrefix(property, deltalog.PropertyPolicy) && property != deltalog.PropertyState {
			return &DefinitionError{name, fmt.Sprintf("the property %s is set by the table's definition", property)}
		}
	}
	return nil
}

// sequenceKinds are the types whose order decides between two versions of a row.
var sequenceKinds = []schema.Kind{
	schema.Byte, schema.Short, schema.Integer, schema.Long, schema.Float, schema.Double, schema.Decimal,
	schema.Date, schema.Timestamp, schema.TimestampNTZ, schema.String,
}

func (o CreateOptions) checkKey(name string) error {
	fail := func(format string, args ...any) error {
		return &DefinitionError{name, fmt.Sprintf(format, args...)}
	}
	if len(o.Key) == 0 {
		return fail("an upsert table needs key columns")
	}
	for i, column := range o.Key {
		f, ok := o.Schema.Field(column)
		switch {
		case !ok:
			return fail("there is no column %q for its key; its columns are %s", column, strings.Join(o.Schema.Names(), ", "))
		case slices.Contains(o.Key[:i], column):
			return fail("the key names %s twice", column)
		case nested(f.Type.Kind):
			return fail("the key column %s is a %s; a key column holds one plain value", column, f.Type)
		}
	}
	if _, err := rowkey.NewEncoder(o.Schema.Arrow(), o.Key); err != nil {
		return fail("%v", err)
	}
	if o.Sequence == "" {
		return nil
	}
	f, ok := o.Schema.Field(o.Sequence)
	switch {
	case !ok:
		return fail("there is no column %q for its sequence; its columns are %s", o.Sequence, strings.Join(o.Schema.Names(), ", "))
	case slices.Contains(o.Key, o.Sequence):
		return fail("the sequence column %s is part of the key: all versions of a key would have the same", o.Sequence)
	case !slices.Contains(sequenceKinds, f.Type.Kind):
		return fail("the sequence column %s is a %s, which does not say what is newer; use a number, date, timestamp or string", o.Sequence, f.Type)
	}
	return nil
}

func nested(k schema.Kind) bool { return k == schema.Struct || k == schema.Array || k == schema.Map }

// newID draws a table id in the form that Delta asks for.
func newID(src random.Source) string {
	b := []byte(random.ID(src))
	b[12] = '4'             // version 4: random
	b[16] = "89ab"[b[16]%4] // variant 1
	return fmt.Sprintf("%s-%s-%s-%s-%s", b[:8], b[8:12], b[12:16], b[16:20], b[20:])
}
