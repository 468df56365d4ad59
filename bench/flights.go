package main

import (
	"context"
	"fmt"
	"os"
)

// The flights cases: real data, three million rows in generations of 10,000, appended and upserted.
var flightsCases = []benchCase{
	{"flights-append", flights("append", "select * from %s")},
	{"flights-upsert", flights("upsert", `select * from %s
		qualify row_number() over (partition by origin, destination order by date desc) = 1
		order by origin, destination`, "--key", "origin,destination", "--buckets", "8", "--sequence", "date")},
}

func flights(table, query string, create ...string) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		if _, err := os.Stat(b.flights); err != nil {
			fmt.Printf("%-22s skipped: %v; give the flights table with --flights\n", "flights "+table, err)
			return nil
		}
		if err := b.tidemark(append([]string{"table", "create", table, "--like", b.flights}, create...)...); err != nil {
			return err
		}
		if err := b.tidemark("ingest", table, b.flights, "--rows-per-generation", "10000"); err != nil {
			return err
		}
		files, bytes, m, err := b.mergeSealed(table)
		if err != nil {
			return err
		}
		duckdb := b.duckdbCopy(ctx, fmt.Sprintf(query, parquetFiles(files)))
		b.report("flights "+table, len(files), bytes, m, duckdb.ratio(m.took, 0))
		return nil
	}
}
