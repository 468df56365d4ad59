package maintain

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/deltalog"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
	"tidemark/internal/random"
	"tidemark/internal/schema"
	"tidemark/internal/shardmanifest"
	"tidemark/internal/table"
)

// fixture is a table in memory, with the clock of the bubble.
type fixture struct {
	t     *testing.T
	store objstore.Store
	deps  Deps
	table *table.Table
	files int
}

func newFixture(t *testing.T, properties map[string]string) *fixture {
	f := &fixture{t: t, store: objstore.NewMemory(clock.System())}
	f.deps = Deps{Store: f.store, Clock: clock.System(), Random: random.Seeded(1)}
	var err error
	f.table, err = table.Create(t.Context(), f.store, "events", table.CreateOptions{
		Schema: schema.New(schema.Field{Name: "id", Type: schema.Type{Kind: schema.Long}, Nullable: true}), Properties: properties,
	}, f.deps.table())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) put(key string) {
	f.t.Helper()
	if res := f.store.PutIfAbsent(f.t.Context(), key, []byte("bytes")); res.Err != nil {
		f.t.Fatal(res.Err)
	}
}

func (f *fixture) chain(shard string) *shardmanifest.Chain { return chain(f.deps, f.table, shard) }

func (f *fixture) claim(shard string) *shardmanifest.Hold {
	f.t.Helper()
	h, err := f.chain(shard).Claim(f.t.Context(), shardmanifest.ClaimOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

func (f *fixture) seal(h *shardmanifest.Hold, n int) {
	f.t.Helper()
	for range n {
		g := shardmanifest.Generation{Path: h.Chain().GenerationPath(h.Next()), Rows: 1, Bytes: 5}
		f.put(h.Chain().Key(g.Path))
		if _, err := h.Seal(f.t.Context(), g); err != nil {
			f.t.Fatal(err)
		}
	}
}

// commit changes the table as an execution or another engine does.
func (f *fixture) commit(in deltalog.Intent) {
	f.t.Helper()
	snapshot, err := f.table.Log.Snapshot(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	in.TableID, in.Read, in.Info = f.table.ID, snapshot, deltalog.CommitInfo{Operation: "TEST"}
	if _, err := f.table.Log.Commit(f.t.Context(), in); err != nil {
		f.t.Fatal(err)
	}
}

// merge commits a merged mark with one base file.
func (f *fixture) merge(shard string, to int64) string {
	f.t.Helper()
	snapshot, err := f.table.Log.Snapshot(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	f.files++
	file := fmt.Sprintf("part-%d.parquet", f.files)
	f.put("events/" + file)
	f.commit(deltalog.Intent{
		Adds:  []deltalog.Add{{Path: file, Size: 5, DataChange: true}},
		Marks: map[string]deltalog.MarkChange{deltalog.AppID(f.table.ID, shard): {From: snapshot.Mark(shard), To: to}},
	})
	return file
}

func (f *fixture) remove(file string) {
	f.t.Helper()
	f.commit(deltalog.Intent{Removes: []deltalog.Remove{{Path: file, DataChange: true, DeletionTimestamp: time.Now().UnixMilli()}}})
}

func (f *fixture) cleanup() Report {
	f.t.Helper()
	r, err := Cleanup(f.t.Context(), f.deps, "events")
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// keys lists what is in the store below a prefix.
func (f *fixture) keys(prefix string) []string {
	f.t.Helper()
	var keys []string
	for o, err := range objstore.ListAll(f.t.Context(), f.store, prefix) {
		if err != nil {
			f.t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

// generations lists the numbers of the generation files of a shard.
func (f *fixture) generations(shard string) string {
	var numbers []string
	for _, key := range f.keys(path.Join("events/_shards", f.table.ID, shard, "gen") + "/") {
		digits, _, _ := strings.Cut(path.Base(key), "-")
		numbers = append(numbers, strings.TrimLeft(digits, "0"))
	}
	return strings.Join(numbers, " ")
}

func TestMergedGenerationsAreTrimmedAndTheirFilesDeletedAnHourLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		h := f.claim("a")
		f.seal(h, 5)
		f.seal(f.claim("b"), 2)
		if r := f.cleanup(); r.GenerationsTrimmed != 0 || len(r.ObjectsDeleted) > 1 {
			t.Fatalf("nothing is merged: %+v", r)
		}
		f.merge("a", 3)
		if r := f.cleanup(); r.GenerationsTrimmed != 3 || r.ObjectsDeleted[Generation] != 0 {
			t.Fatalf("%+v", r)
		}
		time.Sleep(shardmanifest.FileAgeMin - time.Minute)
		f.cleanup()
		if got := f.generations("a"); got != "1 2 3 4 5" {
			t.Fatal("before the hour:", got)
		}
		time.Sleep(2 * time.Minute)
		if r := f.cleanup(); r.ObjectsDeleted[Generation] != 3 || r.BytesDeleted == 0 {
			t.Fatalf("%+v", r)
		}
		if a, b := f.generations("a"), f.generations("b"); a != "4 5" || b != "1 2" {
			t.Fatal("after the hour:", a, b)
		}
		f.seal(h, 1) // the writer was not fenced
	})
}

func TestAShardWhoseMergedMarkWentBackIsLeftAloneAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.seal(f.claim("a"), 3)
		f.seal(f.claim("b"), 3)
		f.merge("b", 2)
		// Trimmed by a mark that the log does not hold any more.
		if _, err := f.chain("a").Trim(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(48 * time.Hour)
		r := f.cleanup()
		if len(r.Skipped) != 1 || r.Skipped[0].Shard != "a" || r.Skipped[0].Code != CodeMarkRegressed || r.GenerationsTrimmed != 2 {
			t.Fatalf("%+v", r)
		}
		if got := f.generations("a"); got != "1 2 3" {
			t.Fatal("its files may be needed:", got)
		}
	})
}

func TestAnUnreadableManifestStopsItsShardOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.seal(f.claim("a"), 1)
		f.seal(f.claim("b"), 1)
		f.merge("b", 1)
		f.put(path.Join("events/_shards", f.table.ID, "a/manifest/00000000000000000001.json"))
		if r := f.cleanup(); len(r.Skipped) != 1 || r.Skipped[0].Code != CodeUnreadable || r.GenerationsTrimmed != 1 {
			t.Fatalf("%+v", r)
		}
	})
}

