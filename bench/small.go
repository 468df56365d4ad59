package main

import (
	"context"
	"fmt"
	"time"
)

// The small case: a whole unit, from claim to release, of five generations with less than 1 MiB in all.
var smallCases = []benchCase{{"small", small}}

const smallGoal = 50 * time.Millisecond

func small(ctx context.Context, b *bench) error {
	const table = "small"
	if err := b.load(ctx, table, narrowCategories(), 5, 5_000); err != nil {
		return err
	}
	files, bytes, m, err := b.mergeSealed(table)
	if err != nil {
		return err
	}
	b.report("small", len(files), bytes, m, fmt.Sprintf("%d ms from claim to release, goal %d", m.took.Milliseconds(), smallGoal.Milliseconds()))
	return nil
}
