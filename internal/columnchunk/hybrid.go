package columnchunk

import (
	"encoding/binary"
	"math/bits"
)

// runMin is the length from which equal values are written as a run: below, packing them costs less than the switch.
const runMin = 8

// appendHybrid appends values of the given bit width in Parquet's hybrid of runs and bit-packed groups of eight.
func appendHybrid(dst []byte, values []uint32, width int) []byte {
	literal := 0 // where the values start that are to be packed; always a whole number of groups before i
	for i := 0; i < len(values); {
		run := runLength(values[i:])
		if run < runMin {
			i = min(i+runMin, len(values))
			continue
		}
		dst = appendPacked(dst, values[literal:i], width)
		dst = binary.AppendUvarint(dst, uint64(run)<<1)
		for b := 0; b < width; b += 8 {
			dst = append(dst, byte(values[i]>>b))
		}
		i += run
		literal = i
	}
	return appendPacked(dst, values[literal:], width)
}

func runLength(values []uint32) int {
	n := 1
	for n < len(values) && values[n] == values[0] {
		n++
	}
	return n
}

// appendPacked appends values as one bit-packed run, the last group filled up with zeros.
func appendPacked(dst []byte, values []uint32, width int) []byte {
	if len(values) == 0 {
		return dst
	}
	groups := (len(values) + 7) / 8
	dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
	if width == 0 {
		return dst
	}
	end := len(dst) + groups*width
	acc, have := uint64(0), 0
	for _, v := range values {
		acc |= uint64(v) << have
		have += width
		if have >= 32 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(acc))
			acc >>= 32
			have -= 32
		}
	}
	for ; have > 0; have -= 8 {
		dst = append(dst, byte(acc))
		acc >>= 8
	}
	for len(dst) < end {
		dst = append(dst, 0)
	}
	return dst
}

// widthFor is the bit width of indices into a dictionary of n entries.
func widthFor(n int) int {
	if n <= 1 {
		return 0
	}
	return bits.Len32(uint32(n - 1))
}
