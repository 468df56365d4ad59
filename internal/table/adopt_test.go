package table

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

// foreignTable puts a table as another engine makes it: a version 0 of a protocol, a description and perhaps more.
func foreignTable(t *testing.T, s objstore.Store, name, protocol, schemaFields, partitionColumns, configuration string, more ...string) {
	t.Helper()
	schemaString := fmt.Sprintf("%q", `{"type":"struct","fields":[`+schemaFields+`]}`)
	lines := []string{
		`{"commitInfo":{"operation":"CREATE TABLE","engineInfo":"Apache-Spark/4.0"}}`,
		`{"protocol":` + protocol + `}`,
		`{"metaData":{"id":"8b3ba2b8-7f8e-4b25-9a2f-8d1e3a2d9c11","format":{"provider":"parquet","options":{}},"schemaString":` + schemaString +
			`,"partitionColumns":` + partitionColumns + `,"createdTime":1,"configuration":` + configuration + `}}`,
	}
	body := strings.Join(append(lines, more...), "\n") + "\n"
	if r := s.PutIfAbsent(t.Context(), name+"/_delta_log/00000000000000000000.json", []byte(body)); r.Err != nil {
		t.Fatal(r.Err)
	}
}

// keysAndETags are all objects of a store.
func keysAndETags(t *testing.T, s objstore.Store) (all []string) {
	t.Helper()
	for info, err := range objstore.ListAll(t.Context(), s, "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Key+" "+info.ETag)
	}
	return all
}

const (
	oldProtocol = `{"minReaderVersion":1,"minWriterVersion":2}`
	idField     = `{"name":"id","type":"long","nullable":true,"metadata":{}}`
)

func listed(feature string, reader bool) string {
	if reader {
		return fmt.Sprintf(`{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[%q],"writerFeatures":[%q]}`, feature, feature)
	}
	return fmt.Sprintf(`{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":[%q]}`, feature)
}

