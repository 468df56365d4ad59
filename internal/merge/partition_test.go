package merge

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
	"tidemark/test/readers"
)

// newLocalWorld is a world whose root other engines can read, and the table's folder.
func newLocalWorld(t *testing.T, o table.CreateOptions) (*world, string) {
	t.Helper()
	store, dir := localRoot(t)
	return newWorldOn(t, store, o), dir + "/" + tableName
}

func localRoot(t *testing.T) (objstore.Store, string) {
	t.Helper()
	dir := t.TempDir()
	store, err := objstore.Open(context.Background(), dir, objstore.Options{Clock: clock.System(), Random: random.New()})
	if err != nil {
		t.Fatal(err)
	}
	return store, dir
}

// parsedSchema is a table of nullable columns, written as "name type, name type".
func parsedSchema(t *testing.T, columns string) table.CreateOptions {
	t.Helper()
	var fields []string
	for column := range strings.SplitSeq(columns, ", ") {
		name, kind, _ := strings.Cut(column, " ")
		fields = append(fields, fmt.Sprintf(`{"name":%q,"type":%q,"nullable":true,"metadata":{}}`, name, kind))
	}
	s, err := schema.Parse(`{"type":"struct","fields":[` + strings.Join(fields, ",") + `]}`)
	if err != nil {
		t.Fatal(err)
	}
	return table.CreateOptions{Schema: s}
}

func fromJSON(w *world, rows string) arrow.Record {
	w.t.Helper()
	rec, _, err := array.RecordFromJSON(w.mem, w.table.Schema.Arrow(), strings.NewReader(rows))
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// scanned is every row that a scan of the table gives, as text, sorted.
func scanned(w *world) []string {
	w.t.Helper()
	_, rows, err := Scan(w.ctx, w.deps(), tableName, ScanOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for rec, err := range rows {
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, textRows(rec)...)
	}
	slices.Sort(out)
	return out
}

func textRows(rec arrow.Record) (out []string) {
	for i := range int(rec.NumRows()) {
		var cells []string
		for _, c := range rec.Columns() {
			cells = append(cells, c.ValueStr(i))
		}
		out = append(out, strings.Join(cells, "|"))
	}
	return out
}

func TestAPartitionedTableIsReadByOthersAsItWasWritten(t *testing.T) {
	o := parsedSchema(t, `id long, name string, day date, at timestamp, wall timestamp_ntz, amount decimal(38,2), ok boolean, n short`)
	o.PartitionBy = []string{"name", "day", "at", "wall", "amount", "ok", "n"}
	w, dir := newLocalWorld(t, o)
	names := []string{"plain", "a b", "100%", "a/b", "k=v", "a:b", "Köln", "日本", "a+b", "a#b", "a?b", "a&b", `a\b`, `a"b`, "..", ".", "null", "__HIVE_DEFAULT_PARTITION__", "%20", " ", "a\nb", strings.Repeat("long ", 80), ""}
	var lines []string
	want := [][]any{}
	for i, name := range names {
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf(`{"id":%d,"name":%s,"day":"1969-12-31","at":"2024-02-29T12:34:56.000001Z","wall":"1969-12-31T23:59:59","amount":"999999999999999999999999999999999999.99","ok":true,"n":-7}`, i, quoted))
		seen := any(name)
		if name == "" {
			seen = nil // an empty partition value is null
		}
		want = append(want, []any{fmt.Sprint(i), seen, "1969-12-31", "2024-02-29 12:34:56.000001+00", "1969-12-31 23:59:59", "999999999999999999999999999999999999.99", "true", "-7"})
	}
	lines = append(lines, `{"id":999,"name":null,"day":null,"at":null,"wall":null,"amount":null,"ok":null,"n":null}`)
	want = append(want, []any{"999", nil, nil, nil, nil, nil, nil, nil})
	rec := fromJSON(w, "["+strings.Join(lines, ",")+"]")
	w.sealRecord("a", rec)
	w.merge("a")

	for add := range w.load().Snapshot.Files() {
		if strings.Contains(add.Stats, `"name"`) || strings.Contains(add.Stats, `"day"`) || !strings.Contains(add.Stats, `"id"`) {
			t.Errorf("%s has statistics %s", add.Path, add.Stats)
		}
	}
	w.expectNoStrayFiles()
	var seen map[string][][]any
	readers.Run(t, &seen, "testdata/partitions.py", "read", dir, "id", "name", "day", "at", "wall", "amount", "ok", "n")
	for reader, rows := range seen {
		byID := map[string][]any{}
		for _, r := range rows {
			byID[r[0].(string)] = r
		}
		if len(rows) != len(want) {
			t.Errorf("%s sees %d rows, want %d", reader, len(rows), len(want))
		}
		for _, r := range want {
			if got := byID[r[0].(string)]; fmt.Sprint(got) != fmt.Sprint(r) {
				t.Errorf("%s sees %q, want %q", reader, got, r)
			}
		}
	}
	var ours []string
	for _, line := range textRows(rec) {
		if cells := strings.Split(line, "|"); cells[1] == "" {
			cells[1] = array.NullValueStr
			line = strings.Join(cells, "|")
		}
		ours = append(ours, line)
	}
	slices.Sort(ours)
	if got := scanned(w); !slices.Equal(got, ours) {
		t.Errorf("a scan gives\n%q, want\n%q", got, ours)
	}
	rec.Release()
}

