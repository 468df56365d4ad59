package deltalog

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/random"
)

// newLog returns the log of a table "t" with the id "T" that exists at version 0.
func newLog(t testing.TB, s objstore.Store, c clock.Clock) (*Log, *Snapshot) {
	t.Helper()
	return newLogWith(t, s, c, NewProtocol(false, false), nil)
}

func newLogWith(t testing.TB, s objstore.Store, c clock.Clock, p Protocol, properties map[string]string) (*Log, *Snapshot) {
	t.Helper()
	l := Open(s, "t", Options{Clock: c, Random: random.Seeded(1)})
	snapshot, err := l.Create(context.Background(), p, Metadata{ID: "T", SchemaString: schemaPlain, Configuration: properties}, CommitInfo{Operation: "CREATE TABLE"})
	if err != nil {
		t.Fatal(err)
	}
	return l, snapshot
}

// merge is the intent to merge generations (from, to] of shard a as one new file.
func merge(s *Snapshot, execution string, from, to int64) Intent {
	return Intent{
		TableID: s.Metadata.ID, Read: s,
		Marks: map[string]MarkChange{AppID(s.Metadata.ID, "a"): {from, to}},
		Adds:  []Add{{Path: fmt.Sprintf("part-%s-%d.parquet", execution, to), Size: 10 * (to - from), DataChange: true, Stats: fmt.Sprintf(`{"numRecords":%d}`, to-from)}},
		Info:  CommitInfo{Operation: "MERGE", ExecutionID: execution, Metrics: map[string]int64{"numOutputRows": to - from}},
	}
}

// grow commits merges of one generation each until the log is at a version.
func grow(t testing.TB, l *Log, s *Snapshot, version int64) *Snapshot {
	t.Helper()
	for s.Version < version {
		from := s.Mark("a")
		res, err := l.Commit(context.Background(), merge(s, fmt.Sprintf("grow%d", s.Version), from, from+1))
		if err != nil {
			t.Fatal(err)
		}
		s = res.Snapshot
	}
	return s
}

// foreign puts a version that another engine wrote.
func foreign(t testing.TB, s objstore.Store, version int64, lines ...string) {
	t.Helper()
	body := `{"commitInfo":{"operation":"WRITE","engineInfo":"Apache-Spark/4.0"}}` + "\n"
	for _, line := range lines {
		body += line + "\n"
	}
	if r := s.PutIfAbsent(context.Background(), "t/_delta_log/"+commitName(version), []byte(body)); r.Err != nil {
		t.Fatal(r.Err)
	}
}

// putDataFile writes a real data file with a column id from first, first+1 …
func putDataFile(t testing.TB, s objstore.Store, path string, first, rows int64) Add {
	return putDataFileOf(t, s, path, arrow.PrimitiveTypes.Int64, first, rows)
}

func putDataFileOf(t testing.TB, s objstore.Store, path string, typ arrow.DataType, first, rows int64) Add {
	t.Helper()
	columns := arrow.NewSchema([]arrow.Field{{Name: "id", Type: typ, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, columns)
	defer b.Release()
	for i := range rows {
		switch ids := b.Field(0).(type) {
		case *array.Int64Builder:
			ids.Append(first + i)
		case *array.Int32Builder:
			ids.Append(int32(first + i))
		}
	}
	rec := b.NewRecord()
	defer rec.Release()
	var body bytes.Buffer
	w, err := parquetfile.NewWriter(&body, columns, parquetfile.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(rec); err != nil {
		t.Fatal(err)
	}
	sum, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if r := s.PutIfAbsent(context.Background(), "t/"+path, body.Bytes()); r.Err != nil {
		t.Fatal(r.Err)
	}
	return Add{Path: path, Size: int64(body.Len()), DataChange: true, Stats: sum.Stats.JSON()}
}

// equalState fails unless two snapshots show the same table.
func equalState(t testing.TB, got, want *Snapshot) {
	t.Helper()
	if got.Version != want.Version || !got.Protocol.Equal(want.Protocol) || !got.Metadata.Equal(want.Metadata) {
		t.Fatalf("got version %d %+v %+v, want %d %+v %+v", got.Version, got.Protocol, got.Metadata, want.Version, want.Protocol, want.Metadata)
	}
	if g, w := dump(got), dump(want); g != w {
		t.Fatalf("got\n%s\nwant\n%s", g, w)
	}
	if got.Bytes() != want.Bytes() || got.Memory() != want.Memory() {
		t.Fatalf("got %d bytes, %d in memory, want %d, %d", got.Bytes(), got.Memory(), want.Bytes(), want.Memory())
	}
}

func dump(s *Snapshot) string {
	var b bytes.Buffer
	for f := range s.Files() {
		f.DataChange = false
		fmt.Fprintf(&b, "file %+v\n", f)
	}
	for r := range s.Tombstones() {
		fmt.Fprintf(&b, "tombstone %s %d %d\n", r.Path, r.DeletionTimestamp, r.Size)
	}
	for x := range s.Txns() {
		fmt.Fprintf(&b, "txn %+v\n", x)
	}
	return b.String()
}
