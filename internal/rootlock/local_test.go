package rootlock

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
)

func local(t *testing.T, dir, holder string) Options {
	t.Helper()
	s, err := objstore.NewLocal(dir, clock.System(), random.New())
	if err != nil {
		t.Fatal(err)
	}
	return Options{Store: s, Dir: dir, Holder: holder, Cluster: "default", Clock: clock.System(), Random: random.New(), Log: hclog.NewNullLogger()}
}

func TestALocalRootIsServedByOneProcessAtATime(t *testing.T) {
	dir := t.TempDir()
	err := Run(t.Context(), local(t, dir, "a"), func(ctx context.Context, c Claim) error {
		r := root(t, local(t, dir, "").Store)
		if r.Kind != Standalone || r.LeaseMS != 0 || r.ID != c.ID {
			t.Errorf("%+v", r)
		}
		err := Run(ctx, local(t, dir, "b"), nil)
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "standalone server a") {
			t.Errorf("the second ended with %v", err)
		}
		if _, err := lockFile(dir, false); !errors.Is(err, ErrLocked) {
			t.Errorf("a cluster's master got the lock too: %v", err)
		}
		if _, err := Unlock(ctx, unlocking(local(t, dir, "op")), c.ID); !errors.Is(err, ErrLocked) {
			t.Errorf("unlocked although its holder lives: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := root(t, local(t, dir, "").Store); r.Kind != Released {
		t.Errorf("%+v", r)
	}
}

func TestALocalRootWhoseServerWasKilledIsFreeAtOnce(t *testing.T) {
	dir := t.TempDir()
	o := local(t, dir, "a")
	if r := o.Store.PutIfAbsent(t.Context(), RootKey, o.record(Standalone, "killed").Encode()); r.Err != nil {
		t.Fatal(r.Err)
	}
	served := false
	err := Run(t.Context(), o, func(_ context.Context, c Claim) error {
		served = c.ID != "killed"
		return nil
	})
	if err != nil || !served {
		t.Error(err, served)
	}
}

func TestALocalRootOfAClusterOrOfABucketIsRefused(t *testing.T) {
	for _, r := range []Record{{Kind: Cluster, Cluster: "prod", ID: "x"}, {Kind: Standalone, ID: "x", LeaseMS: 30000}} {
		o := local(t, t.TempDir(), "a")
		if r := o.Store.PutIfAbsent(t.Context(), RootKey, r.Encode()); r.Err != nil {
			t.Fatal(r.Err)
		}
		var held *HeldError
		if err := Run(t.Context(), o, nil); !errors.As(err, &held) || !strings.Contains(err.Error(), "tidemark root unlock --root "+o.Dir+" --id x") {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestMastersOfAClusterShareTheFileLockAndAnAllInOneServerIsRefused(t *testing.T) {
	dir := t.TempDir()
	first, err := lockFile(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	second, err := lockFile(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	first.Unlock()
	if _, err := lockFile(dir, true); !errors.Is(err, ErrLocked) {
		t.Error(err)
	}
	second.Unlock()
	third, err := lockFile(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	third.Unlock()
}

func unlocking(o Options) UnlockOptions {
	return UnlockOptions{Store: o.Store, Clock: clock.System(), Random: o.Random, Holder: o.Holder, Dir: o.Dir}
}
