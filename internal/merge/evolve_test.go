package merge

import (
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"tidemark/internal/deltalog"
	"tidemark/internal/table"
)

// sealJSON seals rows given as JSON objects under a schema.
func (w *world) sealJSON(shard string, fields []arrow.Field, rows string) {
	w.t.Helper()
	rec, _, err := array.RecordFromJSON(w.mem, arrow.NewSchema(fields, nil), strings.NewReader(rows))
	if err != nil {
		w.t.Fatal(err)
	}
	defer rec.Release()
	w.sealRecord(shard, rec)
}

// json is the base table as JSON, file by file.
func (w *world) json() string {
	var b strings.Builder
	w.baseRecords(w.load(), func(_ deltalog.Add, rec arrow.Record) {
		text, err := rec.MarshalJSON()
		if err != nil {
			w.t.Fatal(err)
		}
		b.Write(text)
	})
	return strings.Join(strings.Fields(b.String()), "")
}

var (
	fieldKey   = arrow.Field{Name: "key", Type: arrow.BinaryTypes.String}
	fieldInt   = arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true}
	fieldLong  = arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	fieldText  = arrow.Field{Name: "n", Type: arrow.BinaryTypes.String, Nullable: true}
	fieldAdded = arrow.Field{Name: "added", Type: arrow.BinaryTypes.String, Nullable: true}
	fieldOp    = arrow.Field{Name: "_op", Type: arrow.BinaryTypes.String, Nullable: true}
)

func evolvingTable(key ...string) table.CreateOptions {
	return table.CreateOptions{Schema: schemaOf(arrow.NewSchema([]arrow.Field{fieldKey, fieldInt}, nil)), Key: key, Buckets: len(key)}
}

func TestAColumnIsAddedAndATypeWidenedInTheCommitThatFirstMeetsThem(t *testing.T) {
	w := newWorld(t, evolvingTable())
	w.sealJSON("a", []arrow.Field{fieldKey, fieldInt}, `[{"key":"1","n":1}]`)
	w.merge("a")
	version := w.load().Snapshot.Version
	w.sealJSON("a", []arrow.Field{fieldLong, fieldAdded, fieldKey}, `[{"key":"2","n":20000000000,"added":"x"}]`)
	w.sealJSON("a", []arrow.Field{fieldKey, fieldInt}, `[{"key":"3","n":3}]`)
	w.merge("a")
	now := w.load()
	if now.Snapshot.Version != version+1 {
		t.Fatalf("%d commits", now.Snapshot.Version-version)
	}
	if f, ok := now.Schema.Field("added"); !ok || !f.Nullable {
		t.Fatalf("schema %s", now.Schema)
	}
	if f, _ := now.Schema.Field("n"); f.Type.Kind != "long" {
		t.Fatalf("schema %s", now.Schema)
	}
	p := now.Snapshot.Protocol
	if !p.Has(deltalog.FeatureTypeWidening) || now.Snapshot.Metadata.Configuration["delta.enableTypeWidening"] != "true" {
		t.Fatalf("protocol %+v, configuration %v", p, now.Snapshot.Metadata.Configuration)
	}
	want := `[{"added":"x","key":"2","n":20000000000},{"added":null,"key":"3","n":3}]`
	if got := w.json(); !strings.Contains(got, want) {
		t.Fatalf("%s\nlacks %s", got, want)
	}
}

func TestUpsertRewritesTouchedFilesInTheNewSchema(t *testing.T) {
	w := newWorld(t, evolvingTable("key"))
	w.sealJSON("bucket-0000", []arrow.Field{fieldKey, fieldInt, fieldOp}, `[{"key":"a","n":1},{"key":"b","n":2}]`)
	w.merge("bucket-0000")
	w.sealJSON("bucket-0000", []arrow.Field{fieldKey, fieldLong, fieldAdded, fieldOp}, `[{"key":"b","n":3,"added":"x"},{"key":"c","n":4,"added":"y"}]`)
	w.merge("bucket-0000")
	want := `[{"added":null,"key":"a","n":1},{"added":"x","key":"b","n":3},{"added":"y","key":"c","n":4}]`
	if got := w.json(); got != want {
		t.Fatalf("%s\nwant %s", got, want)
	}
}