func TestAdoptingRefusesWhatTidemarkLacksByNameBeforeAByteIsWritten(t *testing.T) {
	withMetadata := func(metadata string) string {
		return `{"name":"id","type":"long","nullable":true,"metadata":` + metadata + `}`
	}
	vector := `{"add":{"path":"p","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"deletionVector":{"storageType":"u","pathOrInlineDv":"x","sizeInBytes":1,"cardinality":1}}}`
	for _, c := range []struct {
		name, protocol, fields, partitions, configuration string
		more                                              []string
		want                                              string
	}{
		{name: "column mapping", protocol: `{"minReaderVersion":2,"minWriterVersion":5}`, configuration: `{"delta.columnMapping.mode":"name"}`, want: "column mapping"},
		{name: "deletion vectors, the feature", protocol: listed("deletionVectors", true), want: "deletionVectors"},
		{name: "deletion vectors, a file's", protocol: oldProtocol, more: []string{vector}, want: "deletion vectors"},
		{name: "identity columns", protocol: `{"minReaderVersion":1,"minWriterVersion":6}`, fields: withMetadata(`{"delta.identity.start":1,"delta.identity.step":1}`), want: "an identity on column id"},
		{name: "generated columns", protocol: `{"minReaderVersion":1,"minWriterVersion":4}`, fields: withMetadata(`{"delta.generationExpression":"1 + 1"}`), want: "a generation expression on column id"},
		{name: "column defaults", protocol: listed("allowColumnDefaults", false), fields: withMetadata(`{"CURRENT_DEFAULT":"1"}`), want: "a default expression on column id"},
		{name: "invariants", protocol: oldProtocol, fields: withMetadata(`{"delta.invariants":"{\"expression\":{\"expression\":\"id > 0\"}}"}`), want: "an invariant on column id"},
		{name: "check constraints", protocol: `{"minReaderVersion":1,"minWriterVersion":3}`, configuration: `{"delta.constraints.positive":"id > 0"}`, want: "the check constraint positive"},
		{name: "change data feed", protocol: `{"minReaderVersion":1,"minWriterVersion":4}`, configuration: `{"delta.enableChangeDataFeed":"true"}`, want: "delta.enableChangeDataFeed"},
		{name: "v2 checkpoints", protocol: listed("v2Checkpoint", true), want: "v2Checkpoint"},
		{name: "v2 checkpoints, the policy", protocol: oldProtocol, configuration: `{"delta.checkpointPolicy":"v2"}`, want: "delta.checkpointPolicy"},
		{name: "in-commit timestamps", protocol: listed("inCommitTimestamp", false), configuration: `{"delta.enableInCommitTimestamps":"true"}`, want: "inCommitTimestamp"},
		{name: "row tracking", protocol: listed("rowTracking", false), want: "rowTracking"},
		{name: "clustering", protocol: listed("clustering", false), want: "clustering"},
		{name: "domain metadata", protocol: listed("domainMetadata", false), want: "domainMetadata"},
		{name: "iceberg compatibility", protocol: listed("icebergCompatV2", false), want: "icebergCompatV2"},
		{name: "variants", protocol: listed("variantType", true), want: "variantType"},
		{name: "coordinated commits", protocol: listed("catalogManaged", true), want: "catalogManaged"},
		{name: "a feature of tomorrow", protocol: listed("somethingNew", false), want: "somethingNew"},
		{name: "a newer protocol", protocol: `{"minReaderVersion":4,"minWriterVersion":8}`, want: "reader version 4"},
		{name: "expiring transactions", protocol: oldProtocol, configuration: `{"delta.setTransactionRetentionDuration":"interval 7 days"}`, want: "delta.setTransactionRetentionDuration"},
		{name: "a short log", protocol: oldProtocol, configuration: `{"delta.logRetentionDuration":"interval 1 minutes"}`, want: "delta.logRetentionDuration"},
		{name: "a short retention", protocol: oldProtocol, configuration: `{"delta.deletedFileRetentionDuration":"interval 0 hours"}`, want: "delta.deletedFileRetentionDuration"},
		{name: "a timestamp without zone that is not listed", protocol: oldProtocol, fields: `{"name":"at","type":"timestamp_ntz","nullable":true,"metadata":{}}`, want: "timestampNtz"},
		{name: "binary partitions", protocol: oldProtocol, fields: idField + `,{"name":"b","type":"binary","nullable":true,"metadata":{}}`, partitions: `["b"]`, want: "binary"},
		{name: "a type that there is not", protocol: oldProtocol, fields: `{"name":"v","type":"interval","nullable":true,"metadata":{}}`, want: "interval"},
		{name: "a shallow clone", protocol: oldProtocol, more: []string{`{"add":{"path":"s3://other/p.parquet","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`}, want: "files outside its folder"},
		{name: "the column that marks deletes", protocol: oldProtocol, fields: idField + `,{"name":"_op","type":"string","nullable":true,"metadata":{}}`, want: "_op"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := objstore.NewMemory(clock.System())
			if c.fields == "" {
				c.fields = idField
			}
			if c.partitions == "" {
				c.partitions = "[]"
			}
			if c.configuration == "" {
				c.configuration = "{}"
			}
			foreignTable(t, store, "theirs", c.protocol, c.fields, c.partitions, c.configuration, c.more...)
			before := keysAndETags(t, store)
			_, err := Adopt(t.Context(), store, "theirs", nil, Deps{Clock: clock.System(), Random: random.Seeded(1)})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "theirs") {
				t.Errorf("%v; want it refused for %s", err, c.want)
			}
			if after := keysAndETags(t, store); !slices.Equal(before, after) {
				t.Errorf("the store was changed: %q, before %q", after, before)
			}
		})
	}
}

