package rowkey

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// radixMin is the number of keys from which sorting by digits beats sorting by comparison.
const radixMin = 512

// entry is a key that is being sorted: the eight bytes behind the prefix that all keys share, and its row. Few
// comparisons look further.
type entry struct {
	head uint64
	row  int32
}

// SortStable is the permutation that puts the keys in order: the row of the smallest key first, equal keys in the order
// they have. There must be fewer than 2^31 keys.
//
//  1. Keys that are in order already, as those of a writer that appends in key order, cost one pass.
//  2. The prefix that all keys share is skipped; the next eight bytes of each, padded with zeros, become a number. No
//     key is a prefix of another, so the numbers' order is the keys' order wherever they differ.
//  3. The numbers are sorted by byte digits, least significant first, which is stable; digits that all share are skipped.
//  4. Rows with equal numbers are sorted by their whole keys.
func SortStable(keys *Keys) []int32 {
	rows := make([]int32, keys.Len())
	for i := range rows {
		rows[i] = int32(i)
	}
	if keys.Sorted() {
		return rows
	}
	shared := keys.sharedPrefix()
	entries := make([]entry, len(rows))
	for i := range entries {
		entries[i] = entry{head(keys.At(i), shared), int32(i)}
	}
	if len(entries) >= radixMin {
		entries = radixSort(entries)
	} else {
		slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.head, b.head) })
	}
	keys.settle(entries, shared+8)
	for i, e := range entries {
		rows[i] = e.row
	}
	return rows
}

// sharedPrefix is the number of bytes with which all keys start.
func (k *Keys) sharedPrefix() int {
	first := k.At(0)
	shared := len(first)
	for i := 1; i < k.Len() && shared > 0; i++ {
		key := k.At(i)
		n := min(shared, len(key))
		for shared = 0; shared < n && first[shared] == key[shared]; {
			shared++
		}
	}
	return shared
}

func head(key []byte, from int) uint64 {
	if len(key) >= from+8 {
		return binary.BigEndian.Uint64(key[from:])
	}
	var padded [8]byte
	copy(padded[:], key[min(from, len(key)):])
	return binary.BigEndian.Uint64(padded[:])
}

func radixSort(entries []entry) []entry {
	var counts [8][256]int
	for _, e := range entries {
		for digit := range counts {
			counts[digit][byte(e.head>>(8*digit))]++
		}
	}
	other := make([]entry, len(entries))
	for digit := range counts {
		count := &counts[digit]
		shift := 8 * digit
		if count[byte(entries[0].head>>shift)] == len(entries) {
			continue
		}
		at := 0
		for value, n := range count {
			count[value] = at
			at += n
		}
		for _, e := range entries {
			value := byte(e.head >> shift)
			other[count[value]] = e
			count[value]++
		}
		entries, other = other, entries
	}
	return entries
}

// settle sorts each stretch of entries with equal heads by what their keys have from byte from on.
func (k *Keys) settle(entries []entry, from int) {
	rest := func(e entry) []byte {
		key := k.At(int(e.row))
		return key[min(from, len(key)):]
	}
	for start := 0; start < len(entries); {
		end := start + 1
		for end < len(entries) && entries[end].head == entries[start].head {
			end++
		}
		if end-start > 1 {
			slices.SortStableFunc(entries[start:end], func(a, b entry) int { return bytes.Compare(rest(a), rest(b)) })
		}
		start = end
	}
}
