package maintain

import (
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/shardmanifest"
)

func backlogged(shard string, n int) *shardmanifest.Manifest {
	m := &shardmanifest.Manifest{Shard: shard, SealedThrough: uint64(n), Generations: make([]shardmanifest.Generation, n)}
	for i := range m.Generations {
		m.Generations[i].Number = uint64(i + 1)
	}
	return m
}

func TestMaintenanceIsDueByWhatStorageShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, map[string]string{"delta.checkpointInterval": "3"})
		f.merge("merged", 100_000)
		f.merge("tail", 10)
		snapshot, err := f.table.Log.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		shards := func(m ...*shardmanifest.Manifest) []*shardmanifest.Manifest { return m }
		for _, one := range []struct {
			name          string
			manifests     []*shardmanifest.Manifest
			since         time.Duration
			due, critical bool
		}{
			{"nothing to trim", shards(backlogged("merged", 0)), time.Hour, false, false},
			{"below the bound", shards(backlogged("merged", shardmanifest.TrimDue-1)), time.Hour, false, false},
			{"at the bound", shards(backlogged("merged", shardmanifest.TrimDue)), time.Hour, true, false},
			{"critical", shards(backlogged("tail", 9), backlogged("merged", shardmanifest.TrimCritical)), time.Hour, true, true},
			{"sealed, not merged", shards(backlogged("tail", shardmanifest.TrimCritical)), time.Hour, false, false},
			{"a day without", nil, 24 * time.Hour, true, false},
			{"never, as far as is known", nil, -1, true, false},
		} {
			needs, err := Due(snapshot, one.manifests, one.since)
			if err != nil {
				t.Fatal(err)
			}
			if c := needs.Cleanup; c.Due != one.due || c.Critical != one.critical || c.Due != (c.Score >= 1) || c.Note == "" {
				t.Errorf("%s: %+v", one.name, c)
			}
			if needs.Checkpoint.Due {
				t.Errorf("two versions after the first a checkpoint is due: %+v", needs.Checkpoint)
			}
		}
		f.merge("tail", 11)
		if snapshot, err = f.table.Log.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if needs, err := Due(snapshot, nil, 0); err != nil || !needs.Checkpoint.Due {
			t.Fatalf("%+v, %v", needs, err)
		}
	})
}
