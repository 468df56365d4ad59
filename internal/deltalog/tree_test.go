package deltalog

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTreeBehavesLikeAMapAndOldVersionsStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			tree  tree[int]
			model map[string]int
		}
		now := version{model: map[string]int{}}
		var kept []version
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			key := rapid.StringMatching(`[a-e]{0,2}`).Draw(t, "key")
			kept = append(kept, version{now.tree, maps.Clone(now.model)})
			if rapid.Bool().Draw(t, "delete") {
				now.tree = now.tree.delete(key)
				delete(now.model, key)
			} else {
				value := rapid.Int().Draw(t, "value")
				now.tree = now.tree.set(key, value)
				now.model[key] = value
			}
		}
		for _, v := range append(kept, now) {
			var keys []string
			for k, value := range v.tree.all() {
				keys = append(keys, k)
				if v.model[k] != value {
					t.Fatalf("%q is %d, want %d", k, value, v.model[k])
				}
			}
			if want := slices.Sorted(maps.Keys(v.model)); !slices.Equal(keys, want) || v.tree.len != len(want) {
				t.Fatalf("keys %q (%d), want %q", keys, v.tree.len, want)
			}
		}
	})
}

func TestTreeShapeDependsOnContentOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.StringN(0, 4, -1), 0, 40, rapid.ID[string]).Draw(t, "keys")
		var grown tree[int]
		for _, k := range keys {
			grown = grown.set(k, 1)
		}
		var entries []treeEntry[int]
		for _, k := range slices.Sorted(slices.Values(keys)) {
			entries = append(entries, treeEntry[int]{k, 1})
		}
		if a, b := shape(grown.root), shape(buildTree(entries).root); a != b {
			t.Fatalf("grown %s, built %s", a, b)
		}
	})
}

func shape(n *node[int]) string {
	if n == nil {
		return "."
	}
	return fmt.Sprintf("(%s %q %s)", shape(n.left), n.key, shape(n.right))
}
