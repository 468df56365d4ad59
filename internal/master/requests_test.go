package master

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/clock"
	"tidemark/internal/merge"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/scan"
	"tidemark/internal/schema"
	"tidemark/internal/table"
	"tidemark/test/s3/s3test"
	"tidemark/writer"
)

// meter counts what a store sends to S3.
type meter struct {
	objstore.Store
	metrics *prometheus.Registry
	last    map[string]float64
}

func newMeter(t *testing.T, server *s3test.Server) *meter {
	t.Helper()
	s, err := objstore.Open(t.Context(), server.Root(), objstore.Options{
		Clock: clock.System(), Random: random.New(), Log: hclog.NewNullLogger(),
		S3: objstore.S3Options{Endpoint: server.Endpoint, PathStyle: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{metrics: prometheus.NewRegistry(), last: map[string]float64{}}
	if m.Store, err = objstore.Instrument(s, m.metrics); err != nil {
		t.Fatal(err)
	}
	return m
}

// spent returns the requests since it was last asked, in total and in words.
func (m *meter) spent(t *testing.T) (total float64, words string) {
	t.Helper()
	families, err := m.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "tidemark_s3_requests_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "op" {
					counts[label.GetValue()] += metric.GetCounter().GetValue()
				}
			}
		}
	}
	var parts []string
	for _, op := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[op] - m.last[op]; n > 0 {
			total += n
			parts = append(parts, fmt.Sprintf("%v %s", n, op))
		}
	}
	m.last = counts
	return total, strings.Join(parts, ", ")
}

// What a table costs on S3, in requests. An idle one may cost twelve an hour.
func TestRequestsToS3PerGenerationAndPerIdleTable(t *testing.T) {
	server := s3test.Start(t)
	m := newMeter(t, server)
	deps := table.Deps{Clock: clock.System(), Random: random.New()}
	const tables, shards, generations = 20, 4, 25
	var names []string
	for i := range tables {
		names = append(names, fmt.Sprintf("t%d", i))
		createNumbers(t, m, names[i], deps)
	}
	m.spent(t)
	var all []string
	for i := range shards {
		all = append(all, fmt.Sprintf("s%d", i))
		sealNumbers(t, m, names[0], all[i], generations)
	}
	n, words := m.spent(t)
	t.Logf("sealing: %.2f requests per generation (%s for %d claims and %d generations)", n/(shards*generations), words, shards, shards*generations)

	out, err := merge.Run(t.Context(), merge.Deps{Store: m, Clock: clock.System(), Random: random.New(), Mem: memory.DefaultAllocator},
		merge.Request{Table: names[0], Shards: all, Execution: "e1", Budget: 256 << 20, CommitsMax: 100})
	if err != nil || out.Generations != shards*generations {
		t.Fatalf("%+v, %v", out, err)
	}
	n, words = m.spent(t)
	t.Logf("merging: %.2f requests per generation (%s for %d generations in %d commits)", n/float64(out.Generations), words, out.Generations, len(out.Commits))
	if perGeneration := n / float64(out.Generations); perGeneration > 2 {
		t.Errorf("merging costs %.2f requests per generation: more than reading each once, and the commits", perGeneration)
	}

	found, err := table.List(t.Context(), m)
	if err != nil || len(found) != tables {
		t.Fatal(found, err)
	}
	n, words = m.spent(t)
	discovery := n / tables
	t.Logf("looking for tables: %.2f requests per table (%s)", discovery, words)

	scanner := scan.NewScanner(scan.Deps{Store: m, Clock: clock.System(), Random: random.New(), Log: hclog.NewNullLogger()})
	for range 2 { // the second finds nothing new
		m.spent(t)
		for _, name := range names {
			if _, err := scanner.Scan(t.Context(), name, func(string, string) uint64 { return 0 }); err != nil {
				t.Fatal(err)
			}
		}
		n, words = m.spent(t)
		t.Logf("scanning: %.2f requests per table (%s)", n/tables, words)
	}
	interval := time.Duration(0)
	for range 20 {
		interval = scan.NextInterval(interval, false)
	}
	perHour := discovery*float64(time.Hour/discoverMax) + n/tables*float64(time.Hour/interval)
	t.Logf("an idle table: %.1f requests an hour", perHour)
	if perHour > 12 {
		t.Error("more than 12")
	}
}

func createNumbers(t *testing.T, s objstore.Store, name string, deps table.Deps) {
	t.Helper()
	columns, err := schema.Parse(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Create(t.Context(), s, name, table.CreateOptions{Schema: columns}, deps); err != nil {
		t.Fatal(err)
	}
}

// sealNumbers seals generations of a hundred rows each.
func sealNumbers(t *testing.T, s objstore.Store, name, shard string, generations int) {
	t.Helper()
	w, err := writer.ClaimWith(t.Context(), writer.Config{Table: name, Shard: shard}, writer.Deps{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil))
	defer b.Release()
	for g := range generations {
		for i := range 100 {
			b.Field(0).(*array.Int64Builder).Append(int64(100*g + i))
		}
		rec := b.NewRecord()
		err := w.Append(t.Context(), rec)
		rec.Release()
		if err == nil {
			_, err = w.Seal(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
