package columnchunk

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// Integers as Parquet's DELTA_BINARY_PACKED has them: the first value, then blocks of differences, each less the least one
// of its block and packed to the bits that the greatest of a miniblock needs. Sorted keys take a few bits each, and values
// without any order their own bits and no more; both need no compression afterwards, which costs ten times as much.

const (
	deltaBlock = 128 // differences; what most writers take
	deltaMini  = 32  // of a block, with a bit width of their own
	// deltaBlockMax bounds the blocks of other writers; the largest known are of 2,048.
	deltaBlockMax = 1 << 16
)

var errDelta = errors.New("its differences are not packed as the format says")

// difference subtracts in the width of the values, as readers add. The result has its sign extended.
func difference(a, b uint64, width int) int64 {
	if width == 4 {
		return int64(int32(uint32(a) - uint32(b)))
	}
	return int64(a - b)
}

// appendDelta appends values of 4 or 8 bytes.
func appendDelta(dst []byte, values []uint64, width int) []byte {
	dst = binary.AppendUvarint(dst, deltaBlock)
	dst = binary.AppendUvarint(dst, deltaBlock/deltaMini)
	dst = binary.AppendUvarint(dst, uint64(len(values)))
	if len(values) == 0 {
		return append(dst, 0)
	}
	dst = binary.AppendVarint(dst, int64(values[0]))
	var deltas [deltaBlock]uint64
	for last, rest := values[0], values[1:]; len(rest) > 0; {
		n := min(len(rest), deltaBlock)
		least := difference(rest[0], last, width)
		for i, v := range rest[:n] {
			d := difference(v, last, width)
			least = min(least, d)
			deltas[i], last = uint64(d), v
		}
		rest = rest[n:]
		dst = binary.AppendVarint(dst, least)
		widths := len(dst)
		dst = append(dst, make([]byte, deltaBlock/deltaMini)...)
		for m := 0; m*deltaMini < n; m++ {
			mini := deltas[m*deltaMini : (m+1)*deltaMini]
			clear(mini[min(n-m*deltaMini, deltaMini):]) // the last one is filled up
			all := uint64(0)
			for i, d := range mini[:min(n-m*deltaMini, deltaMini)] {
				mini[i] = uint64(difference(d, uint64(least), width))
				if width == 4 {
					mini[i] = uint64(uint32(mini[i]))
				}
				all |= mini[i]
			}
			w := bits.Len64(all)
			dst[widths+m] = byte(w)
			dst = appendMini(dst, mini, w)
		}
	}
	return dst
}

// appendMini packs values of up to 64 bits; their number times their width is a whole number of bytes.
func appendMini(dst []byte, values []uint64, width int) []byte {
	acc, have := uint64(0), 0
	for _, v := range values {
		acc |= v << have
		have += width
		if have >= 64 {
			dst = binary.LittleEndian.AppendUint64(dst, acc)
			have -= 64
			acc = v >> (width - have) // nothing is left of it if have is 0: shifts of 64 give 0
		}
	}
	for ; have > 0; have -= 8 {
		dst = append(dst, byte(acc))
		acc >>= 8
	}
	return dst
}

// deltas reads values that appendDelta has written, as any writer's.
type deltas struct {
	b     []byte // what is left; unpackPadding bytes are readable behind it
	width int    // bytes of a value
	block int    // differences of a block,
	mini  int    // and of a miniblock
	left  int    // values not yet read
	first bool   // the next one is the first, which is in last
	last  uint64

	least   uint64
	widths  []byte // of the miniblocks of the block that are still to come
	packed  int    // differences left of the miniblock in hand
	bits    int    // width of them
	bit     int    // of the next one, in b
	scratch [deltaMini]uint64
}

// open reads the head. It returns how many values follow.
func (d *deltas) open(b []byte, width int) (int, error) {
	*d = deltas{b: b, width: width, first: true}
	var head [3]uint64 // of a block, miniblocks in it, values
	for i := range head {
		v, used := binary.Uvarint(d.b)
		if used <= 0 {
			return 0, errCut
		}
		head[i], d.b = v, d.b[used:]
	}
	first, used := binary.Varint(d.b)
	if used <= 0 {
		return 0, errCut
	}
	d.b, d.last = d.b[used:], uint64(first)
	if head[0] == 0 || head[0] > deltaBlockMax || head[0]%deltaBlock != 0 || head[1] == 0 || head[0]%head[1] != 0 || head[0]/head[1]%deltaMini != 0 || head[2] > 1<<31 {
		return 0, errDelta
	}
	d.block, d.mini, d.left = int(head[0]), int(head[0]/head[1]), int(head[2])
	return d.left, nil
}

// read reads values into dst, as words: integers with their sign extended.
func (d *deltas) read(dst []uint64) error {
	if len(dst) > d.left {
		return errCut
	}
	d.left -= len(dst)
	if d.first && len(dst) > 0 {
		d.first = false
		if d.width == 4 {
			d.last = uint64(int64(int32(uint32(d.last))))
		}
		dst[0], dst = d.last, dst[1:]
	}
	for len(dst) > 0 {
		if d.packed == 0 {
			if err := d.begin(); err != nil {
				return err
			}
		}
		n := min(len(dst), d.packed, len(d.scratch))
		d.some(dst[:n])
		dst = dst[n:]
	}
	return nil
}

// some reads n values of the miniblock in hand.
func (d *deltas) some(dst []uint64) {
	last, least := d.last, d.least
	if d.width == 8 {
		if d.bits == 0 {
			for i := range dst {
				last += least
				dst[i] = last
			}
		} else {
			packed := d.scratch[:len(dst)]
			unpackWords(packed, d.b, d.bit, d.bits)
			for i, v := range packed {
				last += least + v
				dst[i] = last
			}
		}
	} else {
		packed := d.scratch[:len(dst)]
		unpackWords(packed, d.b, d.bit, d.bits)
		for i, v := range packed {
			last = uint64(int64(int32(uint32(last) + uint32(least) + uint32(v))))
			dst[i] = last
		}
	}
	d.last = last
	d.bit += len(dst) * d.bits
	if d.packed -= len(dst); d.packed == 0 {
		d.b = d.b[d.mini*d.bits/8:]
	}
}

// begin reads up to the differences of the next miniblock.
func (d *deltas) begin() error {
	if len(d.widths) == 0 {
		least, used := binary.Varint(d.b)
		minis := d.block / d.mini
		if used <= 0 || len(d.b) < used+minis {
			return errCut
		}
		d.least = uint64(least)
		d.widths, d.b = d.b[used:used+minis], d.b[used+minis:]
	}
	d.bits, d.widths = int(d.widths[0]), d.widths[1:]
	if d.bits > 8*d.width {
		return errDelta
	}
	if d.mini*d.bits/8 > len(d.b) {
		return errCut
	}
	d.packed, d.bit = d.mini, 0
	return nil
}

// unpackWords reads values of a width of up to 64 bits from a bit on. Eight bytes must be readable behind the last.
func unpackWords(dst []uint64, src []byte, bit, width int) {
	src = src[:cap(src)]
	if width <= 64-7 {
		mask := uint64(1)<<width - 1
		for i := range dst {
			dst[i] = binary.LittleEndian.Uint64(src[bit>>3:]) >> (bit & 7) & mask
			bit += width
		}
		return
	}
	mask := ^uint64(0) >> (64 - width)
	for i := range dst {
		at, shift := bit>>3, bit&7
		v := binary.LittleEndian.Uint64(src[at:]) >> shift
		v |= uint64(src[at+8]) << (64 - shift) // a shift of 64 gives 0
		dst[i] = v & mask
		bit += width
	}
}
