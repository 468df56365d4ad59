package deltalog

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Protocol is what a client must implement to read and to write a table.
type Protocol struct {
	MinReaderVersion int32    `json:"minReaderVersion"`
	MinWriterVersion int32    `json:"minWriterVersion"`
	ReaderFeatures   []string `json:"readerFeatures,omitzero"` // not nil exactly with reader version 3
	WriterFeatures   []string `json:"writerFeatures,omitzero"` // not nil exactly with writer version 7
}

// Equal reports whether two protocols require the same, whatever the order of their features.
func (p Protocol) Equal(q Protocol) bool {
	return p.MinReaderVersion == q.MinReaderVersion && p.MinWriterVersion == q.MinWriterVersion &&
		sameSet(p.ReaderFeatures, q.ReaderFeatures) && sameSet(p.WriterFeatures, q.WriterFeatures)
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// Metadata describes a table.
type Metadata struct {
	ID               string            `json:"id"`
	Name             string            `json:"name,omitempty"`
	Description      string            `json:"description,omitempty"`
	Format           Format            `json:"format"`
	SchemaString     string            `json:"schemaString"`
	PartitionColumns []string          `json:"partitionColumns"`
	CreatedTime      int64             `json:"createdTime,omitempty"` // ms since 1970
	Configuration    map[string]string `json:"configuration"`
}

// Format is the encoding of data files.
type Format struct {
	Provider string            `json:"provider"`
	Options  map[string]string `json:"options"`
}

// Equal reports whether two descriptions are the same.
func (m Metadata) Equal(o Metadata) bool {
	return m.ID == o.ID && m.Name == o.Name && m.Description == o.Description && m.SchemaString == o.SchemaString &&
		m.Format.Provider == o.Format.Provider && maps.Equal(m.Format.Options, o.Format.Options) &&
		slices.Equal(m.PartitionColumns, o.PartitionColumns) && maps.Equal(m.Configuration, o.Configuration)
}

// normal returns m as it is written: no null where the protocol requires a value.
func (m Metadata) normal() Metadata {
	if m.Format.Provider == "" {
		m.Format.Provider = "parquet"
	}
	if m.Format.Options == nil {
		m.Format.Options = map[string]string{}
	}
	if m.PartitionColumns == nil {
		m.PartitionColumns = []string{}
	}
	if m.Configuration == nil {
		m.Configuration = map[string]string{}
	}
	return m
}

// Tags that Tidemark puts on the base files of upsert tables.
const (
	// TagBucket is the shard of the file's bucket, "bucket-0007".
	TagBucket = "tidemark.bucket"
	// TagKeyMin and TagKeyMax are the file's lowest and highest key, as base64 of rowkey bytes.
	TagKeyMin = "tidemark.key_min"
	TagKeyMax = "tidemark.key_max"
)

// Add is a data file of the table.
type Add struct {
	Path             string            // relative to the table and decoded; an absolute URI stays as it is
	PartitionValues  map[string]string // null is ""
	Size             int64             // bytes
	ModificationTime int64             // ms since 1970; Commit puts its own time for 0
	DataChange       bool              // false when rows are only rearranged
	Stats            string            // the statistics' JSON, or ""
	Tags             map[string]string

	uri string // the path as it stands in the log, if encoding Path would give another
}

// Rows is the number of rows that the file's statistics state.
func (a Add) Rows() (int64, bool) {
	var s struct {
		NumRecords *int64 `json:"numRecords"`
	}
	if a.Stats == "" || json.Unmarshal([]byte(a.Stats), &s) != nil || s.NumRecords == nil {
		return 0, false
	}
	return *s.NumRecords, true
}

// Absolute reports whether the file lies outside the table's folder, as those of a shallow clone do.
func (a Add) Absolute() bool { return absolutePath(a.Path) }

// Remove is the tombstone of a data file.
type Remove struct {
	Path              string // as in Add
	DeletionTimestamp int64  // ms since 1970; 0 has long expired
	DataChange        bool
	PartitionValues   map[string]string
	Size              int64
	Stats             string
	Tags              map[string]string

	uri string
}

// RemoveOf is the removal of a file at a time. dataChange is false when its rows are only rearranged.
func RemoveOf(a Add, at time.Time, dataChange bool) Remove {
	return Remove{
		Path: a.Path, DeletionTimestamp: at.UnixMilli(), DataChange: dataChange, PartitionValues: a.PartitionValues,
		Size: a.Size, Stats: a.Stats, Tags: a.Tags, uri: a.uri,
	}
}

// Txn is how far an application has come, in this package the merged mark of a shard.
type Txn struct {
	AppID       string `json:"appId"`
	Version     int64  `json:"version"`
	LastUpdated int64  `json:"lastUpdated,omitempty"` // ms since 1970
}

// AppID names a shard's merged mark among a table's transactions.
func AppID(tableID, shard string) string { return "tidemark/" + tableID + "/" + shard }

// Engine marks the commits of Tidemark in their commitInfo.
const Engine = "tidemark/1"

// CommitInfo says who committed what. Other engines put anything there; what has another form is ignored.
type CommitInfo struct {
	Timestamp   int64             // ms since 1970
	Operation   string            // such as MERGE, OPTIMIZE, CREATE TABLE
	Parameters  map[string]string // the operation's parameters
	Metrics     map[string]int64  // such as numOutputRows
	ExecutionID string            // the execution that made the commit; Tidemark's own
	Engine      string            // the software that made the commit

	nonce       string // makes the bytes of the commit its author's and nobody else's
	readVersion int64
	blindAppend bool
}

// Own reports whether Tidemark made the commit.
func (i CommitInfo) Own() bool { return strings.HasPrefix(i.Engine, "tidemark/") }

// Commit is one version of the log.
type Commit struct {
	Version  int64
	Info     CommitInfo
	Protocol *Protocol // nil unless changed
	Metadata *Metadata // nil unless changed
	Adds     []Add
	Removes  []Remove
	Txns     []Txn
}

// changesData reports whether the commit adds or removes rows.
func (c *Commit) changesData() bool {
	return slices.ContainsFunc(c.Adds, func(a Add) bool { return a.DataChange }) ||
		slices.ContainsFunc(c.Removes, func(r Remove) bool { return r.DataChange })
}
