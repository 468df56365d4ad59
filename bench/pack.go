package main

import (
	"context"
	"fmt"
)

// The pack cases: many generations of about 1 MiB each become few files. Of data with few distinct values per column, and
// of random data, in few and in many columns.
var packCases = []benchCase{
	{"pack-narrow", pack("narrow", false, 200_000, narrowCategories())},
	{"pack-wide", pack("wide", false, 22_000, wideCategories())},
	{"pack-narrow-random", pack("narrow-random", true, 32_000, []column{number("id"), reading("value"), identifier("trace")})},
	{"pack-wide-random", pack("wide-random", true, 3_300, wideRandom())},
}

const packGenerations = 256

func narrowCategories() []column {
	return []column{category("carrier", 14), category("origin", 300), category("destination", 300), measure("delay", 500), measure("distance", 1300)}
}

func wideCategories() (out []column) {
	for i := range 20 {
		out = append(out, category(fmt.Sprintf("label%d", i), 20+i*60), measure(fmt.Sprintf("count%d", i), 50+i*100))
	}
	return out
}

func wideRandom() (out []column) {
	for i := range 20 {
		out = append(out, number(fmt.Sprintf("id%d", i)), reading(fmt.Sprintf("value%d", i)))
	}
	return out
}

func pack(table string, random bool, rows int, columns []column) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		if err := b.load(ctx, table, columns, b.scaled(packGenerations), rows); err != nil {
			return err
		}
		files, bytes, m, err := b.mergeSealed(table)
		if err != nil {
			return err
		}
		goal := 2.0
		if random {
			goal = 1
		}
		duckdb := b.duckdbCopy(ctx, "select * from "+parquetFiles(files))
		delta := b.deltaCompact(ctx, files)
		b.report("pack "+table, len(files), bytes, m, duckdb.ratio(m.took, goal), delta.ratio(m.took, 3))
		return nil
	}
}
