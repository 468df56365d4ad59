package merge

import (
	"context"
	"maps"
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
	known   map[string]int // number of a partition, by its key
	keys    []string       // by number
	held    []routed
	bytes   int64    // of what is held
	open    []*place // the one written to the longest ago first
	adds    []deltalog.Add
}

// routed is a record without the partition columns, and the partition of each row.
type routed struct {
	rows arrow.Record
	of   []int32
}

// place is an open file of a partition.
type place struct {
	*packer
	number int
}

func newRouter(a *attempt, n *numbers) *router {
	return &router{attempt: a, numbers: n, columns: partition.Of(a.shape.arrow, a.partitions), known: map[string]int{}}
}

// add takes in rows; the portion stays the caller's.
func (r *router) add(ctx context.Context, got portion) error {
	of := make([]int32, got.rows.NumRows())
	var key []byte
	for row := range of {
		var err error
		if key, err = r.columns.AppendKey(key[:0], got.rows, row); err != nil {
			return err
		}
		number, ok := r.known[string(key)]
		if !ok {
			number = len(r.keys)
			r.known[string(key)] = number
			r.keys = append(r.keys, string(key))
		}
		of[row] = int32(number)
	}
	rows := r.columns.Strip(got.rows)
	r.held = append(r.held, routed{rows, of})
	if r.bytes += columns.Size(rows, 0, int(rows.NumRows())); r.bytes >= r.share/4 {
		return r.flush(ctx)
	}
	return nil
}

// flush writes what is held.
func (r *router) flush(ctx context.Context) error {
	defer r.drop()
	rowsOf := map[int][][]int32{} // by partition and held record
	for i, h := range r.held {
		for row, number := range h.of {
			at := rowsOf[int(number)]
			if at == nil {
				at = make([][]int32, len(r.held))
				rowsOf[int(number)] = at
			}
			at[i] = append(at[i], int32(row))
		}
	}
	for _, number := range slices.SortedFunc(maps.Keys(rowsOf), func(a, b int) int { return strings.Compare(r.keys[a], r.keys[b]) }) {
		p, err := r.at(ctx, number)
		if err != nil {
			return err
		}
		for i, indices := range rowsOf[number] {
			if len(indices) == 0 {
				continue
			}
			if err := r.write(ctx, p, r.held[i].rows, indices); err != nil {
				return err
			}
		}
	}
	return nil
}

// write appends some rows of a record to a partition's file.
func (r *router) write(ctx context.Context, p *place, rows arrow.Record, indices []int32) error {
	if len(indices) == int(rows.NumRows()) {
		return p.write(ctx, sorted{rows: rows})
	}
	some, err := columns.Take(ctx, r.shape.mem, rows, indices)
	if err != nil {
		return err
	}
	defer some.Release()
	return p.write(ctx, sorted{rows: some})
}

// at is the open file of a partition.
func (r *router) at(ctx context.Context, number int) (*place, error) {
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
	for _, h := range r.held {
		h.rows.Release()
	}
	r.held, r.bytes = r.held[:0], 0
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
