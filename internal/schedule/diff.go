package schedule

import "sort"

// Change is what has to happen to a table's ready keys. Every deletion and the puts that overlap it belong in one
// transaction.
type Change struct {
	Delete []Unit // present units, by their key
	Put    []Unit
}

// Empty says that the queue is as it should be.
func (c Change) Empty() bool { return len(c.Delete) == 0 && len(c.Put) == 0 }

// Diff compares the plan's units with those in the queue. A present unit stays untouched unless its key would change or
// its size has changed by a power of two, because every write to a ready key costs an etcd transaction and may refuse
// an executor's claim.
func Diff(present, wanted []Unit) Change {
	var c Change
	byGroups := make(map[Groups]Unit, len(wanted))
	for _, u := range wanted {
		byGroups[u.Groups] = u
	}
	for _, have := range present {
		want, ok := byGroups[have.Groups]
		switch {
		case ok && same(have, want):
			delete(byGroups, have.Groups) // and any second key over the same groups is deleted
		case ok && have.Class == want.Class && have.Order == want.Order:
			// The same key: the put replaces it.
		default:
			c.Delete = append(c.Delete, have)
		}
	}
	for _, u := range byGroups {
		c.Put = append(c.Put, u)
	}
	sort.Slice(c.Put, func(i, j int) bool { return c.Put[i].Groups < c.Put[j].Groups })
	return c
}

// same says that a queued unit still describes the work.
func same(have, want Unit) bool {
	return have.Kind == want.Kind && have.Class == want.Class && have.Order == want.Order &&
		have.TableID == want.TableID && have.Incarnation == want.Incarnation &&
		magnitude(float64(have.Bytes)) == magnitude(float64(want.Bytes)) &&
		magnitude(float64(have.Gens)) == magnitude(float64(want.Gens))
}