func TestASchemaClashStopsItsShardAndShowsBothSchemas(t *testing.T) {
	w := newWorld(t, evolvingTable())
	w.sealJSON("a", []arrow.Field{fieldKey, fieldInt}, `[{"key":"1","n":1}]`)
	w.sealJSON("a", []arrow.Field{fieldKey, fieldText}, `[{"key":"2","n":"two"}]`)
	w.sealJSON("a", []arrow.Field{fieldKey, fieldInt}, `[{"key":"3","n":3}]`)
	w.sealJSON("b", []arrow.Field{fieldKey, fieldInt, fieldAdded}, `[{"key":"4","n":4,"added":"x"}]`)
	w.sealJSON("c", []arrow.Field{fieldKey, fieldInt, fieldOp}, `[{"key":"5","n":5,"_op":"d"}]`)
	out, err := Run(w.ctx, w.deps(), w.request("a", "b", "c"))
	if err != nil {
		t.Fatal(err)
	}
	expectFailures(t, out, "a 2 schema_clash data", "c 1 schema_clash data")
	for _, part := range []string{"shard a, generation 2", "n: integer", "n: string"} {
		if !strings.Contains(out.Failures[0].Message, part) {
			t.Errorf("%q is not in: %s", part, out.Failures[0].Message)
		}
	}
	if got, want := w.json(), `[{"added":null,"key":"1","n":1},{"added":"x","key":"4","n":4}]`; got != want {
		t.Fatalf("%s\nwant %s", got, want)
	}
}

func TestAKeyColumnKeepsItsOrder(t *testing.T) {
	keyInt := arrow.Field{Name: "key", Type: arrow.PrimitiveTypes.Int32}
	keyLong := arrow.Field{Name: "key", Type: arrow.PrimitiveTypes.Int64}
	keyDouble := arrow.Field{Name: "key", Type: arrow.PrimitiveTypes.Float64}
	w := newWorld(t, table.CreateOptions{
		Schema: schemaOf(arrow.NewSchema([]arrow.Field{keyInt, fieldLong}, nil)), Key: []string{"key"}, Buckets: 1,
	})
	w.sealJSON("bucket-0000", []arrow.Field{keyInt, fieldLong, fieldOp}, `[{"key":-1,"n":1},{"key":7,"n":2}]`)
	w.merge("bucket-0000")
	w.sealJSON("bucket-0000", []arrow.Field{keyLong, fieldLong, fieldOp}, `[{"key":7,"n":3},{"key":5000000000,"n":4}]`)
	w.sealJSON("bucket-0000", []arrow.Field{keyDouble, fieldLong, fieldOp}, `[{"key":0.5,"n":5}]`)
	out, err := Run(w.ctx, w.deps(), w.request("bucket-0000"))
	if err != nil {
		t.Fatal(err)
	}
	expectFailures(t, out, "bucket-0000 3 schema_clash data")
	if got, want := w.json(), `[{"key":-1,"n":1},{"key":7,"n":3},{"key":5000000000,"n":4}]`; got != want {
		t.Fatalf("%s\nwant %s", got, want)
	}
}

func TestAMergePlannedBeforeAColumnWasAddedPlansAgain(t *testing.T) {
	w := newWorld(t, evolvingTable())
	w.sealJSON("a", []arrow.Field{fieldKey, fieldInt}, `[{"key":"1","n":1}]`)
	w.sealJSON("b", []arrow.Field{fieldKey, fieldInt, fieldAdded}, `[{"key":"2","n":2,"added":"x"}]`)
	arrived, release, result := w.gated("a")
	<-arrived
	w.merge("b")
	release()
	if out := result(); len(out.Commits) != 1 {
		t.Fatalf("%+v", out)
	}
	w.expectNoStrayFiles()
	got := w.json()
	for _, want := range []string{`{"added":null,"key":"1","n":1}`, `{"added":"x","key":"2","n":2}`} {
		if !strings.Contains(got, want) {
			t.Fatalf("%s lacks %s", got, want)
		}
	}
}
