package merge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"tidemark/internal/deltalog"
)

// Compaction joins files of one partition only, in that partition's folder, and the rows stay.
func TestCompactionKeepsPartitionsApart(t *testing.T) {
	o := parsedSchema(t, `p string, id long`)
	o.PartitionBy = []string{"p"}
	w := newWorld(t, o)
	for i := range 6 {
		rec := fromJSON(w, fmt.Sprintf(`[{"p":"a b","id":%d},{"p":null,"id":%d},{"p":"c/d","id":%d}]`, 3*i, 3*i+1, 3*i+2))
		w.sealRecord("a", rec)
		rec.Release()
		w.merge("a")
	}
	before := scanned(w)
	if files := len(w.liveFiles()); files != 18 {
		t.Fatalf("%d files before", files)
	}
	if _, err := Compact(w.ctx, w.deps(), CompactRequest{Table: tableName, Execution: "compaction", Budget: 256 << 20}); err != nil {
		t.Fatal(err)
	}
	if after := scanned(w); !slices.Equal(after, before) {
		t.Errorf("the rows are %q, and were %q", after, before)
	}
	var folders []string
	for add := range w.load().Snapshot.Files() {
		folder, _, _ := strings.Cut(add.Path, "/part-")
		folders = append(folders, folder+" "+add.PartitionValues["p"])
		if n, _ := add.Rows(); n != 6 {
			t.Errorf("%s holds %d rows", add.Path, n)
		}
	}
	slices.Sort(folders)
	if want := []string{"p=__HIVE_DEFAULT_PARTITION__ ", "p=a%20b a b", "p=c%2Fd c/d"}; !slices.Equal(folders, want) {
		t.Errorf("files lie in %q, want %q", folders, want)
	}
	w.expectNoStrayFiles()
}

// Small records whose rows all lie in partitions of their own: what is held beside the rows is counted too.
func TestTheNumberOfPartitionsCostsNoMemory(t *testing.T) {
	o := parsedSchema(t, `p integer, id long`)
	o.PartitionBy = []string{"p"}
	w := newWorld(t, o)
	a := &attempt{execution: newExecution(w.deps(), w.request("a")), share: 16 << 20, target: 1 << 30, rowGroupBytes: 1 << 20, partitions: []string{"p"}}
	a.shape = shape{mem: w.mem, arrow: w.table.Schema.Arrow()}
	r := newRouter(a, &numbers{step: 1})
	defer r.abort(w.ctx)
	most := 0
	for p := range int32(3000) {
		b := array.NewRecordBuilder(w.mem, w.table.Schema.Arrow())
		b.Field(0).(*array.Int32Builder).Append(p)
		b.Field(1).(*array.Int64Builder).Append(1)
		one := b.NewRecord()
		b.Release()
		err := r.add(w.ctx, portion{rows: one})
		one.Release()
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(r.held))
		if len(r.keys) > len(r.held)+routerOpenMax || len(r.known) != len(r.keys) || len(r.of) != len(r.held) {
			t.Fatalf("%d keys, %d numbers and %d places are kept for %d rows", len(r.keys), len(r.known), len(r.of), len(r.held))
		}
	}
	if limit := int(a.share/4/heldRecord) + 1; most > limit {
		t.Errorf("%d records were held, want at most %d", most, limit)
	}
	adds, err := r.end(w.ctx)
	if err != nil || len(adds) != 3000 {
		t.Errorf("%d files, %v; want one a partition", len(adds), err)
	}
}

func TestAPartitionColumnKeepsItsType(t *testing.T) {
	o := parsedSchema(t, `p integer, id long`)
	o.PartitionBy = []string{"p"}
	w := newWorld(t, o)
	rec := fromJSON(w, `[{"p":1,"id":1}]`)
	w.sealRecord("good", rec)
	rec.Release()
	for shard, kind := range map[string]arrow.DataType{"longer": arrow.PrimitiveTypes.Int64, "real": arrow.PrimitiveTypes.Float64} {
		w.sealJSON(shard, []arrow.Field{{Name: "p", Type: kind, Nullable: true}, {Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, `[{"p":2,"id":2}]`)
	}
	w.sealJSON("narrower", []arrow.Field{{Name: "p", Type: arrow.PrimitiveTypes.Int8, Nullable: true}, {Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, `[{"p":3,"id":3}]`)
	out, err := Run(w.ctx, w.deps(), w.request("good", "longer", "real", "narrower"))
	if err != nil || len(out.Failures) != 2 {
		t.Fatalf("%+v, %v", out.Failures, err)
	}
	for _, f := range out.Failures {
		if f.Code != "schema_clash" || !strings.Contains(f.Message, "partition column") || !strings.Contains(f.Message, "the table has (p: integer") {
			t.Errorf("%+v", f)
		}
	}
	if got := scanned(w); !slices.Equal(got, []string{"1|1", "3|3"}) {
		t.Errorf("the table holds %q", got)
	}
}

// Who reads only partition columns still gets every row.
func TestPartitionColumnsAreReadAlone(t *testing.T) {
	o := parsedSchema(t, `p string, id long`)
	o.PartitionBy = []string{"p"}
	w := newWorld(t, o)
	rec := fromJSON(w, `[{"p":"x","id":1},{"p":"y","id":2},{"p":"x","id":3}]`)
	w.sealRecord("a", rec)
	rec.Release()
	w.merge("a")
	_, rows, err := Scan(w.ctx, w.deps(), tableName, ScanOptions{Columns: []string{"p"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for rec, err := range rows {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, textRows(rec)...)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"x", "x", "y"}) {
		t.Errorf("got %q", got)
	}
}

// What another engine has written into the log as a partition's value, and is none, is named.
func TestAPartitionValueThatIsNoneEndsAScanWithItsFile(t *testing.T) {
	o := parsedSchema(t, `p integer, id long`)
	o.PartitionBy = []string{"p"}
	w := newWorld(t, o)
	rec := fromJSON(w, `[{"p":1,"id":1}]`)
	w.sealRecord("a", rec)
	rec.Release()
	w.merge("a")
	s := w.load().Snapshot
	for add := range s.Files() {
		add.PartitionValues = map[string]string{"p": "one"}
		in := deltalog.Intent{TableID: w.table.ID, Read: s, Adds: []deltalog.Add{add}, Info: deltalog.CommitInfo{Operation: "WRITE"}}
		if _, err := w.table.Log.Commit(w.ctx, in); err != nil {
			t.Fatal(err)
		}
		_, rows, err := Scan(w.ctx, w.deps(), tableName, ScanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, err = range rows {
		}
		if err == nil || !strings.Contains(err.Error(), add.Path) || !strings.Contains(err.Error(), `partition column "p": "one" is no int32`) {
			t.Errorf("%v", err)
		}
	}
}
