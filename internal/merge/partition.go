package merge

import (
	"context"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/columns"
	"tidemark/internal/deltalog"
	"tidemark/internal/parquetfile"
	"tidemark/internal/partition"
)

// routerOpenMax is how many files of a partitioned table a job writes at once. Each holds a row group and a part of its
// upload.
const routerOpenMax = 4

// router sends the rows of an append job to the files of their partitions.
//
//  1. Every row gets the number of its partition as it comes, so that a row without a place is its generation's failure.
//  2. Rows are held until there are enough. Then each partition gets its own, in the order in which they came; the
//     partitions take turns in the order of their values.
//  3. A file stays open for the partition's next rows unless more than routerOpenMax would be: then the one that was
//     written to the longest ago is finished.
//
// So a job whose rows lie in a few partitions writes as few files as it would without any, and one whose rows lie in many
// writes a file a partition each time that a quarter of its memory is full; compaction joins those.
type router struct {
	*attempt
	numbers *numbers
	columns *partition.Columns
	known   map[string]int32 // number of a partition, by its key
	keys    []string         // by number
	held    []arrow.Record   // without the partition columns
	of      []int32          // the partition of each row that is held
	bytes   int64            // of what is held
	open    []*place         // the one written to the longest ago first
	adds    []deltalog.Add
}

// routerHeldMax bounds what is held whatever the budget, so that no column of a batch crosses 2 GiB.
const routerHeldMax = 1 << 30

// heldRecord is about what a record takes beside its rows: small ones count too.
const heldRecord = 4 << 10

// place is an open file of a partition.
type place struct {
	*packer
	number int32
}

func newRouter(a *attempt, n *numbers) *router {
	return &router{attempt: a, numbers: n, columns: partition.Of(a.shape.arrow, a.partitions), known: map[string]int32{}}
}

// add takes in rows; the portion stays the caller's.
func (r *router) add(ctx context.Context, got portion) error {
	known := len(r.of)
	var key []byte
	for row := range int(got.rows.NumRows()) {
		var err error
		if key, err = r.columns.AppendKey(key[:0], got.rows, row); err != nil {
			r.of = r.of[:known]
			return err
		}
		number, ok := r.known[string(key)]
		if !ok {
			number = int32(len(r.keys))
			r.keys = append(r.keys, string(key))
			r.known[r.keys[number]] = number
		}
		r.of = append(r.of, number)
	}
	rows := r.columns.Strip(got.rows)
	r.held = append(r.held, rows)
	const perRow = 4 + 12 // its partition, and its place when they are sorted
	if r.bytes += columns.Size(rows, 0, int(rows.NumRows())) + perRow*rows.NumRows() + heldRecord; r.bytes >= min(r.share/4, routerHeldMax) {
		return r.flush(ctx)
	}
	return nil
}

// flush writes what is held: rows are sorted by partition, keeping their order within each, by counting.
func (r *router) flush(ctx context.Context) error {
	defer r.drop()
	begins := make([]int, len(r.keys)+1) // of each partition's rows among all
	for _, number := range r.of {
		begins[number+1]++
	}
	for i := range r.keys {
		begins[i+1] += begins[i]
	}
	next := slices.Clone(begins)
	places := make([]columns.Range, len(r.of))
	row := 0
	for i, rec := range r.held {
		for j := range int32(rec.NumRows()) {
			number := r.of[row]
			places[next[number]] = columns.Range{Source: int32(i), From: j, N: 1}
			next[number]++
			row++
		}
	}
	numbers := make([]int32, 0, len(r.keys))
	for number := range r.keys {
		if begins[number] < begins[number+1] {
			numbers = append(numbers, int32(number))
		}
	}
	slices.SortFunc(numbers, func(a, b int32) int { return strings.Compare(r.keys[a], r.keys[b]) })
	for _, number := range numbers {
		p, err := r.at(ctx, number)
		if err != nil {
			return err
		}
		if err := r.write(ctx, p, places[begins[number]:begins[number+1]]); err != nil {
			return err
		}
	}
	return nil
}

