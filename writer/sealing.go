package writer

import (
	"context"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"

	"tidemark/internal/columns"
	"tidemark/internal/objstore"
	"tidemark/internal/parquetfile"
	"tidemark/internal/rowkey"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
)

// sealing is a generation on its way: its rows, and once it is uploaded what its manifest entry says.
type sealing struct {
	batches    []batch
	number     uint64
	generation shardmanifest.Generation
}

// upload writes the generation's file under a fresh name. A generation without rows has none.
func (s *sealing) upload(ctx context.Context, env *environment, in *intake, hold *shardmanifest.Hold) error {
	s.number = hold.Next()
	s.generation = shardmanifest.Generation{SealedMS: env.deps.Clock.Now().UnixMilli()}
	if len(s.batches) == 0 {
		return nil
	}
	records, err := shapeAll(ctx, in, s.batches)
	if err != nil {
		return err
	}
	defer release(records)
	g := &s.generation
	g.Path = hold.Chain().GenerationPath(s.number)
	var order rows = inOrder(records)
	if in.upsert {
		sorted, err := sortByKey(ctx, in, records)
		if err != nil {
			return err
		}
		defer sorted.rec.Release()
		g.KeyMin, g.KeyMax = sorted.bounds()
		order = sorted
	}
	summary, info, err := writeFile(ctx, env, hold.Chain().Key(g.Path), records[0].Schema(), order)
	if err != nil {
		return err
	}
	if info.Vouched {
		g.ETag = info.ETag
	}
	g.Rows, g.Bytes, g.XXH3, g.Schema = summary.Rows, summary.Bytes, summary.XXH3, summary.Schema
	return nil
}

// shapeAll brings all batches into the newest shape: those that were appended before a column came along lack it. The
// column _op is left out when no row is deleted. The caller releases the records.
func shapeAll(ctx context.Context, in *intake, batches []batch) ([]arrow.Record, error) {
	target := in.target
	deletes := false
	for _, b := range batches {
		deletes = deletes || in.upsert && hasDeletes(b.rec)
	}
	if in.upsert && !deletes {
		target = arrow.NewSchema(target.Fields()[:target.NumFields()-1], nil)
	}
	records := make([]arrow.Record, 0, len(batches))
	for _, b := range batches {
		rec, err := schema.Project(ctx, in.mem, b.rec, target)
		if err != nil {
			release(records)
			return nil, err
		}
		records = append(records, rec)
	}
	return records, nil
}

func release(records []arrow.Record) {
	for _, r := range records {
		r.Release()
	}
}

// rows yields the records of a generation in the order of its file. A yielded record is valid until the next.
type rows interface {
	each(ctx context.Context, write func(arrow.Record) error) error
}

// inOrder are records in arrival order.
type inOrder []arrow.Record

func (r inOrder) each(_ context.Context, write func(arrow.Record) error) error {
	for _, rec := range r {
		if err := write(rec); err != nil {
			return err
		}
	}
	return nil
}

// sorted is one record and the stable order of its keys.
type sorted struct {
	in    *intake
	rec   arrow.Record
	keys  *rowkey.Keys
	order []int32
}

// sortByKey orders rows by key, equal keys in arrival order. The caller releases the record it holds.
func sortByKey(ctx context.Context, in *intake, records []arrow.Record) (sorted, error) {
	runs := make([]columns.Run, len(records))
	for i, r := range records {
		runs[i] = columns.Run{Source: r, N: int(r.NumRows())}
	}
	all, err := columns.Concat(in.mem, records[0].Schema(), runs)
	if err != nil {
		return sorted{}, err
	}
	encoder, err := rowkey.NewEncoder(all.Schema(), in.key)
	if err != nil {
		all.Release()
		return sorted{}, err
	}
	keys := new(rowkey.Keys)
	if err := encoder.Encode(all, keys); err != nil {
		all.Release()
		return sorted{}, err
	}
	return sorted{in: in, rec: all, keys: keys, order: rowkey.SortStable(keys)}, nil
}

func (s sorted) bounds() (lower, upper []byte) {
	return shardmanifest.CutKeyMin(s.keys.At(int(s.order[0]))), shardmanifest.CutKeyMax(s.keys.At(int(s.order[len(s.order)-1])))
}

func (s sorted) each(ctx context.Context, write func(arrow.Record) error) error {
	if s.keys.Sorted() {
		return write(s.rec)
	}
	for from := 0; from < len(s.order); from += rowsPerTake {
		part, err := columns.Take(ctx, s.in.mem, s.rec, s.order[from:min(from+rowsPerTake, len(s.order))])
		if err != nil {
			return err
		}
		err = write(part)
		part.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// abort throws an upload away although its context may have ended; after Complete it does nothing. An upload that cannot
// be aborted shows nothing, and its parts expire.
func abort(ctx context.Context, upload objstore.Upload) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_ = upload.Abort(ctx)
}

// writeFile encodes and uploads one file, and checks that the store has all of it.
func writeFile(ctx context.Context, env *environment, key string, s *arrow.Schema, data rows) (parquetfile.Summary, objstore.Info, error) {
	upload, err := env.deps.Store.Create(ctx, key)
	if err != nil {
		return parquetfile.Summary{}, objstore.Info{}, err
	}
	defer abort(ctx, upload)
	file, err := parquetfile.NewWriter(upload, s, parquetfile.WriterOptions{Mem: env.deps.Mem})
	if err != nil {
		return parquetfile.Summary{}, objstore.Info{}, err
	}
	defer file.Abort()
	if err := data.each(ctx, file.Write); err != nil {
		return parquetfile.Summary{}, objstore.Info{}, err
	}
	summary, err := file.Close()
	if err != nil {
		return parquetfile.Summary{}, objstore.Info{}, err
	}
	info, err := upload.Complete(ctx)
	if err != nil {
		return parquetfile.Summary{}, objstore.Info{}, err
	}
	if info.Size != summary.Bytes {
		return parquetfile.Summary{}, objstore.Info{}, fmt.Errorf("%s has %d bytes in the store and %d were written", key, info.Size, summary.Bytes)
	}
	return summary, info, nil
}
