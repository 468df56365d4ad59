package shardmanifest

import (
	"fmt"
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
)

func sealFile(t *testing.T, s objstore.Store, h *Hold) Generation {
	t.Helper()
	g := file(h, 1)
	if res := s.PutIfAbsent(t.Context(), h.Chain().Key(g.Path), []byte("rows")); res.Err != nil {
		t.Fatal(res.Err)
	}
	if _, err := h.Seal(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	return g
}

// clean deletes all garbage and returns the numbers of the generations whose files are left.
func clean(t *testing.T, c *Chain) (deleted int, left []uint64) {
	t.Helper()
	garbage, err := c.Garbage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deleted, _, err = c.Clean(t.Context(), garbage)
	if err != nil {
		t.Fatal(err)
	}
	files, err := c.listFiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		left = append(left, f.number)
	}
	return deleted, left
}

func TestGenerationFilesOutliveTheirTrimByAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := objstore.NewMemory(clock.System())
		h := mustClaim(t, newChain(s, 1), "")
		c := newChain(s, 2)
		for range 5 {
			sealFile(t, s, h)
		}
		time.Sleep(3 * time.Hour) // the age of a file does not matter, only that of its trim
		if deleted, left := clean(t, c); deleted != 0 || len(left) != 5 {
			t.Fatal("nothing is trimmed yet:", deleted, left)
		}
		if _, err := c.Trim(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(FileAgeMin - time.Second)
		if _, left := clean(t, c); len(left) != 5 {
			t.Fatal("before the hour:", left)
		}
		time.Sleep(time.Second)
		if _, left := clean(t, c); !slices.Equal(left, []uint64{4, 5}) {
			t.Fatal("after the hour:", left)
		}
	})
}

func TestTrimmingAgainAndAgainDoesNotKeepFilesForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := objstore.NewMemory(clock.System())
		h := mustClaim(t, newChain(s, 1), "")
		c := newChain(s, 2)
		for i := range uint64(200) {
			sealFile(t, s, h)
			if _, err := c.Trim(t.Context(), i+1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			_, left := clean(t, c)
			if len(left) > 120 {
				t.Fatalf("after %d minutes %d files are left", i, len(left))
			}
			if i > 60 && !slices.Contains(left, i-57) {
				t.Fatalf("after %d minutes the file of generation %d, trimmed 59 minutes ago, is gone: %v", i, i-57, left)
			}
			manifests, err := c.listManifests(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n := len(manifests.objects); n > versionsKept+1+trimsMax {
				t.Fatalf("after %d minutes %d manifests are left", i, n)
			}
		}
	})
}

func TestAFileThatNoManifestNamesGoesOnlyWhenItCanNeverBeNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := objstore.NewMemory(clock.System())
		h := mustClaim(t, newChain(s, 1), "")
		c := newChain(s, 2)
		put := func(number uint64) string {
			key := c.Key(c.GenerationPath(number))
			if res := s.PutIfAbsent(t.Context(), key, []byte("rows")); res.Err != nil {
				t.Fatal(res.Err)
			}
			return key
		}
		named := sealFile(t, s, h)
		orphan, next := put(1), put(2)
		time.Sleep(24 * time.Hour)
		garbage, err := c.Garbage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(garbage) != 1 || garbage[0].Key != orphan || garbage[0].Why == "" {
			t.Fatalf("%+v", garbage)
		}
		sealFile(t, s, h)
		if _, _, err := c.Clean(t.Context(), garbage); err != nil {
			t.Fatal(err)
		}
		garbage, err = c.Garbage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(garbage) != 1 || garbage[0].Key != next {
			t.Fatalf("generation 2 is sealed from another file: %+v", garbage)
		}
		if _, _, err := s.Get(t.Context(), c.Key(named.Path)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOldManifestsGoOnceTheBoundaryHasPassedThemAndTheNewestStays(t *testing.T) {
	s := objstore.NewMemory(clock.System())
	h := mustClaim(t, newChain(s, 1), "")
	for range 30 {
		mustSeal(t, h, 1)
	}
	c := newChain(s, 2)
	garbage, err := c.Garbage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range garbage {
		names = append(names, path.Base(g.Key))
	}
	m := mustLatest(t, c)
	if m.Version != 31 || m.Boundary != 14 || len(names) != 14 || names[13] != manifestName(1) {
		t.Fatalf("version %d, boundary %d, garbage %v", m.Version, m.Boundary, names)
	}
	if _, _, err := c.Clean(t.Context(), garbage); err != nil {
		t.Fatal(err)
	}
	if again := mustLatest(t, c); fmt.Sprint(again) != fmt.Sprint(m) {
		t.Fatalf("%+v\n%+v", m, again)
	}
	mustSeal(t, h, 1)
}