func TestRowsGoToTheFilesOfTheirPartitionsHoweverManyThereAre(t *testing.T) {
	for _, partitions := range []int{1, routerOpenMax, 50} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			o := parsedSchema(t, `p integer, id long, note string`)
			o.PartitionBy = []string{"p"}
			w := newWorld(t, o)
			pick := rand.New(rand.NewPCG(1, uint64(partitions)))
			var want []string
			id := 0
			for range 6 {
				b := array.NewRecordBuilder(w.mem, w.table.Schema.Arrow())
				for range 3000 {
					id++
					b.Field(0).(*array.Int32Builder).Append(int32(pick.IntN(partitions)))
					b.Field(1).(*array.Int64Builder).Append(int64(id))
					b.Field(2).(*array.StringBuilder).Append(strings.Repeat("x", pick.IntN(200)))
				}
				rec := b.NewRecord()
				b.Release()
				w.sealRecord(fmt.Sprint("shard-", id%2), rec)
				want = append(want, textRows(rec)...)
				rec.Release()
			}
			req := w.request("shard-0", "shard-1")
			req.Budget = 4 << 20 // so small that rows are written several times
			out, err := Run(w.ctx, w.deps(), req)
			if err != nil || len(out.Failures) > 0 {
				t.Fatalf("%+v, %v", out.Failures, err)
			}
			slices.Sort(want)
			if got := scanned(w); !slices.Equal(got, want) {
				t.Errorf("a scan gives %d rows, want %d, or they differ", len(got), len(want))
			}
			w.baseRecords(w.load(), func(add deltalog.Add, rec arrow.Record) {
				if rec.Schema().HasField("p") || !strings.HasPrefix(add.Path, "p="+add.PartitionValues["p"]+"/part-") {
					t.Errorf("%s has the columns %s and the values %v", add.Path, rec.Schema(), add.PartitionValues)
				}
			})
			if files := len(w.liveFiles()); partitions <= routerOpenMax && files > 2*partitions { // two lanes
				t.Errorf("%d files for %d partitions", files, partitions)
			}
		})
	}
}

func TestARowWithoutAPartitionStopsItsShardAlone(t *testing.T) {
	o := table.CreateOptions{Schema: schemaOf(arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "p", Type: arrow.BinaryTypes.String}}, nil)), PartitionBy: []string{"p"}}
	w := newWorld(t, o)
	for shard, rows := range map[string]string{"good": `[{"id":1,"p":"x"}]`, "bad": `[{"id":2,"p":"y"},{"id":3,"p":""}]`} {
		rec := fromJSON(w, rows)
		w.sealRecord(shard, rec)
		rec.Release()
	}
	out, err := Run(w.ctx, w.deps(), w.request("good", "bad"))
	if err != nil || len(out.Failures) != 1 || out.Failures[0].Shard != "bad" || out.Failures[0].Class != Data || !strings.Contains(out.Failures[0].Message, `column "p", row 1`) {
		t.Fatalf("%+v, %v", out.Failures, err)
	}
	if got := scanned(w); !slices.Equal(got, []string{"1|x"}) {
		t.Errorf("the table holds %q", got)
	}
	w.expectNoStrayFiles()
}

