package rootlock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"tidemark/internal/objstore"
)

func TestARootIsUnlockedByItsExactIdAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := memory()
		if r := store.PutIfAbsent(t.Context(), RootKey, Record{Kind: Cluster, Cluster: "prod", ID: "abc"}.Encode()); r.Err != nil {
			t.Fatal(r.Err)
		}
		o := unlocking(named(store, "op", 1))
		var held *HeldError
		for _, id := range []string{"", "ab", "abcd", "prod"} {
			if _, err := Unlock(t.Context(), o, id); !errors.As(err, &held) || !strings.Contains(err.Error(), `cluster "prod" (id abc)`) ||
				!strings.Contains(err.Error(), "tidemark root unlock --root mem:// --id abc") {
				t.Errorf("%q: %v", id, err)
			}
		}
		was, err := Unlock(t.Context(), o, "abc")
		if err != nil || was.Cluster != "prod" || root(t, store).Kind != Released {
			t.Errorf("%+v, %v", was, err)
		}
		if _, err := Unlock(t.Context(), o, "abc"); !errors.Is(err, ErrNotLocked) {
			t.Error(err)
		}
		s := start(t, named(store, "a", 2), nil)
		after(0)
		if !s.admits() {
			t.Error("an unlocked root is not free")
		}
	})
}

func TestAServerThatIsUnlockedWhileItLivesStopsBeforeItsNextBeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := memory()
		s := start(t, named(store, "a", 1), nil)
		after(12 * time.Second)
		if _, err := Unlock(t.Context(), unlocking(named(store, "op", 2)), s.id()); err != nil {
			t.Fatal(err)
		}
		if err := s.end(); !errors.Is(err, ErrSuperseded) || s.lost != 20*time.Second {
			t.Errorf("%v at %v", err, s.lost)
		}
		if root(t, store).Kind != Released {
			t.Error("locked again")
		}
	})
}

func TestUnlockingARootThatChangesHandsMeanwhileTakesItFromNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := memory()
		dead(t, store, 1)
		o := unlocking(named(&meanwhileRead{Store: store, meanwhile: func() { putRival(t, store) }}, "op", 1))
		if _, err := Unlock(t.Context(), o, "dead"); err == nil || !strings.Contains(err.Error(), "changed hands") {
			t.Error(err)
		}
		if r := root(t, store); r.ID != "rival" {
			t.Errorf("%+v", r)
		}
	})
}

// meanwhileRead does something right after root.json was read.
type meanwhileRead struct {
	objstore.Store
	meanwhile func()
}

func (s *meanwhileRead) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	defer s.meanwhile()
	return s.Store.Get(ctx, key)
}
