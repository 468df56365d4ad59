package table

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
)

func place(t testing.TB) (objstore.Store, Deps) {
	t.Helper()
	c := clock.System()
	return objstore.NewMemory(c), Deps{Clock: c, Random: random.Seeded(1)}
}

func columns(t testing.TB, fields ...arrow.Field) *schema.Schema {
	t.Helper()
	if len(fields) == 0 {
		fields = []arrow.Field{
			{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
			{Name: "at", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, Nullable: true},
			{Name: "list", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64), Nullable: true}, {Name: "flag", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		}
	}
	s, err := schema.FromArrow(arrow.NewSchema(fields, nil))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t testing.TB, s objstore.Store, d Deps, name string, o CreateOptions) *Table {
	t.Helper()
	if o.Schema == nil {
		o.Schema = columns(t)
	}
	tb, err := Create(t.Context(), s, name, o, d)
	if err != nil {
		t.Fatal(err)
	}
	return tb
}

func commit(t testing.TB, tb *Table, shard string, from, to int64, path string) *deltalog.Snapshot {
	t.Helper()
	in := mergeOf(tb, shard, from, to, path)
	res, err := tb.Log.Commit(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return res.Snapshot
}

func mergeOf(tb *Table, shard string, from, to int64, path string) deltalog.Intent {
	return deltalog.Intent{
		TableID: tb.ID, Read: tb.Snapshot, Marks: map[string]deltalog.MarkChange{deltalog.AppID(tb.ID, shard): {From: from, To: to}},
		Adds:   []deltalog.Add{{Path: path, Size: 1, DataChange: true, Tags: map[string]string{deltalog.TagBucket: shard}}},
		Upsert: tb.Mode == Upsert, Buckets: []string{shard}, Info: deltalog.CommitInfo{Operation: "MERGE", ExecutionID: path},
	}
}

func TestTableNames(t *testing.T) {
	for _, good := range []string{"flights", "prod/events", "a.b-c_d/E9", "0", strings.Repeat("a/", 7) + "a"} {
		if err := CheckName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "/a", "a/", "a//b", "_a", ".a", "a/_b", "a/.b", "..", "a/../b", "a b", "a%b", "a:b", "é", "a\\b", "a=b", "a*",
		strings.Repeat("a", 257), strings.Repeat("a/", 8) + "a"} {
		var refused *NameError
		if err := CheckName(bad); !errors.As(err, &refused) || refused.Code() != "table_name" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestCreateAndLoadGiveTheSameTable(t *testing.T) {
	s, d := place(t)
	made := create(t, s, d, "prod/orders", CreateOptions{
		Key: []string{"name", "id"}, Sequence: "at",
		Properties: map[string]string{"tidemark.policy.max_wait": "60s", "delta.logRetentionDuration": "interval 2 days", "tidemark.state": "paused"},
	})
	loaded, err := Load(t.Context(), s, "prod/orders", d)
	if err != nil {
		t.Fatal(err)
	}
	for _, tb := range []*Table{made, loaded} {
		if tb.Name != "prod/orders" || tb.Mode != Upsert || !slices.Equal(tb.Key, []string{"name", "id"}) || tb.Sequence != "at" || tb.Buckets != 8 ||
			tb.Incarnation != 1 || tb.State != "paused" || tb.ID == "" || !maps.Equal(tb.Policy, map[string]string{"max_wait": "60s"}) {
			t.Errorf("%+v", tb.Settings)
		}
		if !tb.Schema.Equal(columns(t)) || tb.Snapshot.Version != 0 || tb.Mergeable() != nil || !tb.Snapshot.Protocol.Has(deltalog.FeatureUpsert) {
			t.Errorf("schema %s, protocol %+v, %v", tb.Schema, tb.Snapshot.Protocol, tb.Mergeable())
		}
	}
	if made.ID != loaded.ID || len(made.ID) != 36 || strings.Count(made.ID, "-") != 4 {
		t.Errorf("ids %s and %s", made.ID, loaded.ID)
	}
	plain := create(t, s, d, "events", CreateOptions{})
	if plain.Mode != Append || plain.Key != nil || plain.Buckets != 0 || plain.Snapshot.Protocol.MinWriterVersion != 2 {
		t.Errorf("%+v, %+v", plain.Settings, plain.Snapshot.Protocol)
	}
	if _, err := Create(t.Context(), s, "events", CreateOptions{Schema: columns(t)}, d); !errors.Is(err, ErrTableExists) {
		t.Errorf("again: %v", err)
	}
}

func TestTimestampsWithoutZoneRaiseTheProtocol(t *testing.T) {
	s, d := place(t)
	tb := create(t, s, d, "t", CreateOptions{Schema: columns(t, arrow.Field{Name: "at", Type: &arrow.TimestampType{Unit: arrow.Microsecond}, Nullable: true})})
	if p := tb.Snapshot.Protocol; p.MinReaderVersion != 3 || p.MinWriterVersion != 7 || !p.Has(deltalog.FeatureTimestampNTZ) {
		t.Errorf("%+v", p)
	}
}

func TestBadDefinitionsAreRefused(t *testing.T) {
	s, d := place(t)
	for want, o := range map[string]CreateOptions{
		"it has no columns":                 {Schema: schema.New()},
		"there is no column \"nope\"":       {Key: []string{"nope"}},
		"names id twice":                    {Key: []string{"id", "id"}},
		"key column list is a array<long>":  {Key: []string{"list"}},
		"4097 buckets":                      {Key: []string{"id"}, Buckets: 4097},
		"-1 buckets":                        {Key: []string{"id"}, Buckets: -1},
		"no column \"later\" for its seq":   {Key: []string{"id"}, Sequence: "later"},
		"sequence column id is part of":     {Key: []string{"id"}, Sequence: "id"},
		"sequence column flag is a boolean": {Key: []string{"id"}, Sequence: "flag"},
		"are for upsert tables":             {Buckets: 3},
		"an upsert table needs key columns": {Mode: Upsert},
		"mode \"merge\"":                    {Mode: "merge"},
		"the column name _OP is kept":       {Schema: columns(t, arrow.Field{Name: "_OP", Type: arrow.PrimitiveTypes.Int64})},
		"column name \"a b\"":               {Schema: columns(t, arrow.Field{Name: "a b", Type: arrow.PrimitiveTypes.Int64})},
		"tidemark.mode is set by":           {Properties: map[string]string{"tidemark.mode": "append"}},
		"delta.logRetentionDuration":        {Properties: map[string]string{"delta.logRetentionDuration": "interval 1 minute"}},
		"delta.setTransactionRetention":     {Properties: map[string]string{"delta.setTransactionRetentionDuration": "interval 1 day"}},
	} {
		if o.Schema == nil {
			o.Schema = columns(t)
		}
		if _, err := Create(t.Context(), s, "t", o, d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if names, err := List(t.Context(), s); err != nil || len(names) > 0 {
		t.Errorf("something was written: %v, %v", names, err)
	}
}

func TestNoTableLiesInsideAnother(t *testing.T) {
	s, d := place(t)
	create(t, s, d, "a/b", CreateOptions{})
	for _, name := range []string{"a", "a/b/c", "a/b/c/d"} {
		var refused *DefinitionError
		if _, err := Create(t.Context(), s, name, CreateOptions{Schema: columns(t)}, d); !errors.As(err, &refused) || !strings.Contains(err.Error(), "a/b") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"a/bb", "a/c", "ab"} {
		create(t, s, d, name, CreateOptions{})
	}
	// A dropped table still has a folder that is swept, but what is left of one may lie inside.
	if err := Drop(t.Context(), s, "a/b", d); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), s, "a/b/c", CreateOptions{Schema: columns(t)}, d); err == nil {
		t.Error("a table was created inside a dropped one")
	}
	if err := errors.Join(Drop(t.Context(), s, "a/bb", d), Drop(t.Context(), s, "a/c", d)); err != nil {
		t.Fatal(err)
	}
	create(t, s, d, "a", CreateOptions{})
}

// midway runs something before the first put of a key.
type midway struct {
	objstore.Store
	key    string
	before func()
}

func (m *midway) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	if before := m.before; key == m.key && before != nil {
		m.before = nil
		before()
	}
	return m.Store.PutIfAbsent(ctx, key, body)
}

func TestTwoNestedCreatesAtOnceBothGiveUp(t *testing.T) {
	s, d := place(t)
	store := &midway{Store: s, key: "a/_delta_log/00000000000000000000.json", before: func() {
		create(t, s, d, "a/b", CreateOptions{})
	}}
	if _, err := Create(t.Context(), store, "a", CreateOptions{Schema: columns(t)}, d); err == nil || !strings.Contains(err.Error(), "a/b") {
		t.Errorf("%v", err)
	}
	if _, err := Load(t.Context(), s, "a", d); !errors.Is(err, ErrDropped) {
		t.Errorf("%v", err)
	}
}

func TestListFindsTablesAndNothingElse(t *testing.T) {
	s, d := place(t)
	for _, name := range []string{"flights", "prod/events", "prod/eu/orders", "z"} {
		create(t, s, d, name, CreateOptions{})
	}
	for _, key := range []string{"_tidemark/root.json", "flights/part-1.parquet", "flights/day=1/_delta_log/x", "flights/_shards/x/_delta_log/0.json",
		"prod/notes.txt", "empty/folder/file", ".hidden/_delta_log/0.json", "_delta_log/0.json", "a b/_delta_log/0.json"} {
		if r := s.PutIfAbsent(t.Context(), key, []byte("x")); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	got, err := List(t.Context(), s)
	if want := []string{"flights", "prod/eu/orders", "prod/events", "z"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

func TestAnUnknownTableIsNamedWithItsNeighbours(t *testing.T) {
	s, d := place(t)
	create(t, s, d, "prod/events", CreateOptions{})
	create(t, s, d, "prod/orders", CreateOptions{})
	_, err := Load(t.Context(), s, "prod/event", d)
	if !errors.Is(err, ErrUnknownTable) || !strings.Contains(err.Error(), `"prod/event" under mem://; did you mean prod/events?`) {
		t.Errorf("%v", err)
	}
	if err := Drop(t.Context(), s, "other", d); !errors.Is(err, ErrUnknownTable) || strings.Contains(err.Error(), "did you mean") {
		t.Errorf("%v", err)
	}
}

func TestADroppedTableStartsFromZeroWhenCreatedAgain(t *testing.T) {
	s, d := place(t)
	first := create(t, s, d, "t", CreateOptions{Properties: map[string]string{"delta.appendOnly": "true"}})
	chain := shardmanifest.Open(s, "t", first.ID, "a", shardmanifest.Options{Clock: d.Clock, Random: d.Random})
	if _, err := chain.Claim(t.Context(), shardmanifest.ClaimOptions{}); err != nil {
		t.Fatal(err)
	}
	commit(t, first, "a", 0, 3, "part-1")
	late := mergeOf(first, "a", 0, 4, "part-late")
	if err := Drop(t.Context(), s, "t", d); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), s, "t", d); !errors.Is(err, ErrDropped) {
		t.Errorf("after the drop: %v", err)
	}
	if _, err := chain.Claim(t.Context(), shardmanifest.ClaimOptions{}); !errors.Is(err, shardmanifest.ErrRetired) {
		t.Errorf("the shard of the dropped table is claimed: %v", err)
	}
	if err := Drop(t.Context(), s, "t", d); err != nil {
		t.Errorf("dropping it again: %v", err)
	}
	second := create(t, s, d, "t", CreateOptions{Key: []string{"id"}})
	if second.ID == first.ID || second.Incarnation != 2 || second.Mode != Upsert || second.Snapshot.FileCount() != 0 || second.Mark("a") != 0 || second.Mergeable() != nil {
		t.Errorf("%+v, %d files, %v", second.Settings, second.Snapshot.FileCount(), second.Mergeable())
	}
	// An execution of the first life cannot touch the second.
	var again *deltalog.PlanAgainError
	if _, err := first.Log.Commit(t.Context(), late); !errors.As(err, &again) {
		t.Errorf("a late commit of the first life: %v", err)
	}
	if err := Drop(t.Context(), s, "t", d); err != nil {
		t.Fatal(err)
	}
	third := create(t, s, d, "t", CreateOptions{})
	if third.Incarnation != 3 || third.Snapshot.Protocol.Has(deltalog.FeatureUpsert) {
		t.Errorf("%+v, %+v", third.Settings, third.Snapshot.Protocol)
	}
}

// A merge that commits while the table is being dropped: no file of it may survive the drop.
func TestADropPlansAgainWhenAMergeCommitsFirst(t *testing.T) {
	s, d := place(t)
	tb := create(t, s, d, "t", CreateOptions{})
	store := &midway{Store: s, key: "t/_delta_log/00000000000000000001.json", before: func() { commit(t, tb, "a", 0, 1, "part-1") }}
	if err := Drop(t.Context(), store, "t", d); err != nil {
		t.Fatal(err)
	}
	snapshot, err := tb.Log.Snapshot(t.Context())
	if err != nil || snapshot.Version != 2 || snapshot.FileCount() != 0 {
		t.Errorf("version %d, %d files, %v", snapshot.Version, snapshot.FileCount(), err)
	}
	if _, dead := snapshot.Tombstone("part-1"); !dead {
		t.Error("the merged file has no tombstone")
	}
}

// And the other way round.
func TestAMergeStopsWhenTheDropCommitsFirst(t *testing.T) {
	s, d := place(t)
	create(t, s, d, "t", CreateOptions{})
	store := &midway{Store: s, key: "t/_delta_log/00000000000000000001.json", before: func() {
		if err := Drop(t.Context(), s, "t", d); err != nil {
			t.Error(err)
		}
	}}
	tb, err := Load(t.Context(), store, "t", d)
	if err != nil {
		t.Fatal(err)
	}
	var again *deltalog.PlanAgainError
	if _, err := tb.Log.Commit(t.Context(), mergeOf(tb, "a", 0, 1, "part-1")); !errors.As(err, &again) || !strings.Contains(err.Error(), "dropped the table") {
		t.Errorf("%v", err)
	}
}

func TestSettingsThatWereChangedStopTheTable(t *testing.T) {
	s, d := place(t)
	tb := create(t, s, d, "t", CreateOptions{Key: []string{"id"}, Sequence: "at"})
	for property, value := range map[string]string{
		deltalog.PropertyMode: "append", deltalog.PropertyKey: "name", deltalog.PropertySequence: "", deltalog.PropertyBuckets: "16",
		deltalog.PropertyIncarnation: "2", propertySeal: "0", "broken " + deltalog.PropertyBuckets: "", "broken " + deltalog.PropertyMode: "merge",
	} {
		m := tb.Snapshot.Metadata
		m.Configuration = maps.Clone(m.Configuration)
		m.Configuration[strings.TrimPrefix(property, "broken ")] = value
		var changed *SettingsError
		if got, err := ParseSettings(m); !errors.As(err, &changed) || changed.Code() != "settings_changed" {
			t.Errorf("%s = %q: %+v, %v", property, value, got, err)
		}
	}
	m := tb.Snapshot.Metadata
	m.ID = "another"
	if _, err := ParseSettings(m); err == nil {
		t.Error("the settings of another table are accepted")
	}
	m = tb.Snapshot.Metadata
	m.Configuration = maps.Clone(m.Configuration)
	m.Configuration[deltalog.PropertyState], m.Configuration["tidemark.policy.max_age"] = "paused", "5s"
	if got, err := ParseSettings(m); err != nil || got.State != "paused" || got.Policy["max_age"] != "5s" {
		t.Errorf("state and policy: %+v, %v", got, err)
	}
}

func TestADeltaTableOfSomebodyElseIsNotOurs(t *testing.T) {
	s, d := place(t)
	log := d.open(s, "t")
	if _, err := log.Create(t.Context(), deltalog.NewProtocol(false, false), deltalog.Metadata{ID: "x", SchemaString: columns(t).String()}, deltalog.CommitInfo{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), s, "t", d); !errors.Is(err, ErrNotAdopted) {
		t.Errorf("load: %v", err)
	}
	if err := Drop(t.Context(), s, "t", d); !errors.Is(err, ErrNotAdopted) {
		t.Errorf("drop: %v", err)
	}
	if _, err := Create(t.Context(), s, "t", CreateOptions{Schema: columns(t)}, d); !errors.Is(err, ErrTableExists) {
		t.Errorf("create: %v", err)
	}
}

func TestNamesAreComparedByDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"events", "events", 0}, {"events", "event", 1}, {"evnets", "events", 2}, {"a", "bcd", 3}, {"orders", "flights", 3}, {"", "ab", 2}} {
		if got := distance(c.a, c.b, 2); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestTheCacheReadsOnlyWhatIsNewAndStaysWithinItsBound(t *testing.T) {
	s, d := place(t)
	for i := range 4 {
		create(t, s, d, fmt.Sprint("t", i), CreateOptions{})
	}
	c := NewCache(s, d, 1000)
	load := func(name string) *Table {
		t.Helper()
		tb, err := c.Load(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return tb
	}
	tb := load("t0")
	if again := load("t0"); again.Schema != tb.Schema || again.Snapshot.Version != 0 {
		t.Error("the schema was parsed again")
	}
	snapshot := commit(t, tb, "a", 0, 1, "part-1")
	c.Offer(tb, snapshot)
	if got := load("t0"); got.Mark("a") != 1 || got.Snapshot.FileCount() != 1 {
		t.Errorf("mark %d", got.Mark("a"))
	}
	c.Offer(tb, tb.Snapshot)
	if e := c.entries["t0"]; e.table.Snapshot.Version != 1 {
		t.Error("an older snapshot took the place of a newer one")
	}
	for i := range 4 {
		tb := load(fmt.Sprint("t", i))
		commit(t, tb, "b", int64(tb.Mark("b")), int64(tb.Mark("b"))+1, fmt.Sprint("part-b", i))
		load(tb.Name)
	}
	if c.weight > 1000 || len(c.entries) == 0 || len(c.entries) == 4 || c.used.Len() != len(c.entries) {
		t.Errorf("%d tables, %d bytes", len(c.entries), c.weight)
	}
	if err := Drop(t.Context(), s, "t3", d); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Load(t.Context(), "t3"); !errors.Is(err, ErrDropped) || c.entries["t3"] != nil {
		t.Errorf("%v", err)
	}
	if _, err := c.Load(t.Context(), "t9"); !errors.Is(err, ErrUnknownTable) || c.entries["t9"] != nil {
		t.Errorf("%v", err)
	}
}
