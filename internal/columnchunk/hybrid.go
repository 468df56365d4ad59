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

const (
	// unpackPadding is how many bytes must be readable behind packed values: they are loaded eight bytes at a time.
	unpackPadding = 8
	// widthMax is the widest index that is read: 32 bits, at a shift of up to seven, fit a load.
	widthMax = 32
)

// hybrid reads values that appendHybrid has written, as any writer's.
type hybrid struct {
	b      []byte // what is left; unpackPadding bytes are readable behind it
	width  int
	run    int    // values left of the run in hand
	value  uint32 // that the run repeats, unless it is packed
	packed bool
	bit    int // of the next packed value, in b
	bytes  int // of the packed run, in b
}

func newHybrid(b []byte, width int) (*hybrid, error) {
	if width > widthMax {
		return nil, errIndex
	}
	return &hybrid{b: b, width: width}, nil
}

// read fills dst.
func (h *hybrid) read(dst []uint32) error {
	for len(dst) > 0 {
		if h.run == 0 {
			if err := h.begin(); err != nil {
				return err
			}
		}
		n := min(h.run, len(dst))
		if h.packed {
			unpack(dst[:n], h.b[:h.bytes+unpackPadding:h.bytes+unpackPadding], h.bit, h.width)
			h.bit += n * h.width
		} else {
			for i := range dst[:n] {
				dst[i] = h.value
			}
		}
		h.run -= n
		dst = dst[n:]
		if h.packed && h.run == 0 {
			h.b = h.b[h.bytes:]
		}
	}
	return nil
}

// begin reads the head of the next run.
func (h *hybrid) begin() error {
	head, used := binary.Uvarint(h.b)
	if used <= 0 || head>>1 == 0 || head>>1 > 1<<28 {
		return errCut
	}
	h.b = h.b[used:]
	h.run, h.packed = int(head>>1), head&1 == 1
	if h.packed {
		h.bytes, h.bit = h.run*h.width, 0
		h.run *= 8
		if h.bytes > len(h.b) {
			return errCut
		}
		return nil
	}
	n := (h.width + 7) / 8
	if n > len(h.b) {
		return errCut
	}
	h.value = 0
	for i, v := range h.b[:n] {
		h.value |= uint32(v) << (8 * i)
	}
	h.b = h.b[n:]
	return nil
}

// unpack reads values of a bit width from a bit on. Eight bytes must be readable behind the last.
func unpack(dst []uint32, src []byte, bit, width int) {
	mask := uint64(1)<<width - 1
	for i := range dst {
		dst[i] = uint32(binary.LittleEndian.Uint64(src[bit>>3:]) >> (bit & 7) & mask)
		bit += width
	}
}
