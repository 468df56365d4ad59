package maintain

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/deltalog"
	"tidemark/internal/table"
)

func TestADroppedTableIsPurgedOnceItsRetentionHasPassedAndOnlyItsLastWordsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, map[string]string{"delta.deletedFileRetentionDuration": "interval 2 days"})
		f.seal(f.claim("a"), 3)
		f.merge("a", 1)
		time.Sleep(100 * time.Hour)
		f.put("events/notes.txt")
		if _, err := Purge(t.Context(), f.deps, "events"); !errors.Is(err, ErrNotDropped) {
			t.Fatalf("a table that lives: %v", err)
		}
		if err := table.Drop(t.Context(), f.store, "events", f.deps.table()); err != nil {
			t.Fatal(err)
		}
		purge := func() Report {
			r, err := Purge(t.Context(), f.deps, "events")
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := purge(); len(r.ObjectsDeleted) != 0 {
			t.Errorf("just dropped, and purged: %+v", r)
		}
		time.Sleep(47 * time.Hour)
		if r := purge(); len(r.ObjectsDeleted) != 0 {
			t.Errorf("within the retention: %+v", r)
		}
		time.Sleep(2 * time.Hour)
		before := f.keys("")
		p, err := PlanPurge(t.Context(), f.deps, "events")
		if err != nil || !slices.Equal(before, f.keys("")) {
			t.Fatalf("the plan changed something, or %v", err)
		}
		r := purge()
		if r.ObjectsDeleted[Base] != 1 || r.ObjectsDeleted[Generation] != 3 || r.ObjectsDeleted[Manifest] == 0 ||
			len(p.Deletions) != r.ObjectsDeleted[Base]+r.ObjectsDeleted[Generation]+r.ObjectsDeleted[Manifest] {
			t.Errorf("planned %+v, done %+v", p.Deletions, r)
		}
		manifests := 0
		for _, key := range f.keys("events/") {
			switch {
			case strings.Contains(key, "/manifest/"):
				manifests++
			case strings.Contains(key, "/_delta_log/"), key == "events/notes.txt":
			default:
				t.Errorf("%s is left", key)
			}
		}
		if m := latest(t, f, "a"); manifests != 1 || m.State != "retired" {
			t.Errorf("%d manifests, the newest is %s", manifests, m.State)
		}
	})
}

func TestPurgingATableThatWasCreatedAgainMeanwhileTakesNothingOfItsNewLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, map[string]string{"delta.deletedFileRetentionDuration": "interval 2 days"})
		f.seal(f.claim("a"), 1)
		f.merge("a", 1)
		if err := table.Drop(t.Context(), f.store, "events", f.deps.table()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Hour)
		p, err := PlanPurge(t.Context(), f.deps, "events")
		if err != nil || len(p.Deletions) == 0 {
			t.Fatal(p, err)
		}
		created, err := table.Create(t.Context(), f.store, "events", table.CreateOptions{Schema: f.table.Schema}, f.deps.table())
		if err != nil {
			t.Fatal(err)
		}
		f.table = created
		f.seal(f.claim("a"), 2)
		live := f.merge("a", 2)
		r := Report{ObjectsDeleted: map[Kind]int{}}
		if err := r.delete(t.Context(), f.deps, p.Deletions); err != nil {
			t.Fatal(err)
		}
		if left := f.keys("events/"); !slices.Contains(left, "events/"+live) {
			t.Errorf("the new life's file is gone: %v", left)
		}
		for _, g := range latest(t, f, "a").Generations {
			if _, _, err := f.store.Get(t.Context(), "events/"+g.Path); err != nil {
				t.Error(err)
			}
		}
		if _, err := PlanPurge(t.Context(), f.deps, "events"); !errors.Is(err, ErrNotDropped) {
			t.Error(err)
		}
		if _, err := PlanPurge(t.Context(), f.deps, "nothing"); !errors.Is(err, deltalog.ErrNoTable) {
			t.Error(err)
		}
	})
}
