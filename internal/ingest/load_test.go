package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"go.uber.org/goleak"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
	"tidemark/writer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a root in memory with one table.
type place struct {
	t     testing.TB
	store objstore.Store
	table *table.Table
}

var idAndText = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

func newPlace(t testing.TB, o table.CreateOptions) *place {
	t.Helper()
	p := &place{t: t, store: objstore.NewMemory(clock.System())}
	var err error
	if o.Schema, err = schema.FromArrow(idAndText); err != nil {
		t.Fatal(err)
	}
	if p.table, err = table.Create(context.Background(), p.store, "things", o, table.Deps{Clock: clock.System(), Random: random.Seeded(1)}); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *place) deps(label string) Deps {
	return Deps{Config: writer.Config{Label: label}, Writer: writer.Deps{Store: p.store}}
}

// rows is a CSV source of consecutive ids.
func rows(t testing.TB, from, n int) *Source {
	t.Helper()
	var b strings.Builder
	b.WriteString("id,text\n")
	for i := from; i < from+n; i++ {
		fmt.Fprintf(&b, "%d,row %d\n", i, i)
	}
	return open(t, b.String())
}

func open(t testing.TB, text string) *Source {
	t.Helper()
	src, err := Open(context.Background(), Options{Table: idAndText}, Stream("in.csv", strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	return src
}

// generations returns the ids of each generation of a shard, in order.
func (p *place) generations(shard string) [][]int64 {
	p.t.Helper()
	m := p.manifest(shard)
	var all [][]int64
	for _, g := range m.Generations {
		ids := []int64{}
		if g.Path != "" {
			r, err := parquetfile.OpenReader(context.Background(), p.store, "things/"+g.Path, parquetfile.ReaderOptions{XXH3: g.XXH3})
			if err != nil {
				p.t.Fatal(err)
			}
			for {
				rec, err := r.Next(context.Background())
				if err == io.EOF {
					break
				}
				if err != nil {
					p.t.Fatal(err)
				}
				ids = append(ids, rec.Column(0).(*array.Int64).Int64Values()...)
				rec.Release()
			}
			if err := r.Close(); err != nil {
				p.t.Fatal(err)
			}
		}
		all = append(all, ids)
	}
	return all
}

func (p *place) manifest(shard string) *shardmanifest.Manifest {
	p.t.Helper()
	m, err := shardmanifest.Open(p.store, "things", p.table.ID, shard, shardmanifest.Options{Clock: clock.System(), Random: random.Seeded(1)}).Latest(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// everything counts how often each id is in any generation.
func (p *place) everything() map[int64]int {
	p.t.Helper()
	shards, err := shardmanifest.ListShards(context.Background(), p.store, "things", p.table.ID)
	if err != nil {
		p.t.Fatal(err)
	}
	seen := map[int64]int{}
	for _, shard := range shards {
		for _, ids := range p.generations(shard) {
			for _, id := range ids {
				seen[id]++
			}
		}
	}
	return seen
}

func (p *place) wantOnce(n int) {
	p.t.Helper()
	seen := p.everything()
	for id := range n {
		if seen[int64(id)] != 1 {
			p.t.Errorf("row %d is there %d times", id, seen[int64(id)])
		}
	}
	if len(seen) != n {
		p.t.Errorf("%d rows instead of %d", len(seen), n)
	}
}

func TestAppendDealsGenerationsOverShardsInTurn(t *testing.T) {
	p := newPlace(t, table.CreateOptions{})
	calls, last := 0, Progress{}
	report, err := Load(context.Background(), p.deps("test"), rows(t, 0, 25_000), Plan{Table: p.table, Shards: 3, RowsPerGeneration: 3000,
		OnProgress: func(at Progress) { calls, last = calls+1, at }})
	if err != nil {
		t.Fatal(err)
	}
	if report.Rows != 25_000 || report.Generations != 9 || len(report.Shards) != 3 || calls != 9 || last.Rows != 25_000 || last.BytesDone != last.BytesTotal {
		t.Errorf("report %+v after %d calls, the last %+v", report, calls, last)
	}
	// Which lane gets which shard is open, but a lane's generations are every third of the source, in order.
	for _, s := range report.Shards {
		generations := p.generations(s.Shard)
		turn := generations[0][0] / 3000
		for i, ids := range generations {
			from := (turn + 3*int64(i)) * 3000
			if ids[0] != from || ids[len(ids)-1] != min(from+3000, 25_000)-1 {
				t.Errorf("%s, generation %d: ids %d to %d, expected them from %d", s.Shard, i+1, ids[0], ids[len(ids)-1], from)
			}
		}
		if state := p.manifest(s.Shard).State; state != shardmanifest.StateClosed {
			t.Errorf("shard %s is left %s", s.Shard, state)
		}
	}
	p.wantOnce(25_000)
}

func TestAppendTakesTheLowestShardsNobodyHasOpen(t *testing.T) {
	p := newPlace(t, table.CreateOptions{})
	d := p.deps("somebody")
	d.Config.Table, d.Config.Shard = "things", "ingest-1"
	other, err := writer.ClaimWith(context.Background(), d.Config, d.Writer)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time they exist and are closed
		report, err := Load(context.Background(), p.deps("test"), rows(t, 0, 40), Plan{Table: p.table, Shards: 3, RowsPerGeneration: 10})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range report.Shards {
			names = append(names, s.Shard)
		}
		if got := strings.Join(names, " "); got != "ingest-0 ingest-2 ingest-3" {
			t.Errorf("wrote to %s", got)
		}
	}
	if _, err := other.Seal(context.Background()); err != nil {
		t.Errorf("the writer of ingest-1 was disturbed: %v", err)
	}
	if err := other.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestFewRowsClaimOneShardOnly(t *testing.T) {
	p := newPlace(t, table.CreateOptions{})
	report, err := Load(context.Background(), p.deps("test"), rows(t, 0, 5), Plan{Table: p.table})
	if err != nil || len(report.Shards) != 1 || report.Shards[0].Shard != "ingest-0" {
		t.Errorf("report %+v, %v", report, err)
	}
}

func TestAppendGivesWayToAWriterThatTakesItsShard(t *testing.T) {
	p := newPlace(t, table.CreateOptions{})
	ctx := context.Background()
	taken := false
	report, err := Load(ctx, p.deps("test"), rows(t, 0, 40), Plan{Table: p.table, Shards: 1, RowsPerGeneration: 10,
		OnProgress: func(at Progress) {
			if taken {
				return
			}
			taken = true
			d := p.deps("bully")
			d.Config.Table, d.Config.Shard = "things", "ingest-0"
			w, err := writer.ClaimWith(ctx, d.Config, d.Writer)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Close(ctx); err != nil {
				t.Fatal(err)
			}
		}})
	if err != nil || report.Rows != 40 || len(report.Shards) != 2 {
		t.Errorf("report %+v, %v", report, err)
	}
	p.wantOnce(40)
}

func TestABadRowEndsTheIngestAndGivesTheShardsBack(t *testing.T) {
	p := newPlace(t, table.CreateOptions{})
	src := open(t, "id,text\n1,a\n2,b\n3,c\nfour,d\n5,e\n")
	report, err := Load(context.Background(), p.deps("test"), src, Plan{Table: p.table, Shards: 1, RowsPerGeneration: 1})
	if e := (*Error)(nil); !errors.As(err, &e) || e.Line != 5 || e.Column != "id" {
		t.Errorf("got %v", err)
	}
	if got := p.everything(); int64(len(got)) != report.Rows {
		t.Errorf("reported %d rows, sealed are %v", report.Rows, got)
	}
	if report.Rows > 0 && p.manifest("ingest-0").State != shardmanifest.StateClosed {
		t.Error("the shard is still open")
	}
}

func TestCancellingReportsWhatIsSealed(t *testing.T) {
	for _, o := range []table.CreateOptions{{}, {Key: []string{"id"}, Buckets: 2}} {
		p := newPlace(t, o)
		ctx, cancel := context.WithCancelCause(context.Background())
		stop := errors.New("enough")
		report, err := Load(ctx, p.deps("test"), rows(t, 0, 30_000), Plan{Table: p.table, Shards: 2, RowsPerGeneration: 100,
			OnProgress: func(at Progress) {
				if at.Generations == 5 {
					cancel(stop)
				}
			}})
		if !errors.Is(err, stop) {
			t.Errorf("got %v", err)
		}
		if got := p.everything(); int64(len(got)) != report.Rows || report.Rows == 30_000 {
			t.Errorf("reported %d rows, sealed are %d", report.Rows, len(got))
		}
	}
}

func TestUpsertRoutesRowsToTheirBucketsInOrder(t *testing.T) {
	p := newPlace(t, table.CreateOptions{Key: []string{"text"}, Buckets: 4})
	var b strings.Builder
	b.WriteString("id,text\n")
	for i := range 20_000 {
		fmt.Fprintf(&b, "%d,key %d\n", i, i%50)
	}
	report, err := Load(context.Background(), p.deps("test"), open(t, b.String()), Plan{Table: p.table, RowsPerGeneration: 1000})
	if err != nil || report.Rows != 20_000 || len(report.Shards) != 4 || report.Generations != 20 {
		t.Fatalf("report %+v, %v", report, err)
	}
	p.wantOnce(20_000)
	for _, s := range report.Shards {
		last := map[int64]int64{} // newest id of each key: arrival order is kept among equal keys
		for _, ids := range p.generations(s.Shard) {
			for _, id := range ids {
				if old, ok := last[id%50]; ok && old > id {
					t.Fatalf("%s: row %d of a key comes after row %d", s.Shard, id, old)
				}
				last[id%50] = id
			}
		}
	}
}

// TestTheLaterOfTwoUpsertIngestsWins: the earlier one fails and names it, and running it again completes it.
func TestTheLaterOfTwoUpsertIngestsWins(t *testing.T) {
	p := newPlace(t, table.CreateOptions{Key: []string{"id"}, Buckets: 2})
	ctx := context.Background()
	started := false
	var laterErr error
	report, err := Load(ctx, p.deps("the earlier"), rows(t, 0, 1000), Plan{Table: p.table, RowsPerGeneration: 100,
		OnProgress: func(at Progress) {
			if !started && at.Generations >= 2 {
				started = true
				_, laterErr = Load(ctx, p.deps("the later"), rows(t, 1000, 1000), Plan{Table: p.table, RowsPerGeneration: 100})
			}
		}})
	if laterErr != nil {
		t.Errorf("the later ingest failed: %v", laterErr)
	}
	if !errors.Is(err, ErrOvertaken) || !errors.Is(err, writer.ErrFenced) || !strings.Contains(err.Error(), "the later") {
		t.Errorf("the earlier ingest ended with %v", err)
	}
	sealed := int64(0)
	for id := range p.everything() {
		if id < 1000 {
			sealed++
		}
	}
	if sealed != report.Rows || sealed == 0 || sealed == 1000 {
		t.Errorf("reported %d rows, sealed are %d", report.Rows, sealed)
	}
	if _, err := Load(ctx, p.deps("again"), rows(t, 0, 1000), Plan{Table: p.table, RowsPerGeneration: 100}); err != nil {
		t.Errorf("running it again failed: %v", err)
	}
	if got := p.everything(); len(got) != 2000 {
		t.Errorf("%d different rows", len(got))
	}
}

func TestWhatDoesNotFitTheTableIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	p := newPlace(t, table.CreateOptions{Key: []string{"id"}, Buckets: 2})
	for text, want := range map[string]string{
		"text\nx\n":          `no column "id"`,
		"id,text\n1,x\n":     "",
		"id,other\n1,x\n":    "", // a new column
		"id,_op\n1,d\n2,u\n": "",
	} {
		_, err := Load(context.Background(), p.deps("test"), open(t, text), Plan{Table: p.table})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v", text, err)
		}
	}
	src, err := Open(context.Background(), Options{}, Stream("in.jsonl", strings.NewReader(`{"id":{"a":1}}`)))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var clash *schema.ClashError
	if _, err := Load(context.Background(), p.deps("test"), src, Plan{Table: p.table}); !errors.As(err, &clash) || !strings.Contains(err.Error(), "things") {
		t.Errorf("got %v", err)
	}
	for _, plan := range []Plan{{Table: p.table, Shards: 65}, {Table: p.table, RowsPerGeneration: -1}} {
		if _, err := Load(context.Background(), p.deps("test"), rows(t, 0, 1), plan); err == nil {
			t.Errorf("plan %+v was accepted", plan)
		}
	}
}
