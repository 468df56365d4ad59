package rowkey

import "bytes"

// Keys are the encoded keys of the rows of a record, in one buffer. The zero value is empty and ready for
// [Encoder.Encode].
type Keys struct {
	buf  []byte
	ends []int // ends[i] is where key i ends and key i+1 starts
}

// Len is the number of keys.
func (k *Keys) Len() int { return len(k.ends) }

// At is key i. It shares the buffer: it is valid until the keys are encoded into again, and must not be changed.
func (k *Keys) At(i int) []byte {
	start := 0
	if i > 0 {
		start = k.ends[i-1]
	}
	return k.buf[start:k.ends[i]:k.ends[i]]
}

// Compare compares keys i and j as bytes.Compare does.
func (k *Keys) Compare(i, j int) int { return bytes.Compare(k.At(i), k.At(j)) }

// Size is the memory the keys hold, in bytes.
func (k *Keys) Size() int { return cap(k.buf) + 8*cap(k.ends) }

// Sorted says whether the keys are in order; equal neighbours are.
func (k *Keys) Sorted() bool {
	for i := 1; i < k.Len(); i++ {
		if k.Compare(i-1, i) > 0 {
			return false
		}
	}
	return true
}
