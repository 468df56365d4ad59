package deltalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Table features that Tidemark lists in the protocols it writes, or knows how to live with.
const (
	FeatureAppendOnly   = "appendOnly"
	FeatureInvariants   = "invariants"
	FeatureTimestampNTZ = "timestampNtz"
	FeatureTypeWidening = "typeWidening"
	// FeatureUpsert is a writer-only feature that no other engine knows. They must therefore refuse to write to an
	// upsert table, and can read it all the same.
	FeatureUpsert = "tidemarkUpsert"

	featureCheckConstraints = "checkConstraints"
	featureChangeDataFeed   = "changeDataFeed"
	featureGenerated        = "generatedColumns"
	featureColumnMapping    = "columnMapping"
	featureIdentity         = "identityColumns"
	featureDefaults         = "allowColumnDefaults"
	featureVacuumCheck      = "vacuumProtocolCheck"
)

// readerFeatures are those which, when listed, do not keep Tidemark from reading. Column mapping is refused when a
// table's mode uses it.
var readerFeatures = []string{FeatureTimestampNTZ, FeatureTypeWidening, featureColumnMapping, featureVacuumCheck}

// writerFeatures are those which, when listed, do not keep Tidemark from writing. All but the first line matter only
// when a column or property uses them; those are refused by name in Writable.
var writerFeatures = []string{
	FeatureAppendOnly, FeatureTimestampNTZ, FeatureTypeWidening, FeatureUpsert, featureVacuumCheck,
	FeatureInvariants, featureCheckConstraints, featureChangeDataFeed, featureGenerated, featureColumnMapping,
	featureIdentity, featureDefaults,
}

// impliedByWriter are the features that each writer version before 7 brings along, by version.
var impliedByWriter = map[int32][]string{
	2: {FeatureAppendOnly, FeatureInvariants},
	3: {featureCheckConstraints},
	4: {featureChangeDataFeed, featureGenerated},
	5: {featureColumnMapping},
	6: {featureIdentity},
}

const (
	readerVersionFeatures = 3 // the reader version with a list of features
	writerVersionFeatures = 7 // likewise
)

// NewProtocol is the lowest protocol that a new table needs.
func NewProtocol(upsert, timestampNTZ bool) Protocol {
	p := Protocol{MinReaderVersion: 1, MinWriterVersion: 2}
	if timestampNTZ {
		p = p.With(FeatureTimestampNTZ)
	}
	if upsert {
		p = p.With(FeatureUpsert)
	}
	return p
}

// With returns the lowest protocol that has everything p has and a feature.
func (p Protocol) With(feature string) Protocol {
	reader := slices.Contains(readerFeatures, feature)
	writers, readers := p.WriterFeatures, p.ReaderFeatures
	if p.MinWriterVersion < writerVersionFeatures {
		writers = nil
		for v := int32(1); v <= p.MinWriterVersion; v++ {
			writers = append(writers, impliedByWriter[v]...)
		}
		p.MinWriterVersion = writerVersionFeatures
	}
	if reader && p.MinReaderVersion < readerVersionFeatures {
		readers = nil
		if p.MinReaderVersion == 2 {
			readers = append(readers, featureColumnMapping)
		}
		p.MinReaderVersion = readerVersionFeatures
	}
	p.WriterFeatures = withFeature(writers, feature)
	if reader {
		p.ReaderFeatures = withFeature(readers, feature)
	}
	return p
}

func withFeature(list []string, feature string) []string {
	list = append(slices.Clone(list), feature)
	slices.Sort(list)
	return slices.Compact(list)
}

// schemaFeatures are the features that a schema requires, each with a column that does.
func schemaFeatures(schemaString string) (map[string]string, error) {
	var root any
	if err := json.Unmarshal([]byte(schemaString), &root); err != nil {
		return nil, err
	}
	needs := map[string]string{}
	return needs, walkSchema(root, "", func(column string, metadata map[string]any, primitive string) error {
		if primitive == "timestamp_ntz" {
			needs[FeatureTimestampNTZ] = column
		}
		if metadata["delta.typeChanges"] != nil {
			needs[FeatureTypeWidening] = column
		}
		return nil
	})
}

