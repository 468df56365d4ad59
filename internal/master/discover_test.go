package master

import (
	"strings"
	"testing"

	"tidemark/internal/table"
)

// A scan that comes between a drop and the new creation finds the table gone. Nothing else tells the master of the new life
// until somebody writes to it, and what the first writer publishes may be lost.
func TestATableCreatedAgainAfterAScanFoundItDroppedIsFoundAgain(t *testing.T) {
	r := newRig(t)
	first := r.create("t", nil)
	if err := table.Drop(t.Context(), r.store, "t", r.deps); err != nil {
		t.Fatal(err)
	}
	m, _ := r.run(r.config("m1"))
	r.eventually(func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.book == nil {
			return false
		}
		e := m.book.tables["t"]
		return e != nil && e.found && !e.wanted && !e.scanning
	}, func() { t.Fatal("the dropped table is not scanned") })
	again := r.create("t", nil)
	if again.ID == first.ID {
		t.Fatal("the new life has the old id")
	}
	r.until("the record of the new life", func(keys map[string]string) bool {
		for key, value := range keys {
			if strings.HasPrefix(key, r.keys.Prefix+"/tables/") && strings.Contains(value, again.ID) {
				return true
			}
		}
		return false
	})
}