func TestAColumnAddedToAPartitionedTableIsNullInItsOlderFiles(t *testing.T) {
	o := parsedSchema(t, `p string, id long`)
	o.PartitionBy = []string{"p"}
	w := newWorld(t, o)
	rec := fromJSON(w, `[{"p":"x","id":1},{"p":"y","id":2}]`)
	w.sealRecord("a", rec)
	rec.Release()
	wider := parsedSchema(t, `p string, id long, note string`).Schema.Arrow()
	rec, _, err := array.RecordFromJSON(w.mem, wider, strings.NewReader(`[{"p":"x","id":3,"note":"n"}]`))
	if err != nil {
		t.Fatal(err)
	}
	w.sealRecord("a", rec)
	rec.Release()
	w.merge("a")
	if got := w.load().Snapshot.Metadata.PartitionColumns; !slices.Equal(got, []string{"p"}) {
		t.Errorf("it is partitioned by %v", got)
	}
	if got, want := scanned(w), []string{"x|1|(null)", "x|3|n", "y|2|(null)"}; !slices.Equal(got, want) {
		t.Errorf("a scan gives %q, want %q", got, want)
	}
}

// Real delta-rs goes on writing to a table that was adopted, as fast as it can, while generations are merged into it.
func TestAnAdoptedTableLosesNothingOnEitherSide(t *testing.T) {
	store, root := localRoot(t)
	dir := root + "/" + tableName
	var said string
	readers.Run(t, &said, "testdata/partitions.py", "make", dir)
	w := &world{t: t, ctx: t.Context(), clock: clock.System(), random: random.New(), mem: memory.NewCheckedAllocator(memory.DefaultAllocator), store: store}
	w.holds = map[string]*shardmanifest.Hold{}
	defer func() { w.mem.AssertSize(t, 0) }()
	var err error
	if w.table, err = table.Adopt(w.ctx, store, tableName, nil, w.tableDeps()); err != nil {
		t.Fatal(err)
	}

	other := readers.Command(t, "testdata/partitions.py", "write", dir, "16")
	other.Stderr = os.Stderr
	var printed strings.Builder
	other.Stdout = &printed
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- other.Wait() }()
	want := map[string]bool{}
	id, merges := 0, 0
	for running := true; running; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
		var lines []string
		for range 5 {
			id++
			lines = append(lines, fmt.Sprintf(`{"id":%d,"day":"2024-01-0%d"}`, id, 1+id%3))
			want[fmt.Sprint(id)] = true
		}
		rec := fromJSON(w, "["+strings.Join(lines, ",")+"]")
		w.sealRecord("ours", rec)
		rec.Release()
		w.merge("ours")
		merges++
	}
	sealed := 0
	for info, err := range objstore.ListAll(w.ctx, store, tableName+"/_shards/") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(info.Key, ".parquet") {
			sealed++
		}
	}
	if sealed != merges {
		t.Errorf("%d files of %d generations are left after delta-rs vacuumed", sealed, merges)
	}
	var theirs []int64
	if err := json.Unmarshal([]byte(printed.String()), &theirs); err != nil {
		t.Fatal(err)
	}
	for _, id := range theirs {
		want[fmt.Sprint(id)] = true
	}
	t.Logf("%d merges beside delta-rs, version %d, %d rows", merges, w.load().Snapshot.Version, len(want))
	var seen map[string][][]any
	readers.Run(t, &seen, "testdata/partitions.py", "read", dir, "id")
	ours := []string{}
	for _, line := range scanned(w) {
		id, _, _ := strings.Cut(line, "|")
		ours = append(ours, id)
	}
	seen["Tidemark"] = nil
	for _, id := range ours {
		seen["Tidemark"] = append(seen["Tidemark"], []any{id})
	}
	for reader, rows := range seen {
		var got []string
		for _, r := range rows {
			got = append(got, r[0].(string))
		}
		slices.Sort(got)
		if all := slices.Sorted(maps.Keys(want)); !slices.Equal(got, all) {
			t.Errorf("%s sees %d rows, want %d, or they differ", reader, len(got), len(all))
		}
	}
}

func TestDeltaRsRefusesToWriteToAnUpsertTableAndReadsIt(t *testing.T) {
	w, dir := newLocalWorld(t, upsertTable(2, false))
	w.upsert(row{key: "a", value: 1}, row{key: "b", value: 2})
	w.merge(w.buckets()...)
	w.upsert(row{key: "a", value: 3})
	w.merge(w.buckets()...)
	var said string
	readers.Run(t, &said, "testdata/partitions.py", "append", dir)
	if !strings.Contains(said, deltalog.FeatureUpsert) {
		t.Errorf("appending with delta-rs says %q; want it refused for %s", said, deltalog.FeatureUpsert)
	}
	var seen map[string][][]any
	readers.Run(t, &seen, "testdata/partitions.py", "read", dir, "key", "value")
	for reader, rows := range seen {
		if got, want := fmt.Sprint(rows), "[[a 3] [b 2]]"; got != want {
			t.Errorf("%s sees %s, want %s", reader, got, want)
		}
	}
}