// Has reports whether the protocol lists a feature for writers.
func (p Protocol) Has(feature string) bool { return slices.Contains(p.WriterFeatures, feature) }

// readable refuses a table that needs more from its readers than is implemented here.
func readable(table string, p Protocol, m Metadata) error {
	if p.MinReaderVersion < 1 || p.MinReaderVersion > readerVersionFeatures {
		return &UnsupportedError{table, fmt.Sprintf("reader version %d", p.MinReaderVersion), "Tidemark reads versions 1 to 3; a newer Tidemark may"}
	}
	if p.MinReaderVersion == readerVersionFeatures {
		for _, f := range p.ReaderFeatures {
			if !slices.Contains(readerFeatures, f) {
				return &UnsupportedError{table, "the reader feature " + f, "Tidemark does not read such tables; drop the feature with the engine that added it"}
			}
		}
	}
	if mode := m.Configuration["delta.columnMapping.mode"]; mode != "" && !strings.EqualFold(mode, "none") {
		return &UnsupportedError{table, "column mapping (delta.columnMapping.mode = " + mode + ")", "Tidemark reads columns by their own names; set the mode to none"}
	}
	if m.Format.Provider != "parquet" {
		return &UnsupportedError{table, fmt.Sprintf("data files of format %q", m.Format.Provider), "only parquet is supported"}
	}
	return nil
}

// Writable returns nil if Tidemark implements all that writing to this table requires, else an *UnsupportedError.
func (s *Snapshot) Writable() error { return writable(s.table, s.Protocol, s.Metadata) }

func writable(table string, p Protocol, m Metadata) error {
	if err := readable(table, p, m); err != nil {
		return err
	}
	if p.MinWriterVersion < 1 || p.MinWriterVersion > writerVersionFeatures {
		return &UnsupportedError{table, fmt.Sprintf("writer version %d", p.MinWriterVersion), "Tidemark writes versions 1 to 7; a newer Tidemark may"}
	}
	if p.MinWriterVersion == writerVersionFeatures {
		for _, f := range p.WriterFeatures {
			if !slices.Contains(writerFeatures, f) {
				return &UnsupportedError{table, "the writer feature " + f, "Tidemark does not write such tables; drop the feature with the engine that added it"}
			}
		}
	}
	if len(m.PartitionColumns) > 0 && m.Configuration[PropertyKey] != "" {
		return &UnsupportedError{table, "partition columns (" + strings.Join(m.PartitionColumns, ", ") + ") of an upsert table", "its files are divided by key; only append tables can be partitioned"}
	}
	if err := writableProperties(table, m.Configuration); err != nil {
		return err
	}
	return writableSchema(table, p, m.SchemaString)
}

// refusedWhenTrue are properties that ask every writer for something Tidemark does not do.
var refusedWhenTrue = []struct{ name, why string }{
	{"delta.enableChangeDataFeed", "Tidemark writes no change data; set it to false"},
	{"delta.enableDeletionVectors", "Tidemark does not support deletion vectors; set it to false"},
	{"delta.enableRowTracking", "Tidemark does not number rows; set it to false"},
	{"delta.enableInCommitTimestamps", "Tidemark does not write in-commit timestamps; set it to false"},
	{"delta.enableIcebergCompatV1", "Tidemark does not keep tables Iceberg-compatible; set it to false"},
	{"delta.enableIcebergCompatV2", "Tidemark does not keep tables Iceberg-compatible; set it to false"},
	{"delta.enableIcebergCompatV3", "Tidemark does not keep tables Iceberg-compatible; set it to false"},
	{"delta.checkpoint.writeStatsAsStruct", "Tidemark's checkpoints hold statistics as JSON; set it to false"},
}

