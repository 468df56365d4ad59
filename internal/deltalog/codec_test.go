package deltalog

import (
	"strings"
	"testing"
	"time"
)

// What a commit looks like to everybody else.
func TestACommitIsWrittenAsTheProtocolSays(t *testing.T) {
	read := &Snapshot{Version: 6, Metadata: Metadata{ID: "T", SchemaString: schemaPlain}.normal(), Protocol: NewProtocol(false, false)}
	read.setFile(newFile(Add{Path: "old<1>.parquet", Size: 7, Stats: `{"numRecords":2}`, Tags: map[string]string{TagBucket: "bucket-0001"}}))
	protocol := NewProtocol(true, true)
	in := Intent{
		TableID: "T", Read: read, Protocol: &protocol, Metadata: &Metadata{ID: "T", SchemaString: "{}", CreatedTime: 5},
		Marks: map[string]MarkChange{AppID("T", "b"): {0, 2}, AppID("T", "a"): {0, 1}},
		Adds: []Add{{Path: "n 2.parquet", Size: 9, DataChange: true, Tags: map[string]string{TagKeyMin: "AA=="}},
			{Path: "n1.parquet", Size: 8, ModificationTime: 3, DataChange: true, Stats: `{"numRecords":1}`}},
		Removes: []Remove{{Path: "old<1>.parquet", DataChange: true}},
		Info:    CommitInfo{Operation: "MERGE", ExecutionID: "E", Metrics: map[string]int64{"numOutputRows": 3}, Parameters: map[string]string{"mode": "upsert"}},
		Upsert:  true,
	}
	c, err := in.commit(&Snapshot{Version: 8}, time.UnixMilli(1234), "N")
	if err != nil {
		t.Fatal(err)
	}
	body, err := encodeCommit(c)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"commitInfo":{"timestamp":1234,"operation":"MERGE","operationParameters":{"mode":"upsert"},"operationMetrics":{"numOutputRows":"3"},"readVersion":6,"isBlindAppend":false,"engineInfo":"tidemark/1","txnId":"N","tidemarkExecution":"E"}}
{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["timestampNtz"],"writerFeatures":["appendOnly","invariants","tidemarkUpsert","timestampNtz"]}}
{"metaData":{"id":"T","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],"createdTime":5,"configuration":{}}}
{"txn":{"appId":"tidemark/T/a","version":1,"lastUpdated":1234}}
{"txn":{"appId":"tidemark/T/b","version":2,"lastUpdated":1234}}
{"remove":{"path":"old%3C1%3E.parquet","deletionTimestamp":1234,"dataChange":true,"extendedFileMetadata":true,"partitionValues":{},"size":7,"stats":"{\"numRecords\":2}","tags":{"tidemark.bucket":"bucket-0001"}}}
{"add":{"path":"n%202.parquet","partitionValues":{},"size":9,"modificationTime":1234,"dataChange":true,"tags":{"tidemark.key_min":"AA=="}}}
{"add":{"path":"n1.parquet","partitionValues":{},"size":8,"modificationTime":3,"dataChange":true,"stats":"{\"numRecords\":1}"}}
`
	if string(body) != want {
		t.Errorf("got\n%s\nwant\n%s", body, want)
	}
	back, err := parseCommit(9, body)
	if err != nil || back.Info.ExecutionID != "E" || !back.Info.Own() || back.Info.Metrics["numOutputRows"] != 3 || back.Info.readVersion != 6 || back.Info.nonce != "N" {
		t.Errorf("read back as %+v, %v", back.Info, err)
	}
}

// Other engines write commitInfo as they like; nothing in it may keep a table from being read.
func TestCommitInfoOfOthersIsReadLeniently(t *testing.T) {
	c, err := parseCommit(1, []byte(strings.Join([]string{
		`{"commitInfo":{"timestamp":"then","operation":7,"operationParameters":["x"],"operationMetrics":{"a":"5","b":6,"c":{}},"engineInfo":"Apache-Spark/4.0","readVersion":3,"more":[[]]}}`,
		`{"somethingNew":{"x":1}}`, ``, `{"txn":{"appId":"x","version":1,"unknown":true}}`,
	}, "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	i := c.Info
	if i.Timestamp != 0 || i.Operation != "" || i.Engine != "Apache-Spark/4.0" || i.Own() || i.readVersion != 3 || i.Metrics["a"] != 5 || i.Metrics["b"] != 6 || len(i.Metrics) != 2 || len(c.Txns) != 1 {
		t.Errorf("%+v", c)
	}
	if c, err := parseCommit(1, []byte(`{"commitInfo":"free text"}`)); err != nil || c.Info.Own() {
		t.Errorf("%+v, %v", c, err)
	}
}
