package merge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"tidemark/internal/columns"
	"tidemark/internal/deltalog"
	"tidemark/internal/parquetfile"
	"tidemark/internal/rowkey"
	"tidemark/internal/schema"
	"tidemark/internal/table"
)

// flights hands the rows of the real flights file over in records of n rows. The test is skipped where the file is not.
func (w *world) flights(n int64, visit func(arrow.Record)) *arrow.Schema {
	w.t.Helper()
	if testing.Short() {
		w.t.Skip("three million rows; not with -short")
	}
	path := filepath.Join("..", "..", "..", "shared", "data", "flights-3m.parquet")
	body, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		w.t.Skip("shared/data/flights-3m.parquet is not beside the checkout")
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.put("input/flights.parquet", body)
	r, err := parquetfile.OpenReader(w.ctx, w.store, "input/flights.parquet", parquetfile.ReaderOptions{Mem: w.mem})
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	var pending []arrow.Record
	rows := int64(0)
	flush := func() {
		if rows == 0 {
			return
		}
		runs := make([]columns.Run, len(pending))
		for i, rec := range pending {
			runs[i] = columns.Run{Source: rec, N: int(rec.NumRows())}
		}
		whole, err := columns.Concat(w.mem, r.Schema(), runs)
		if err != nil {
			w.t.Fatal(err)
		}
		visit(whole)
		whole.Release()
		for _, rec := range pending {
			rec.Release()
		}
		pending, rows = nil, 0
	}
	for {
		rec, err := r.Next(w.ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			w.t.Fatal(err)
		}
		for at := int64(0); at < rec.NumRows(); {
			take := min(n-rows, rec.NumRows()-at)
			pending = append(pending, rec.NewSlice(at, at+take))
			at, rows = at+take, rows+take
			if rows == n {
				flush()
			}
		}
		rec.Release()
	}
	flush()
	return r.Schema()
}

var flightsSchema = arrow.NewSchema([]arrow.Field{
	{Name: "date", Type: &arrow.TimestampType{Unit: arrow.Microsecond}, Nullable: true},
	{Name: "delay", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "distance", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "origin", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "destination", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

// flightSums are what independent readers say about the flights.
type flightSums struct{ rows, delay, distance int64 }

func (w *world) flightSums() (s flightSums) {
	w.baseRecords(w.load(), func(_ deltalog.Add, rec arrow.Record) {
		s.rows += rec.NumRows()
		for _, v := range rec.Column(1).(*array.Int64).Int64Values() {
			s.delay += v
		}
		for _, v := range rec.Column(2).(*array.Int64).Int64Values() {
			s.distance += v
		}
	})
	return s
}

func TestAppendOfThreeMillionFlights(t *testing.T) {
	w := newWorld(t, table.CreateOptions{Schema: schemaOf(flightsSchema)})
	g := 0
	var shards []string
	for i := range 4 {
		shards = append(shards, fmt.Sprintf("ingest-%d", i))
	}
	w.flights(10_000, func(rec arrow.Record) {
		w.sealRecord(shards[g%4], rec)
		g++
	})
	if g != 300 {
		t.Fatalf("%d generations", g)
	}
	out := w.merge(shards...)
	if got := w.flightSums(); got != (flightSums{3_000_000, 20_003_603, 2_194_861_208}) {
		t.Fatalf("%+v", got)
	}
	if out.RowsIn != 3_000_000 || out.RowsOut != 3_000_000 || out.Generations != 300 {
		t.Fatalf("%+v", out)
	}
	w.expectNoStrayFiles()
}

// sealFlights routes a record to the buckets of an upsert table; with remove its rows are deletes.
func (w *world) sealFlights(rec arrow.Record, remove bool) {
	w.t.Helper()
	encoder, err := rowkey.NewEncoder(rec.Schema(), w.table.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	var keys rowkey.Keys
	if err := encoder.Encode(rec, &keys); err != nil {
		w.t.Fatal(err)
	}
	byBucket := make([][]int32, w.table.Buckets)
	for i := range keys.Len() {
		b := rowkey.Bucket(keys.At(i), w.table.Buckets)
		byBucket[b] = append(byBucket[b], int32(i))
	}
	for b, rows := range byBucket {
		if len(rows) == 0 {
			continue
		}
		slices.SortStableFunc(rows, func(i, j int32) int { return bytes.Compare(keys.At(int(i)), keys.At(int(j))) })
		part, err := columns.Take(w.ctx, w.mem, rec, rows)
		if err != nil {
			w.t.Fatal(err)
		}
		sealed := withOperation(w, part, remove)
		w.sealRecord(rowkey.BucketShard(b), sealed)
		sealed.Release()
		part.Release()
	}
}

func withOperation(w *world, rec arrow.Record, remove bool) arrow.Record {
	b := array.NewStringBuilder(w.mem)
	defer b.Release()
	for range rec.NumRows() {
		if remove {
			b.Append("d")
		} else {
			b.AppendNull()
		}
	}
	ops := b.NewArray()
	defer ops.Release()
	fields := append(slices.Clone(rec.Schema().Fields()), arrow.Field{Name: schema.OpColumn, Type: arrow.BinaryTypes.String, Nullable: true})
	return array.NewRecord(arrow.NewSchema(fields, nil), append(slices.Clone(rec.Columns()), ops), rec.NumRows())
}

func TestUpsertOfThreeMillionFlightsByRoute(t *testing.T) {
	w := newWorld(t, table.CreateOptions{
		Schema: schemaOf(flightsSchema), Key: []string{"origin", "destination"}, Sequence: "date", Buckets: 8,
	})
	w.flights(10_000, func(rec arrow.Record) { w.sealFlights(rec, false) })
	w.merge(w.buckets()...)
	if got := w.flightSums(); got.rows != 3399 || got.delay != 78_374 {
		t.Fatalf("%+v", got)
	}

	// Deletes of every route from LAX, newer than any flight.
	deletes := array.NewRecordBuilder(w.mem, flightsSchema)
	defer deletes.Release()
	w.baseRecords(w.load(), func(_ deltalog.Add, rec arrow.Record) {
		origins, destinations := rec.Column(3).(*array.String), rec.Column(4).(*array.String)
		for i := range origins.Len() {
			if origins.Value(i) == "LAX" {
				deletes.Field(0).(*array.TimestampBuilder).Append(arrow.Timestamp(2_000_000_000_000_000))
				deletes.Field(1).AppendNull()
				deletes.Field(2).AppendNull()
				deletes.Field(3).(*array.StringBuilder).Append(origins.Value(i))
				deletes.Field(4).(*array.StringBuilder).Append(destinations.Value(i))
			}
		}
	})
	rec := deletes.NewRecord()
	defer rec.Release()
	w.sealFlights(rec, true)
	w.merge(w.buckets()...)
	if got := w.flightSums(); got.rows != 3333 {
		t.Fatalf("%+v", got)
	}
	w.expectNoStrayFiles()
}
