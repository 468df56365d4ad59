package deltalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	schemaPlain = `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}`
	schemaNTZ   = `{"type":"struct","fields":[{"name":"at","type":{"type":"array","elementType":"timestamp_ntz","containsNull":true},"nullable":true,"metadata":{}}]}`
	schemaWide  = `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"delta.typeChanges":[{"fromType":"integer","toType":"long"}]}}]}`
)

func column(metadata string) string {
	return `{"type":"struct","fields":[{"name":"s","type":{"type":"struct","fields":[{"name":"c","type":"long","nullable":true,"metadata":` + metadata + `}]},"nullable":true,"metadata":{}}]}`
}

func TestProtocolsOfNewTablesAreTheLowestThatTheyNeed(t *testing.T) {
	for _, c := range []struct {
		upsert, ntz bool
		want        string
	}{
		{false, false, "1 2 [] []"},
		{true, false, "1 7 [] [appendOnly invariants tidemarkUpsert]"},
		{false, true, "3 7 [timestampNtz] [appendOnly invariants timestampNtz]"},
		{true, true, "3 7 [timestampNtz] [appendOnly invariants tidemarkUpsert timestampNtz]"},
	} {
		p := NewProtocol(c.upsert, c.ntz)
		if got := show(p); got != c.want {
			t.Errorf("upsert %t, timestampNtz %t: %s, want %s", c.upsert, c.ntz, got, c.want)
		}
	}
}

func show(p Protocol) string {
	return fmt.Sprint(p.MinReaderVersion, p.MinWriterVersion, p.ReaderFeatures, p.WriterFeatures)
}

func TestUpgradingListsWhatTheOldVersionsImplied(t *testing.T) {
	p := Protocol{MinReaderVersion: 2, MinWriterVersion: 6}.With(FeatureTimestampNTZ)
	want := "3 7 [columnMapping timestampNtz] [appendOnly changeDataFeed checkConstraints columnMapping generatedColumns identityColumns invariants timestampNtz]"
	if got := show(p); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if q := p.With(FeatureTimestampNTZ); !q.Equal(p) || show(q) != want {
		t.Errorf("adding it again gives %s", show(q))
	}
}

