package random_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"tidemark/internal/random"
)

func TestASeedRepeatsItsSequence(t *testing.T) {
	a, b, other := random.Seeded(7), random.Seeded(7), random.Seeded(8)
	for range 100 {
		x := a.Uint64()
		if x != b.Uint64() || x == other.Uint64() {
			t.Fatal("equal seeds must agree, different ones must not")
		}
	}
}

func TestIDsAreDistinctLowerCaseHex(t *testing.T) {
	src := random.New()
	seen := map[string]bool{}
	for range 1000 {
		id := random.ID(src)
		for _, c := range id {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				t.Fatalf("%q is not lower-case hexadecimal", id)
			}
		}
		if len(id) != 32 || seen[id] {
			t.Fatalf("%q is not fresh or not 32 digits", id)
		}
		seen[id] = true
	}
}

func TestJitterStaysBetweenHalfAndAll(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := time.Duration(rapid.Int64Range(-10, int64(1000*time.Hour)).Draw(r, "d"))
		got := random.Jitter(random.Seeded(rapid.Uint64().Draw(r, "seed")), d)
		if d <= 0 && got != d || d > 0 && (got < d/2 || got > d) {
			r.Fatalf("%d jittered to %d", d, got)
		}
	})
}