func TestBaseFilesGoOnlyWhenNoSnapshotWithinRetentionRefersToThemAndNothingCanCommitThem(t *testing.T) {
	for retention, age := range map[string]time.Duration{"interval 1 hour": 24 * time.Hour, "interval 3 days": 72 * time.Hour} {
		t.Run(retention, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, map[string]string{"delta.deletedFileRetentionDuration": retention})
				live := f.merge("a", 1)
				early, late := f.merge("a", 2), f.merge("a", 3)
				f.put("events/part-crashed.parquet")
				f.put("events/day=1/part-crashed.parquet")
				f.put("events/_hidden/part.parquet")
				f.put("events/.part.parquet")
				f.put("events/notes.txt")
				f.remove(early)
				time.Sleep(age - time.Minute)
				f.remove(late)
				f.put("events/part-young.parquet")
				if r := f.cleanup(); r.ObjectsDeleted[Base] != 0 {
					t.Fatalf("too young: %+v", r)
				}
				time.Sleep(2 * time.Minute)
				r := f.cleanup()
				left := f.keys("events/")
				for _, key := range []string{live, late, "_hidden/part.parquet", ".part.parquet", "notes.txt", "part-young.parquet"} {
					if !slices.Contains(left, "events/"+key) {
						t.Errorf("%s is gone", key)
					}
				}
				for _, key := range []string{early, "part-crashed.parquet", "day=1/part-crashed.parquet"} {
					if slices.Contains(left, "events/"+key) {
						t.Errorf("%s is left", key)
					}
				}
				if r.ObjectsDeleted[Base] != 3 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

func TestThePlanIsWhatCleanupDoesAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, map[string]string{
			"delta.logRetentionDuration": "interval 2 hours", "delta.deletedFileRetentionDuration": "interval 2 hours",
		})
		f.seal(f.claim("a"), 40)
		for to := range int64(12) {
			f.merge("a", to+1)
		}
		f.put("events/part-crashed.parquet")
		f.cleanup()
		time.Sleep(48 * time.Hour)
		if _, err := Checkpoint(t.Context(), f.deps, "events"); err != nil {
			t.Fatal(err)
		}
		f.merge("a", 20)
		time.Sleep(48 * time.Hour)

		before := f.keys("")
		p, err := PlanCleanup(t.Context(), f.deps, "events")
		if err != nil {
			t.Fatal(err)
		}
		if after := f.keys(""); !slices.Equal(before, after) {
			t.Fatal("the plan changed something")
		}
		if len(p.Trims) != 1 || p.Trims[0].Through != 20 || p.Trims[0].Generations != 8 {
			t.Fatalf("%+v", p.Trims)
		}
		spy, err := faultstore.Wrap(f.store, clock.System(), "")
		if err != nil {
			t.Fatal(err)
		}
		f.deps.Store = spy
		r := f.cleanup()
		var planned, deleted []string
		kinds := map[Kind]int{}
		for _, d := range p.Deletions {
			planned = append(planned, d.Key)
			kinds[d.Kind]++
			if d.Why == "" {
				t.Errorf("%s: no reason", d.Key)
			}
		}
		for _, line := range spy.Trace() {
			if key, ok := strings.CutPrefix(line, "delete "); ok {
				deleted = append(deleted, strings.TrimSuffix(key, ": ok"))
			}
		}
		slices.Sort(planned)
		slices.Sort(deleted)
		if !slices.Equal(planned, deleted) {
			t.Errorf("planned\n%s\ndeleted\n%s", strings.Join(planned, "\n"), strings.Join(deleted, "\n"))
		}
		for _, kind := range []Kind{Manifest, Generation, Base, LogFile} {
			if kinds[kind] == 0 || kinds[kind] != r.ObjectsDeleted[kind] {
				t.Errorf("%s: planned %d, deleted %d", kind, kinds[kind], r.ObjectsDeleted[kind])
			}
		}
	})
}