func TestAdoptingAddsSettingsAndChangesNothingElse(t *testing.T) {
	store := objstore.NewMemory(clock.System())
	deps := Deps{Clock: clock.System(), Random: random.Seeded(1)}
	foreignTable(t, store, "a/theirs", `{"minReaderVersion":1,"minWriterVersion":6}`, idField+`,{"name":"day","type":"date","nullable":true,"metadata":{"comment":"of the sale"}}`, `["day"]`,
		`{"delta.checkpointInterval":"7"}`, `{"add":{"path":"day=2024-01-01/x.parquet","partitionValues":{"day":"2024-01-01"},"size":1,"modificationTime":1,"dataChange":true}}`,
		`{"txn":{"appId":"theirs","version":3}}`)
	before, err := deltalog.Open(store, "a/theirs", deltalog.Options{Clock: deps.Clock, Random: deps.Random}).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), store, "a/theirs", deps); !errors.Is(err, ErrNotAdopted) {
		t.Fatalf("before: %v", err)
	}
	got, err := Adopt(t.Context(), store, "a/theirs", map[string]string{"tidemark.policy.max_wait": "5s"}, deps)
	if err != nil {
		t.Fatal(err)
	}
	if got.Mode != Append || got.Incarnation != 1 || got.ID != before.Metadata.ID || got.Policy["max_wait"] != "5s" || got.Policy["compact_files"] != "0" || got.Snapshot.Version != 1 || got.Mergeable() != nil {
		t.Errorf("adopted as %+v at version %d, %v", got.Settings, got.Snapshot.Version, got.Mergeable())
	}
	now := got.Snapshot.Metadata
	for name := range now.Configuration {
		if strings.HasPrefix(name, "tidemark.") {
			delete(now.Configuration, name)
		}
	}
	if !now.Equal(before.Metadata) || !got.Snapshot.Protocol.Equal(before.Protocol) || got.Snapshot.FileCount() != 1 {
		t.Errorf("the table is %+v now, and was %+v", now, before.Metadata)
	}
	if v, ok := got.Snapshot.Txn("theirs"); !ok || v != 3 {
		t.Errorf("the transaction of another application is at %d, %t", v, ok)
	}
	again, err := Load(t.Context(), store, "a/theirs", deps)
	if err != nil || again.ID != got.ID {
		t.Errorf("loading it gives %v, %v", again, err)
	}
	if _, err := Adopt(t.Context(), store, "a/theirs", nil, deps); !errors.Is(err, ErrTableExists) {
		t.Errorf("adopting it twice: %v", err)
	}
	if err := Drop(t.Context(), store, "a/theirs", deps); err != nil {
		t.Fatal(err)
	}
	if _, err := Adopt(t.Context(), store, "a/theirs", nil, deps); !errors.Is(err, ErrDropped) {
		t.Errorf("adopting it after it was dropped: %v", err)
	}
	if _, err := Adopt(t.Context(), store, "a/their", nil, deps); !errors.Is(err, ErrUnknownTable) || !strings.Contains(err.Error(), "a/theirs") {
		t.Errorf("adopting what is not there: %v", err)
	}
	if _, err := Adopt(t.Context(), store, "a/theirs", map[string]string{"tidemark.mode": "upsert"}, deps); err == nil || !strings.Contains(err.Error(), "tidemark.mode") {
		t.Errorf("adopting with a setting: %v", err)
	}
	foreignTable(t, store, "a/theirs/inner", oldProtocol, idField, `[]`, `{}`)
	if _, err := Adopt(t.Context(), store, "a/theirs/inner", nil, deps); err == nil || !strings.Contains(err.Error(), "inside") {
		t.Errorf("adopting a table inside another: %v", err)
	}
}

// racingStore lets somebody commit right before each of the first commits that go through it.
type racingStore struct {
	objstore.Store
	before []func()
}

func (s *racingStore) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	if len(s.before) > 0 {
		before := s.before[0]
		s.before = s.before[1:]
		before()
	}
	return s.Store.PutIfAbsent(ctx, key, body)
}

// Another commits while a table is being adopted: an append is rebased over, a change of the description is looked at again.
func TestAdoptingRebasesOverAppendsAndLooksAgainAtChanges(t *testing.T) {
	store := objstore.NewMemory(clock.System())
	deps := Deps{Clock: clock.System(), Random: random.Seeded(1)}
	foreignTable(t, store, "theirs", oldProtocol, idField, `[]`, `{}`)
	log := deltalog.Open(store, "theirs", deltalog.Options{Clock: deps.Clock, Random: deps.Random})
	commit := func(line string) func() {
		return func() {
			s, err := log.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprintf("theirs/_delta_log/%020d.json", s.Version+1)
			if r := store.PutIfAbsent(t.Context(), key, []byte(line+"\n")); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	racing := &racingStore{Store: store, before: []func(){
		commit(`{"add":{"path":"p.parquet","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}`),
		commit(`{"metaData":{"id":"8b3ba2b8-7f8e-4b25-9a2f-8d1e3a2d9c11","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[` +
			strings.ReplaceAll(idField, `"`, `\"`) + `]}","partitionColumns":[],"configuration":{"theirs":"kept"}}}`),
	}}
	got, err := Adopt(t.Context(), racing, "theirs", nil, deps)
	if err != nil {
		t.Fatal(err)
	}
	if got.Snapshot.Version != 3 || got.Snapshot.FileCount() != 1 || got.Snapshot.Metadata.Configuration["theirs"] != "kept" {
		t.Errorf("version %d, %d files, %v", got.Snapshot.Version, got.Snapshot.FileCount(), got.Snapshot.Metadata.Configuration)
	}
	// And a feature that comes in the meantime is refused.
	store = objstore.NewMemory(clock.System())
	log = deltalog.Open(store, "theirs", deltalog.Options{Clock: deps.Clock, Random: deps.Random})
	foreignTable(t, store, "theirs", oldProtocol, idField, `[]`, `{}`)
	racing = &racingStore{Store: store, before: []func(){commit(`{"protocol":` + listed("rowTracking", false) + `}`)}}
	if _, err := Adopt(t.Context(), racing, "theirs", nil, deps); err == nil || !strings.Contains(err.Error(), "rowTracking") {
		t.Errorf("%v", err)
	}
}
