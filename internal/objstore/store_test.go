package objstore_test

import (
	"testing"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
	"tidemark/internal/objstore/storetest"
	"tidemark/internal/random"
)

func openLocal(t *testing.T) *objstore.Local {
	t.Helper()
	s, err := objstore.NewLocal(t.TempDir(), clock.System(), random.New())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMemoryKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) objstore.Store { return objstore.NewMemory(clock.System()) })
}

func TestLocalDiskKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store { return openLocal(t) })
}

func TestAnOpenScopeKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store { return objstore.NewScope(openLocal(t), clock.System()) })
}

func TestAFaultStoreWithoutRulesKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store {
		s, err := faultstore.Wrap(openLocal(t), clock.System(), "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