// TestACleanupThatDiesAnywhereHasDeletedNothingThatIsNeededAndTheNextOneFinishes fails everything from each operation on.
func TestACleanupThatDiesAnywhereHasDeletedNothingThatIsNeededAndTheNextOneFinishes(t *testing.T) {
	for at, more := 1, true; more; at++ {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, map[string]string{
				"delta.logRetentionDuration": "interval 2 hours", "delta.deletedFileRetentionDuration": "interval 2 hours",
			})
			h := f.claim("a")
			f.seal(h, 20)
			live := f.merge("a", 5)
			f.cleanup()
			f.put("events/part-crashed.parquet")
			time.Sleep(48 * time.Hour)
			f.merge("a", 7)
			rule := fmt.Sprintf("any * #%d+: fail before send", at)
			dying, err := faultstore.Wrap(f.store, clock.System(), rule)
			if err != nil {
				t.Fatal(err)
			}
			deps := f.deps
			deps.Store = dying
			if _, err := Cleanup(t.Context(), deps, "events"); err == nil && at < 20 {
				t.Errorf("operation %d failed and nobody said so", at)
			}
			more = len(dying.Unused()) == 0
			for _, g := range latest(t, f, "a").Pending(7) {
				if _, _, err := f.store.Get(t.Context(), "events/"+g.Path); err != nil {
					t.Fatalf("dying at %d: %v", at, err)
				}
			}
			f.cleanup()
			if m := latest(t, f, "a"); m.TrimmedThrough != 7 {
				t.Fatalf("dying at %d: trimmed through %d", at, m.TrimmedThrough)
			}
			left := f.keys("events/")
			if slices.Contains(left, "events/part-crashed.parquet") || !slices.Contains(left, "events/"+live) {
				t.Fatalf("dying at %d: %v", at, left)
			}
			f.seal(h, 1)
		})
	}
}

func latest(t *testing.T, f *fixture, shard string) *shardmanifest.Manifest {
	t.Helper()
	m, err := f.chain(shard).Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestACheckpointIsWrittenOnceAndTheTableReadsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.merge("a", 1)
		for range 2 {
			r, err := Checkpoint(t.Context(), f.deps, "events")
			if err != nil || r.CheckpointVersion != 1 {
				t.Fatal(r, err)
			}
		}
		snapshot, err := f.table.Log.Snapshot(t.Context())
		if err != nil || snapshot.Checkpoint != 1 || snapshot.Mark("a") != 1 || snapshot.FileCount() != 1 {
			t.Fatal(snapshot, err)
		}
	})
}
