package deltalog

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

// Whatever stands in the log, reading it is a commit or an error, and what is read can be written and read again.
func FuzzParseCommit(f *testing.F) {
	c := Commit{
		Version: 3, Info: CommitInfo{Operation: "MERGE", ExecutionID: "x", Metrics: map[string]int64{"rows": 1}, nonce: "n", readVersion: 2},
		Adds: []Add{{Path: "a b", Size: 1, DataChange: true, Stats: "{}", Tags: map[string]string{"k": "v"}}}, Removes: []Remove{{Path: "é"}},
		Txns: []Txn{{AppID: "x", Version: 1, LastUpdated: 2}}, Protocol: &Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{}},
		Metadata: &Metadata{ID: "T", SchemaString: schemaPlain},
	}
	whole, err := encodeCommit(c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"add":{"path":"x=%25é","partitionValues":{"x":null},"size":1,"modificationTime":1,"dataChange":true,"tags":null}}`))
	f.Add([]byte(`{"commitInfo":{"operationMetrics":{"a":"7","b":[1]},"operationParameters":"odd","timestamp":"1"}}` + "\r\n\n{}"))
	f.Add([]byte(`{"remove":{"path":"s3://b/k","deletionTimestamp":1,"dataChange":false,"size":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		first, err := parseCommit(7, body)
		if err != nil {
			return
		}
		again, err := encodeCommit(first)
		if err != nil {
			t.Fatal(err)
		}
		second, err := parseCommit(7, again)
		if err != nil {
			t.Fatalf("%q was read and written as %q: %v", body, again, err)
		}
		if len(second.Adds) != len(first.Adds) || len(second.Removes) != len(first.Removes) || len(second.Txns) != len(first.Txns) {
			t.Fatalf("%q became %q", body, again)
		}
		for i := range first.Adds {
			if first.Adds[i].Path != second.Adds[i].Path {
				t.Fatalf("path %q became %q", first.Adds[i].Path, second.Adds[i].Path)
			}
		}
		_ = (&Snapshot{}).apply(first)
	})
}

// Whatever stands in a checkpoint, reading it is a snapshot or a typed error.
func FuzzReadCheckpoint(f *testing.F) {
	s := &Snapshot{Version: 4, Protocol: NewProtocol(true, true), Metadata: Metadata{ID: "T", SchemaString: schemaPlain, Configuration: map[string]string{"a": "b"}}.normal()}
	s.setFile(newFile(Add{Path: "a b", Size: 1, Stats: `{"numRecords":1}`, Tags: map[string]string{TagBucket: "bucket-0001"}}))
	s.setTombstone("gone", tombstone{at: 5, size: 6})
	s.setTxn(Txn{AppID: "x", Version: 7, LastUpdated: 8})
	var whole bytes.Buffer
	if err := encodeCheckpoint(&whole, s); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	f.Add(whole.Bytes()[:whole.Len()/2])
	f.Add([]byte("PAR1PAR1"))
	f.Fuzz(func(t *testing.T, body []byte) {
		c := clock.System()
		store := objstore.NewMemory(c)
		const key = "t/_delta_log/00000000000000000004.checkpoint.parquet"
		if r := store.PutIfAbsent(context.Background(), key, body); r.Err != nil {
			t.Skip(r.Err)
		}
		_, err := open(store, c).readCheckpoint(context.Background(), checkpointFiles{4, []objstore.Info{{Key: key, Size: int64(len(body))}}})
		var damaged *CheckpointError
		var refused *UnsupportedError
		if err != nil && !errors.As(err, &damaged) && !errors.As(err, &refused) {
			t.Fatalf("untyped: %v", err)
		}
	})
}

func FuzzPaths(f *testing.F) {
	for _, uri := range []string{"a%20b", "%", "s3://b/%zz", "a:/b", "x=é", "%2e%2e/a"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		path, err := decodePath(uri)
		if err != nil || absolutePath(path) {
			return
		}
		if back, err := decodePath(encodePath(path)); err != nil || back != path {
			t.Fatalf("%q decodes to %q, which comes back as %q, %v", uri, path, back, err)
		}
	})
}

// Whatever stands in _last_checkpoint, it is a hint at most: the table is the same.
func FuzzLastCheckpoint(f *testing.F) {
	f.Add([]byte(`{"version":0,"size":2}`))
	f.Add([]byte(`{"version":9223372036854775807,"size":1,"parts":3}`))
	f.Add([]byte(`{"version":-1}`))
	f.Add([]byte(`{"version":"0"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ctx := context.Background()
		store := objstore.NewMemory(clock.System())
		log := Open(store, "t", Options{Clock: clock.System(), Random: random.Seeded(1)})
		if _, err := log.Create(ctx, NewProtocol(false, false), Metadata{ID: "T", SchemaString: schemaPlain}, CommitInfo{Operation: "CREATE TABLE"}); err != nil {
			t.Fatal(err)
		}
		if r := store.PutIfAbsent(ctx, log.key(lastCheckpointName), body); r.Err != nil {
			t.Fatal(r.Err)
		}
		s, err := Open(store, "t", Options{Clock: clock.System(), Random: random.Seeded(1)}).Snapshot(ctx)
		if err != nil || s.Version != 0 || s.Metadata.ID != "T" {
			t.Fatalf("with %q the table is %+v, %v", body, s, err)
		}
	})
}
