package columns

// copyBits copies n bits from bit from of src to bit at of dst, whose bits there are zero. Runs are short in a merge:
// arrow-go's own copy makes readers and writers of words, which for a run of a few rows costs more than the run.
func copyBits(dst []byte, at int, src []byte, from, n int) {
	for n > 0 {
		k := min(8-at&7, n)
		bits := src[from>>3] >> (from & 7)
		if from&7+k > 8 {
			bits |= src[from>>3+1] << (8 - from&7)
		}
		dst[at>>3] |= (bits & (1<<k - 1)) << (at & 7)
		at, from, n = at+k, from+k, n-k
	}
}

// setBits sets n bits from bit at of dst.
func setBits(dst []byte, at, n int) {
	for n > 0 {
		k := min(8-at&7, n)
		dst[at>>3] |= byte(1<<k-1) << (at & 7)
		at, n = at+k, n-k
	}
}
