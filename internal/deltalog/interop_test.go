package deltalog

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/test/readers"
)

// python runs testdata/interop.py.
func python(t *testing.T, into any, args ...string) {
	t.Helper()
	readers.Run(t, into, append([]string{"testdata/interop.py"}, args...)...)
}

type seenTable struct {
	Rows, Sum, Version int64
	Files              []string
	Protocol           []int32
	Operation          string
	Error              string
}

func localStore(t *testing.T, dir string) objstore.Store {
	t.Helper()
	s, err := objstore.Open(context.Background(), dir, objstore.Options{Clock: clock.System(), Random: random.New()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// look is a state of a table that other engines are asked about, kept as a copy: starting them is slow, so they are
// asked about all states of a test at once.
type look struct {
	dir       string
	name      string
	want      *Snapshot
	rows, sum int64
}

type looks []look

// take keeps the state of the table t below a root.
func (l *looks) take(t *testing.T, name, root string, want *Snapshot, rows, sum int64) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	*l = append(*l, look{dir + "/t", name, want, rows, sum})
}

// expect asks both readers what they see.
func (l looks) expect(t *testing.T) {
	t.Helper()
	args := []string{"read"}
	for _, state := range l {
		args = append(args, state.dir)
	}
	var seen []map[string]seenTable
	python(t, &seen, args...)
	for i, state := range l {
		for reader, got := range seen[i] {
			if got.Rows != state.rows || got.Sum != state.sum {
				t.Errorf("%s: %s sees %d rows with the sum %d, want %d and %d; %s", state.name, reader, got.Rows, got.Sum, state.rows, state.sum, got.Error)
			}
		}
		var files []string
		for f := range state.want.Files() {
			files = append(files, encodeAdd(f).Path)
		}
		rs, protocol := seen[i]["delta-rs"], state.want.Protocol
		if rs.Version != state.want.Version || !slices.Equal(rs.Files, files) || !slices.Equal(rs.Protocol, []int32{protocol.MinReaderVersion, protocol.MinWriterVersion}) {
			t.Errorf("%s: delta-rs sees version %d, protocol %v, files %v; want %d, %v, %v", state.name, rs.Version, rs.Protocol, rs.Files, state.want.Version, protocol, files)
		}
	}
}

// kindOfTable is a protocol with a schema that needs it.
type kindOfTable struct {
	name     string
	protocol Protocol
	schema   string
	tags     map[string]string
	mode     string
}

func TestOtherEnginesReadWhatIsCommittedAndCheckpointed(t *testing.T) {
	var states looks
	for _, c := range []kindOfTable{
		{name: "append", protocol: NewProtocol(false, false), schema: schemaPlain, mode: "append"},
		{name: "upsert", protocol: NewProtocol(true, false), schema: schemaPlain, tags: map[string]string{TagBucket: "bucket-0001", TagKeyMin: "AA==", TagKeyMax: "/w=="}, mode: modeUpsert},
		{name: "upsert with timestampNtz", protocol: NewProtocol(true, true), schema: `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},{"name":"at","type":"timestamp_ntz","nullable":true,"metadata":{}}]}`,
			tags: map[string]string{TagBucket: "bucket-0001"}, mode: modeUpsert},
	} {
		c.live(t, &states)
	}
	states.expect(t)
}

// live leads a table of the kind through commits and a checkpoint and keeps a look at each state.
func (c kindOfTable) live(t *testing.T, states *looks) {
	t.Helper()
	root, ctx := t.TempDir(), context.Background()
	s := localStore(t, root)
	l := Open(s, "t", Options{Clock: clock.System(), Random: random.New()})
	m := Metadata{ID: "8b3ba2b8-7f8e-4b25-9a2f-8d1e3a2d9c11", SchemaString: c.schema, CreatedTime: time.Now().UnixMilli(),
		Configuration: map[string]string{PropertyMode: c.mode, "tidemark.policy.max_wait": "60s", "delta.deletedFileRetentionDuration": "interval 2 days"}}
	snapshot, err := l.Create(ctx, c.protocol, m, CommitInfo{Operation: "CREATE TABLE"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(3) {
		in := merge(snapshot, "x", i, i+1)
		in.Adds = []Add{putDataFile(t, s, "part with space%-"+string(rune('a'+i))+".parquet", 100*i, 100)}
		in.Adds[0].Tags = c.tags
		in.Upsert, in.Buckets = c.mode == modeUpsert, []string{"bucket-0001"}
		res, err := l.Commit(ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		snapshot = res.Snapshot
	}
	states.take(t, c.name+", three files", root, snapshot, 300, 299*300/2)

	// One file is rewritten with fewer rows.
	in := merge(snapshot, "y", 3, 4)
	in.Adds = []Add{putDataFile(t, s, "smaller.parquet", 0, 50)}
	in.Adds[0].Tags = c.tags
	in.Removes = []Remove{{Path: "part with space%-a.parquet", DataChange: true}}
	res, err := l.Commit(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	snapshot = res.Snapshot
	const rows, sum = 250, 299*300/2 - 99*100/2 + 49*50/2
	states.take(t, c.name+", one rewritten", root, snapshot, rows, sum)

	// From the checkpoint alone.
	if err := l.Checkpoint(ctx, snapshot); err != nil {
		t.Fatal(err)
	}
	for v := range snapshot.Version + 1 {
		if err := os.Remove(filepath.Join(root, "t/_delta_log", commitName(v))); err != nil {
			t.Fatal(err)
		}
	}
	states.take(t, c.name+", from the checkpoint alone", root, snapshot, rows, sum)
	again, err := l.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	equalState(t, again, snapshot)
}

// A widened column needs a reader feature, as the protocol says. DuckDB has it; delta-rs does not yet, and says so rather
// than read the table wrong.
func TestAColumnThatWasWidenedIsReadOrRefusedByName(t *testing.T) {
	root, ctx := t.TempDir(), context.Background()
	s := localStore(t, root)
	l := Open(s, "t", Options{Clock: clock.System(), Random: random.New()})
	narrow := strings.Replace(schemaPlain, `"long"`, `"integer"`, 1)
	m := Metadata{ID: "8b3ba2b8-7f8e-4b25-9a2f-8d1e3a2d9c11", SchemaString: narrow}
	snapshot, err := l.Create(ctx, NewProtocol(false, false), m, CommitInfo{Operation: "CREATE TABLE"})
	if err != nil {
		t.Fatal(err)
	}
	in := merge(snapshot, "x", 0, 1)
	in.Adds = []Add{putDataFileOf(t, s, "narrow.parquet", arrow.PrimitiveTypes.Int32, 0, 100)}
	res, err := l.Commit(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	in = merge(res.Snapshot, "y", 1, 2)
	in.Adds = []Add{putDataFile(t, s, "wide.parquet", 1<<40, 1)}
	protocol := res.Snapshot.Protocol.With(FeatureTypeWidening)
	m.SchemaString, m.Configuration = schemaWide, map[string]string{"delta.enableTypeWidening": "true"}
	in.Metadata, in.Protocol = &m, &protocol
	if _, err = l.Commit(ctx, in); err != nil {
		t.Fatal(err)
	}
	var all []map[string]seenTable
	python(t, &all, "read", root+"/t")
	seen := all[0]
	if got := seen["duckdb"]; got.Rows != 101 || got.Sum != 99*100/2+1<<40 {
		t.Errorf("DuckDB sees %+v", got)
	}
	if got := seen["delta-rs"]; !strings.Contains(got.Error, "typeWidening") {
		t.Errorf("delta-rs sees %+v", got)
	}
}

func TestOtherEnginesRefuseToWriteToAnUpsertTable(t *testing.T) {
	args := []string{"append"}
	for _, upsert := range []bool{false, true} {
		root := t.TempDir()
		l := Open(localStore(t, root), "t", Options{Clock: clock.System(), Random: random.New()})
		m := Metadata{ID: "8b3ba2b8-7f8e-4b25-9a2f-8d1e3a2d9c11", SchemaString: schemaPlain}
		if _, err := l.Create(context.Background(), NewProtocol(upsert, false), m, CommitInfo{Operation: "CREATE TABLE"}); err != nil {
			t.Fatal(err)
		}
		args = append(args, root+"/t")
	}
	var outcomes []string
	python(t, &outcomes, args...)
	if outcomes[0] != "ok" || !strings.Contains(outcomes[1], FeatureUpsert) {
		t.Errorf("appending to an append and to an upsert table: %q", outcomes)
	}
}

func TestTablesOfDeltaRSAreRead(t *testing.T) {
	root, ctx := t.TempDir(), context.Background()
	var written map[string]seenTable
	python(t, &written, "write", root)
	s := localStore(t, root)
	for name, want := range written {
		t.Run(name, func(t *testing.T) {
			l := Open(s, name, Options{Clock: clock.System(), Random: random.New()})
			snapshot, err := l.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var files []string
			rows := int64(0)
			for f := range snapshot.Files() {
				files = append(files, encodeAdd(f).Path)
				n, _ := f.Rows()
				rows += n
				if info, err := s.Head(ctx, name+"/"+f.Path); err != nil || info.Size != f.Size {
					t.Errorf("file %s: %+v, %v", f.Path, info, err)
				}
			}
			slices.Sort(files)
			if snapshot.Version != want.Version || rows != want.Rows || !slices.Equal(files, want.Files) {
				t.Errorf("version %d, %d rows, files %v; want %d, %d, %v", snapshot.Version, rows, files, want.Version, want.Rows, want.Files)
			}
			// Replaying the log without its checkpoint gives the same.
			hidden := filepath.Join(root, name, "_delta_log", lastCheckpointName)
			checkpoints, _ := filepath.Glob(filepath.Join(root, name, "_delta_log", "*.parquet"))
			for _, f := range append(checkpoints, hidden) {
				if err := os.Remove(f); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			replayed, err := l.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if name != "rewritten" { // its tombstones differ: delta-rs keeps no size of theirs
				equalState(t, replayed, snapshot)
			}
		})
	}
	l := Open(s, "plain", Options{Clock: clock.System(), Random: random.New()})
	snapshot, err := l.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := snapshot.Txn("app"); !ok || v != 22 {
		t.Errorf("transaction app is at %d, %t", v, ok)
	}
	if err := l.Checkpoint(ctx, snapshot); err != nil {
		t.Fatal(err)
	}
	var seen []map[string]seenTable
	python(t, &seen, "read", root+"/plain")
	for reader, got := range seen[0] {
		if got.Rows != written["plain"].Rows || got.Sum != written["plain"].Sum {
			t.Errorf("%s sees %d rows with the sum %d after Tidemark's checkpoint, want %d and %d", reader, got.Rows, got.Sum, written["plain"].Rows, written["plain"].Sum)
		}
	}
}