func writableProperties(table string, c map[string]string) error {
	for _, r := range refusedWhenTrue {
		if strings.EqualFold(c[r.name], "true") {
			return &UnsupportedError{table, r.name, r.why}
		}
	}
	if strings.EqualFold(c["delta.checkpoint.writeStatsAsJson"], "false") {
		return &UnsupportedError{table, "delta.checkpoint.writeStatsAsJson = false", "Tidemark's checkpoints keep statistics as JSON; set it to true"}
	}
	if policy := c["delta.checkpointPolicy"]; policy != "" && !strings.EqualFold(policy, "classic") {
		return &UnsupportedError{table, "delta.checkpointPolicy = " + policy, "Tidemark writes classic checkpoints; set it to classic"}
	}
	if _, ok := c["delta.setTransactionRetentionDuration"]; ok {
		return &UnsupportedError{table, "delta.setTransactionRetentionDuration", "merged marks must never expire, or rows would be merged twice; unset it"}
	}
	for name := range c {
		if strings.HasPrefix(name, "delta.constraints.") {
			return &UnsupportedError{table, "the check constraint " + strings.TrimPrefix(name, "delta.constraints."), "Tidemark does not evaluate SQL; drop the constraint"}
		}
	}
	p, err := ParseProperties(c)
	if err != nil {
		return &UnsupportedError{table, "a table property that cannot be understood", err.Error()}
	}
	if p.LogRetention < logRetentionMin {
		return &UnsupportedError{table, "delta.logRetentionDuration = " + c["delta.logRetentionDuration"], "a commit may need the log of the last hour; set it to at least one hour"}
	}
	if p.DeletedFileRetention < deletedFileRetentionMin {
		return &UnsupportedError{table, "delta.deletedFileRetentionDuration = " + c["delta.deletedFileRetentionDuration"], "a merge takes up to half of it; set it to at least 20 minutes"}
	}
	return nil
}

// refusedInColumns are the keys of column metadata that ask writers for something Tidemark does not do.
var refusedInColumns = []struct{ key, what string }{
	{"delta.invariants", "an invariant"},
	{"delta.generationExpression", "a generation expression"},
	{"delta.identity.start", "an identity"},
	{"delta.identity.step", "an identity"},
	{"CURRENT_DEFAULT", "a default expression"},
}

// writableSchema looks for columns whose values a writer would have to compute or check, and for types that need a
// feature the protocol does not list. Deeper questions about types are the schema package's.
func writableSchema(table string, p Protocol, schemaString string) error {
	var root any
	if err := json.Unmarshal([]byte(schemaString), &root); err != nil {
		return &UnsupportedError{table, "a schema that cannot be understood", err.Error()}
	}
	needs, err := schemaFeatures(schemaString)
	if err != nil {
		return err
	}
	for _, feature := range []string{FeatureTimestampNTZ, FeatureTypeWidening} {
		if column, ok := needs[feature]; ok && !p.Has(feature) {
			return &UnsupportedError{table, "column " + column, "its type needs the feature " + feature + ", which the protocol does not list as it must; add it with the engine that made the column"}
		}
	}
	return walkSchema(root, "", func(column string, metadata map[string]any, _ string) error {
		for _, r := range refusedInColumns {
			if v, ok := metadata[r.key]; ok && v != nil {
				return &UnsupportedError{table, fmt.Sprintf("%s on column %s (%s)", r.what, column, r.key), "Tidemark does not evaluate SQL; remove it from the column"}
			}
		}
		return nil
	})
}

// walkSchema visits every struct field with its metadata, and every primitive type below it.
func walkSchema(v any, column string, visit func(column string, metadata map[string]any, primitive string) error) error {
	switch t := v.(type) {
	case string:
		return visit(column, nil, t)
	case []any:
		for _, e := range t {
			if err := walkSchema(e, column, visit); err != nil {
				return err
			}
		}
	case map[string]any:
		if name, ok := t["name"].(string); ok {
			column = strings.TrimPrefix(column+"."+name, ".")
			metadata, _ := t["metadata"].(map[string]any)
			if err := visit(column, metadata, ""); err != nil {
				return err
			}
		}
		for _, key := range []string{"type", "fields", "elementType", "keyType", "valueType"} {
			if inner, ok := t[key]; ok {
				if err := walkSchema(inner, column, visit); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
