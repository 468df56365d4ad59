package columnchunk

import (
	"math/bits"

	"github.com/zeebo/xxh3"
)

// dictionary numbers the distinct values of a column in the order they come. Exactly one of words and text is used.
type dictionary struct {
	slots []int32 // open addressing: number + 1, or 0; a power of two, at most half full
	words []uint64
	text  []byte
	ends  []int
	bytes int // of the dictionary page, before compression
	width int // bytes of a word in the page
}

const slotsMin = 1 << 10

func newDictionary(width int) *dictionary {
	return &dictionary{slots: make([]int32, slotsMin), width: width}
}

func (d *dictionary) len() int { return max(len(d.words), len(d.ends)) }

// mix spreads the bits of a word; the multiplier is that of Fibonacci hashing.
func mix(v uint64) uint64 {
	h, l := bits.Mul64(v^0x9e3779b97f4a7c15, 0x9e3779b97f4a7c15)
	return h ^ l
}

// addWord returns the number of a value.
func (d *dictionary) addWord(v uint64) uint32 {
	mask := uint64(len(d.slots) - 1)
	for at := mix(v) & mask; ; at = (at + 1) & mask {
		n := d.slots[at]
		if n == 0 {
			d.words = append(d.words, v)
			d.bytes += d.width
			d.slots[at] = int32(len(d.words))
			if 2*len(d.words) > len(d.slots) {
				d.rehash()
			}
			return uint32(len(d.words) - 1)
		}
		if d.words[n-1] == v {
			return uint32(n - 1)
		}
	}
}

func (d *dictionary) at(n int) []byte {
	start := 0
	if n > 0 {
		start = d.ends[n-1]
	}
	return d.text[start:d.ends[n]]
}

// addText returns the number of a value.
func (d *dictionary) addText(v []byte) uint32 {
	mask := uint64(len(d.slots) - 1)
	for at := xxh3.Hash(v) & mask; ; at = (at + 1) & mask {
		n := int(d.slots[at])
		if n == 0 {
			d.text = append(d.text, v...)
			d.ends = append(d.ends, len(d.text))
			d.bytes += d.width + len(v)
			d.slots[at] = int32(len(d.ends))
			if 2*len(d.ends) > len(d.slots) {
				d.rehash()
			}
			return uint32(len(d.ends) - 1)
		}
		if string(d.at(n-1)) == string(v) {
			return uint32(n - 1)
		}
	}
}

func (d *dictionary) rehash() {
	slots := make([]int32, 2*len(d.slots))
	mask := uint64(len(slots) - 1)
	put := func(h uint64, n int) {
		at := h & mask
		for slots[at] != 0 {
			at = (at + 1) & mask
		}
		slots[at] = int32(n + 1)
	}
	for i, v := range d.words {
		put(mix(v), i)
	}
	for i := range d.ends {
		put(xxh3.Hash(d.at(i)), i)
	}
	d.slots = slots
}
