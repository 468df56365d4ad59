package master

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// topBy is how many tables are shown one by one for each of two reasons, the longest wait and the most bytes: at most
	// twice as many series for each metric, however many tables there are.
	topBy = 10
	// otherTables is the label under which all further tables are added up. No table has that name: no segment of one
	// begins with an underscore.
	otherTables = "_other"
)

var (
	tableGensDesc = desc("tidemark_table_pending_generations",
		"Generations of a table that are sealed and not merged, for the tables that have waited longest and those with the most bytes; all others together are _other.", "table")
	tableBytesDesc = desc("tidemark_table_pending_bytes",
		"Bytes of a table that are sealed and not merged; tables as of tidemark_table_pending_generations.", "table")
	tableOldestDesc = desc("tidemark_table_pending_oldest_seconds",
		"How long the oldest generation of a table that is not merged has waited at least; of _other, the longest of them.", "table")
)

// topTables are the tables with something pending. They are copies: sorting all tables of a large fleet takes milliseconds,
// and the planner must not wait for it.
type topTables struct {
	nowMS   int64
	pending []pendingTable
}

type pendingTable struct {
	name          string
	gens          uint64
	bytes, oldest int64 // oldest is a time; 0 = unknown
}

func (t *topTables) add(e *entry) {
	if e.gens > 0 {
		t.pending = append(t.pending, pendingTable{e.name, e.gens, e.bytes, e.oldest})
	}
}

// shown are the names of the tables that are shown by name.
func (t *topTables) shown() map[string]struct{} {
	shown := map[string]struct{}{}
	take := func(order func(a, b pendingTable) int) {
		slices.SortFunc(t.pending, func(a, b pendingTable) int { return cmp.Or(order(a, b), cmp.Compare(a.name, b.name)) })
		for _, e := range t.pending[:min(topBy, len(t.pending))] {
			shown[e.name] = struct{}{}
		}
	}
	take(func(a, b pendingTable) int {
		return cmp.Compare(seconds(b.oldest, t.nowMS), seconds(a.oldest, t.nowMS))
	})
	take(func(a, b pendingTable) int { return cmp.Compare(b.bytes, a.bytes) })
	return shown
}

func (t *topTables) collect(gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	var (
		shown         = t.shown()
		gens          uint64
		bytes, oldest int64
	)
	for _, e := range t.pending {
		if _, ok := shown[e.name]; ok {
			gauge(tableGensDesc, float64(e.gens), e.name)
			gauge(tableBytesDesc, float64(e.bytes), e.name)
			gauge(tableOldestDesc, seconds(e.oldest, t.nowMS), e.name)
			continue
		}
		gens += e.gens
		bytes += e.bytes
		oldest = earlier(oldest, e.oldest)
	}
	gauge(tableGensDesc, float64(gens), otherTables)
	gauge(tableBytesDesc, float64(bytes), otherTables)
	gauge(tableOldestDesc, seconds(oldest, t.nowMS), otherTables)
}