// write appends rows to a partition's file, in batches.
func (r *router) write(ctx context.Context, p *place, places []columns.Range) error {
	for batch := range slices.Chunk(places, batchRowsMax) {
		// Only the records that the rows lie in: a partition of many may have few.
		var sources []arrow.Record
		ranges := make([]columns.Range, 0, len(batch))
		last := int32(-1)
		for _, at := range batch {
			if at.Source != last {
				sources, last = append(sources, r.held[at.Source]), at.Source
			}
			source := int32(len(sources) - 1)
			if n := len(ranges); n > 0 && ranges[n-1].Source == source && ranges[n-1].From+ranges[n-1].N == at.From {
				ranges[n-1].N++
				continue
			}
			ranges = append(ranges, columns.Range{Source: source, From: at.From, N: 1})
		}
		rows, err := columns.Splice(r.shape.mem, r.columns.Data(), sources, ranges)
		if err != nil {
			return err
		}
		err = p.write(ctx, sorted{rows: rows})
		rows.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// at is the open file of a partition.
func (r *router) at(ctx context.Context, number int32) (*place, error) {
	if i := slices.IndexFunc(r.open, func(p *place) bool { return p.number == number }); i >= 0 {
		p := r.open[i]
		r.open = append(slices.Delete(r.open, i, i+1), p)
		return p, nil
	}
	if len(r.open) == routerOpenMax {
		if err := r.finish(ctx, r.open[0]); err != nil {
			return nil, err
		}
		r.open = slices.Delete(r.open, 0, 1)
	}
	values := r.columns.Values(r.keys[number])
	p := &place{number: number, packer: &packer{
		attempt: r.attempt, numbers: r.numbers, groupBytes: max(r.rowGroupBytes/routerOpenMax, rowGroupBytesMin),
		columns: r.columns.Data(), folder: r.columns.Folder(values), values: values,
	}}
	r.open = append(r.open, p)
	return p, nil
}

// finish ends a partition's file, and takes over all that it has become.
func (r *router) finish(ctx context.Context, p *place) error {
	if err := p.cut(ctx); err != nil {
		return err
	}
	r.adds = append(r.adds, p.adds...)
	p.adds = nil
	return nil
}

// end writes what is left.
func (r *router) end(ctx context.Context) ([]deltalog.Add, error) {
	if err := r.flush(ctx); err != nil {
		return nil, err
	}
	for _, p := range r.open {
		if err := r.finish(ctx, p); err != nil {
			return nil, err
		}
	}
	return r.adds, nil
}

// drop forgets what is held.
func (r *router) drop() {
	for _, rows := range r.held {
		rows.Release()
	}
	clear(r.held)
	r.held, r.of, r.bytes = r.held[:0], r.of[:0], 0
	// Only the numbers of open files are still needed; a table may have any number of partitions.
	clear(r.known)
	keys := r.keys
	r.keys = nil
	for _, p := range r.open {
		key := keys[p.number]
		p.number = int32(len(r.keys))
		r.keys, r.known[key] = append(r.keys, key), p.number
	}
}

func (r *router) abort(ctx context.Context) {
	r.drop()
	for _, p := range r.open {
		p.abort(ctx)
	}
}

// baseSource gives a base file's records in the schema of the attempt, with the columns that its partition stands for.
func (a *attempt) baseSource(ctx context.Context, r *parquetfile.Reader, values map[string]string, give func(arrow.Record) error) error {
	if len(a.partitions) == 0 {
		return a.project(ctx, r, give)
	}
	c := partition.Of(a.shape.arrow, a.partitions)
	return a.projectTo(ctx, r, c.Data(), func(rec arrow.Record) error {
		defer rec.Release()
		rows, err := c.Fill(a.shape.mem, rec, values)
		if err != nil {
			return err
		}
		if err := give(rows); err != nil {
			rows.Release()
			return err
		}
		return nil
	})
}
