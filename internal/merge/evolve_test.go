package merge

import (
	"fmt"
	"slices"
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

// inner is a column that holds structs of fields: alone, in a list and in a map.
func inner(fields ...arrow.Field) []arrow.Field {
	s := arrow.StructOf(fields...)
	return []arrow.Field{
		fieldKey, {Name: "s", Type: s, Nullable: true}, {Name: "l", Type: arrow.ListOf(s), Nullable: true},
		{Name: "m", Type: arrow.MapOf(arrow.BinaryTypes.String, s), Nullable: true},
	}
}

// Rows from before and after a field was added to a struct, wherever the struct is, are both there, with nulls in the older
// ones; so are structs that are null themselves.
func TestAFieldAddedToAStructIsNullInOlderRows(t *testing.T) {
	old, wider := inner(fieldInt), inner(fieldInt, fieldAdded)
	oldRows := func(key string) string {
		return `{"key":"` + key + `","s":{"n":1},"l":[{"n":2},null],"m":[{"key":"x","value":{"n":3}},{"key":"y","value":null}]},
			{"key":"` + key + `-","s":null,"l":[],"m":null}`
	}
	seenAs := func(key string) []string {
		return []string{`"` + key + `"|{1,null}|[{2,null},null]|[{"x",{3,null}},{"y",null}]`, `"` + key + `-"|null|[]|null`}
	}
	newRow := `{"key":"2","s":{"n":4,"added":"s"},"l":[{"n":null,"added":"l"},null],"m":[{"key":"x","value":{"n":6,"added":"m"}}]}`
	seenNew := `"2"|{4,"s"}|[{null,"l"},null]|[{"x",{6,"m"}}]`
	for name, c := range map[string]struct {
		key    []string
		joined int64
	}{"decoded": {}, "joined": {joined: 1}, "upsert": {key: []string{"key"}}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, table.CreateOptions{Schema: schemaOf(arrow.NewSchema(old, nil)), Key: c.key, Buckets: len(c.key)})
			shard := "a"
			if c.key != nil {
				shard = w.buckets()[0]
			}
			merge := func() {
				t.Helper()
				d := w.deps()
				d.joinedBytes = c.joined
				if out, err := Run(w.ctx, d, w.request(shard)); err != nil || len(out.Failures) > 0 {
					t.Fatal(err, out.Failures)
				}
			}
			w.sealJSON(shard, old, "["+oldRows("1")+"]")
			merge()
			w.sealJSON(shard, old, "["+oldRows("0")+"]")
			w.sealJSON(shard, wider, "["+newRow+"]")
			w.sealJSON(shard, old, "["+oldRows("3")+"]")
			merge()
			want := slices.Sorted(slices.Values(slices.Concat(seenAs("0"), seenAs("1"), []string{seenNew}, seenAs("3"))))
			if got := w.cells(); !slices.Equal(got, want) {
				t.Errorf("the table holds\n%q\nwant\n%q", got, want)
			}
			// What is rewritten, by a merge of an upsert table or by a compaction, keeps the field.
			w.sealJSON(shard, old, "["+oldRows("4")+"]")
			merge()
			want = append(want, seenAs("4")...)
			slices.Sort(want)
			if w.compact(); len(w.liveFiles()) != 1 {
				t.Errorf("not compacted: %q", w.liveFiles())
			}
			if got := w.cells(); !slices.Equal(got, want) {
				t.Errorf("rewritten, the table holds\n%q\nwant\n%q", got, want)
			}
			w.expectNoStrayFiles()
		})
	}
}

// A merge that was planned before a column was added, and is overtaken by one that brings the column and takes one of its
// shards further, writes neither its older version of those rows nor files without the column.
func TestAnOvertakenMergeWritesNoNullsOverANewColumn(t *testing.T) {
	structOf := func(fields ...arrow.Field) arrow.Field {
		return arrow.Field{Name: "s", Type: arrow.StructOf(fields...), Nullable: true}
	}
	old := []arrow.Field{fieldKey, structOf(fieldInt)}
	for place, c := range map[string]struct {
		wider        []arrow.Field
		row          string
		older, newer string // cells
	}{
		"at the top": {
			append(slices.Clone(old), fieldAdded), `{"key":%q,"s":{"n":2},"added":"x"}`, `%q|{1}|null`, `%q|{2}|"x"`,
		},
		"in a struct": {
			[]arrow.Field{fieldKey, structOf(fieldInt, fieldAdded)}, `{"key":%q,"s":{"n":2,"added":"x"}}`, `%q|{1,null}`, `%q|{2,"x"}`,
		},
	} {
		for mode, key := range map[string][]string{"append": nil, "upsert": {"key"}} {
			t.Run(place+"/"+mode, func(t *testing.T) {
				w := newWorld(t, table.CreateOptions{Schema: schemaOf(arrow.NewSchema(old, nil)), Key: key, Buckets: 2 * len(key)})
				// One key of each shard, whose row is in the base before.
				shards, keys := []string{"a", "b"}, []string{"a", "b"}
				if key != nil {
					shards = w.buckets()
					keys = make([]string, 2)
					for i := range 20 {
						k := fmt.Sprint("k", i)
						keys[slices.Index(shards, w.bucketOf(k))] = k
					}
				}
				before := func(i int) { w.sealJSON(shards[i], old, fmt.Sprintf(`[{"key":%q,"s":{"n":1}}]`, keys[i])) }
				before(0)
				before(1)
				w.merge(shards...)

				before(0)
				before(1)
				arrived, release, result := w.gated(shards...)
				<-arrived
				w.sealJSON(shards[0], c.wider, fmt.Sprintf("["+c.row+"]", keys[0]))
				w.merge(shards[0])
				release()
				result()

				older, newer := fmt.Sprintf(c.older, keys[0]), fmt.Sprintf(c.newer, keys[0])
				want := []string{newer, fmt.Sprintf(c.older, keys[1])}
				if key == nil { // every version is a row
					want = append(want, older, older, fmt.Sprintf(c.older, keys[1]))
				}
				slices.Sort(want)
				if got := w.cells(); !slices.Equal(got, want) {
					t.Errorf("the table holds\n%q\nwant\n%q", got, want)
				}
				for i, mark := range []uint64{3, 2} {
					if got := w.load().Mark(shards[i]); got != mark {
						t.Errorf("shard %s is merged up to %d, want %d", shards[i], got, mark)
					}
				}
				// What the overtaken merge wrote in the end knows the column.
				for add := range w.load().Snapshot.Files() {
					if strings.Contains(add.Path, "00000002") && !strings.Contains(add.Stats, `"added"`) {
						t.Errorf("%s was written for the schema before: %s", add.Path, add.Stats)
					}
				}
				w.expectNoStrayFiles()
			})
		}
	}
}