// Every table that requires something else is refused, and the error names what.
func TestUnsupportedTablesAreRefusedByName(t *testing.T) {
	lists := func(reader, writer string) Protocol {
		p := Protocol{MinReaderVersion: 1, MinWriterVersion: 7, WriterFeatures: []string{writer}}
		if reader != "" {
			p.MinReaderVersion, p.ReaderFeatures = 3, []string{reader}
		}
		return p
	}
	plain := NewProtocol(false, false)
	for _, c := range []struct {
		name     string
		protocol Protocol
		schema   string
		property string // name=value
		parts    []string
		want     string // "" if the table is fine
	}{
		{name: "plain", protocol: plain},
		{name: "oldest", protocol: Protocol{MinReaderVersion: 1, MinWriterVersion: 1}},
		{name: "everything implied, nothing used", protocol: Protocol{MinReaderVersion: 2, MinWriterVersion: 6}},
		{name: "listed, not used", protocol: lists("columnMapping", "changeDataFeed")},
		{name: "vacuumProtocolCheck", protocol: lists("vacuumProtocolCheck", "vacuumProtocolCheck")},
		{name: "mode none", protocol: plain, property: "delta.columnMapping.mode=none"},
		{name: "deletion vectors off", protocol: plain, property: "delta.enableDeletionVectors=false"},
		{name: "null default", protocol: plain, schema: column(`{"CURRENT_DEFAULT":null}`)},

		{name: "reader 4", protocol: Protocol{MinReaderVersion: 4, MinWriterVersion: 7}, want: "reader version 4"},
		{name: "no versions", protocol: Protocol{}, want: "reader version 0"},
		{name: "writer 8", protocol: Protocol{MinReaderVersion: 1, MinWriterVersion: 8}, want: "writer version 8"},
		{name: "deletionVectors", protocol: lists("deletionVectors", "deletionVectors"), want: "the reader feature deletionVectors"},
		{name: "v2Checkpoint", protocol: lists("v2Checkpoint", "v2Checkpoint"), want: "the reader feature v2Checkpoint"},
		{name: "variantType", protocol: lists("variantType", "variantType"), want: "the reader feature variantType"},
		{name: "rowTracking", protocol: lists("", "rowTracking"), want: "the writer feature rowTracking"},
		{name: "domainMetadata", protocol: lists("", "domainMetadata"), want: "the writer feature domainMetadata"},
		{name: "future", protocol: lists("", "somethingNew"), want: "the writer feature somethingNew"},
		{name: "inCommitTimestamp", protocol: lists("", "inCommitTimestamp"), want: "the writer feature inCommitTimestamp"},
		{name: "column mapping", protocol: Protocol{MinReaderVersion: 2, MinWriterVersion: 5}, property: "delta.columnMapping.mode=name", want: "column mapping"},
		{name: "change data feed", protocol: plain, property: "delta.enableChangeDataFeed=true", want: "delta.enableChangeDataFeed"},
		{name: "row tracking on", protocol: plain, property: "delta.enableRowTracking=true", want: "delta.enableRowTracking"},
		{name: "expiring marks", protocol: plain, property: "delta.setTransactionRetentionDuration=interval 30 days", want: "delta.setTransactionRetentionDuration"},
		{name: "constraint", protocol: plain, property: "delta.constraints.positive=id > 0", want: "the check constraint positive"},
		{name: "v2 checkpoints", protocol: plain, property: "delta.checkpointPolicy=v2", want: "delta.checkpointPolicy"},
		{name: "struct statistics", protocol: plain, property: "delta.checkpoint.writeStatsAsStruct=true", want: "writeStatsAsStruct"},
		{name: "no statistics", protocol: plain, property: "delta.checkpoint.writeStatsAsJson=false", want: "writeStatsAsJson"},
		{name: "short log", protocol: plain, property: "delta.logRetentionDuration=interval 59 minutes", want: "delta.logRetentionDuration"},
		{name: "long enough log", protocol: plain, property: "delta.logRetentionDuration=interval 1 hour"},
		{name: "short retention", protocol: plain, property: "delta.deletedFileRetentionDuration=interval 19 minutes", want: "delta.deletedFileRetentionDuration"},
		{name: "long enough retention", protocol: plain, property: "delta.deletedFileRetentionDuration=interval 20 minutes"},
		{name: "nonsense", protocol: plain, property: "delta.checkpointInterval=often", want: "delta.checkpointInterval"},
		{name: "partitions", protocol: plain, parts: []string{"day"}},
		{name: "partitions of an upsert table", protocol: plain, parts: []string{"day"}, property: PropertyKey + "=id", want: "partition columns (day)"},
		{name: "invariant", protocol: plain, schema: column(`{"delta.invariants":"{}"}`), want: "column s.c (delta.invariants)"},
		{name: "generated", protocol: plain, schema: column(`{"delta.generationExpression":"1"}`), want: "column s.c (delta.generationExpression)"},
		{name: "identity", protocol: plain, schema: column(`{"delta.identity.start":1}`), want: "column s.c (delta.identity.start)"},
		{name: "default", protocol: plain, schema: column(`{"CURRENT_DEFAULT":"1"}`), want: "column s.c (CURRENT_DEFAULT)"},
		{name: "unlisted timestampNtz", protocol: plain, schema: schemaNTZ, want: "timestampNtz"},
		{name: "listed timestampNtz", protocol: NewProtocol(false, true), schema: schemaNTZ},
		{name: "listed widening", protocol: plain.With(FeatureTypeWidening), schema: schemaWide, property: "delta.enableTypeWidening=true"},
		{name: "unlisted widening", protocol: plain, schema: schemaWide, want: "typeWidening"},
		{name: "broken schema", protocol: plain, schema: "{", want: "a schema that cannot be understood"},
	} {
		m := Metadata{ID: "T", SchemaString: schemaPlain, PartitionColumns: c.parts, Configuration: map[string]string{}}.normal()
		if c.schema != "" {
			m.SchemaString = c.schema
		}
		if k, v, ok := strings.Cut(c.property, "="); ok {
			m.Configuration[k] = v
		}
		err := writable("flights", c.protocol, m)
		var refused *UnsupportedError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && !errors.As(err, &refused):
			t.Errorf("%s: %v, want it refused for %s", c.name, err, c.want)
		case c.want != "" && !strings.Contains(err.Error(), c.want) || refused != nil && refused.Code() != "unsupported_table":
			t.Errorf("%s: %v, want it to name %s", c.name, err, c.want)
		}
	}
	if !slices.IsSorted(NewProtocol(true, true).WriterFeatures) {
		t.Error("features are not in order")
	}
}
