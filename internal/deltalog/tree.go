package deltalog

import (
	"iter"
	"strings"

	"github.com/zeebo/xxh3"
)

// tree is a persistent map from strings, ordered by key: every change returns a new tree that shares all but the
// O(log n) nodes on the way to the changed key. It is a treap whose priorities are hashes of the keys, so its shape
// depends on its content only.
type tree[V any] struct {
	root *node[V]
	len  int
}

type node[V any] struct {
	key         string
	priority    uint64
	value       V
	left, right *node[V]
}

// below reports whether n belongs below a node of this priority and key.
func (n *node[V]) below(priority uint64, key string) bool {
	return priority > n.priority || priority == n.priority && key < n.key
}

func (t tree[V]) get(key string) (V, bool) {
	for n := t.root; n != nil; {
		switch c := strings.Compare(key, n.key); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n.value, true
		}
	}
	var none V
	return none, false
}

func (t tree[V]) set(key string, value V) tree[V] {
	added := false
	root := insert(t.root, key, xxh3.HashString(key), value, &added)
	if added {
		t.len++
	}
	return tree[V]{root: root, len: t.len}
}

func insert[V any](n *node[V], key string, priority uint64, value V, added *bool) *node[V] {
	if n == nil {
		*added = true
		return &node[V]{key: key, priority: priority, value: value}
	}
	c := strings.Compare(key, n.key)
	if c != 0 && n.below(priority, key) {
		// The key cannot be further down: there it would have this same priority, which is above n's.
		*added = true
		left, right := split(n, key)
		return &node[V]{key: key, priority: priority, value: value, left: left, right: right}
	}
	fresh := *n
	switch {
	case c < 0:
		fresh.left = insert(n.left, key, priority, value, added)
	case c > 0:
		fresh.right = insert(n.right, key, priority, value, added)
	default:
		fresh.value = value
	}
	return &fresh
}

// split cuts a tree that does not hold key into the parts before and after it.
func split[V any](n *node[V], key string) (left, right *node[V]) {
	if n == nil {
		return nil, nil
	}
	fresh := *n
	if key < n.key {
		left, fresh.left = split(n.left, key)
		return left, &fresh
	}
	fresh.right, right = split(n.right, key)
	return &fresh, right
}

func (t tree[V]) delete(key string) tree[V] {
	if _, ok := t.get(key); !ok {
		return t
	}
	return tree[V]{root: remove(t.root, key), len: t.len - 1}
}

func remove[V any](n *node[V], key string) *node[V] {
	c := strings.Compare(key, n.key)
	if c == 0 {
		return join(n.left, n.right)
	}
	fresh := *n
	if c < 0 {
		fresh.left = remove(n.left, key)
	} else {
		fresh.right = remove(n.right, key)
	}
	return &fresh
}

// join unites two trees of which every key of the left is before every key of the right.
func join[V any](left, right *node[V]) *node[V] {
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	case left.below(right.priority, right.key):
		fresh := *right
		fresh.left = join(left, right.left)
		return &fresh
	default:
		fresh := *left
		fresh.right = join(left.right, right)
		return &fresh
	}
}

// all yields the entries in key order.
func (t tree[V]) all() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) { t.root.walk(yield) }
}

func (n *node[V]) walk(yield func(string, V) bool) bool {
	return n == nil || n.left.walk(yield) && yield(n.key, n.value) && n.right.walk(yield)
}

// buildTree makes a tree of entries whose keys rise strictly, in linear time.
func buildTree[V any](entries []treeEntry[V]) tree[V] {
	var spine []*node[V] // the right edge of the tree so far, root first
	for _, e := range entries {
		n := &node[V]{key: e.key, priority: xxh3.HashString(e.key), value: e.value}
		for len(spine) > 0 && spine[len(spine)-1].below(n.priority, n.key) {
			n.left = spine[len(spine)-1]
			spine = spine[:len(spine)-1]
		}
		if len(spine) > 0 {
			spine[len(spine)-1].right = n
		}
		spine = append(spine, n)
	}
	if len(spine) == 0 {
		return tree[V]{}
	}
	return tree[V]{root: spine[0], len: len(entries)}
}

type treeEntry[V any] struct {
	key   string
	value V
}
