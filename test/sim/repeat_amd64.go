//go:build go1.26 && !go1.27

package sim

import "unsafe" // also for go:linkname

// The runtime draws the order of maps and of selects from a state that each of its threads has and that nobody can seed.
// A simulation runs on one thread, so for a seed to repeat itself that state has to be set. It lies in the thread's
// record, the counter of cheaprand right behind the 304 bytes of chacha8: the counter is found by what one draw adds.

// thread is the record of the thread that this runs on.
func thread() unsafe.Pointer

//go:linkname cheaprand runtime.cheaprand
func cheaprand() uint32

const (
	threadWords  = 256                // of the record are searched
	drawAdds     = 0xa0761d6478bd642f // to the counter
	chacha8Words = 304 / 8
)

// reseed makes the runtime's randomness on this thread depend on the seed alone. It says whether it could.
func reseed(seed uint64) bool {
	words := (*[threadWords]uint64)(thread())
	before := *words
	cheaprand()
	for i := chacha8Words; i < threadWords; i++ {
		if words[i]-before[i] != drawAdds {
			continue
		}
		words[i] = seed
		for j := i - chacha8Words; j < i-2; j++ {
			seed = seed*6364136223846793005 + 1442695040888963407
			words[j] = seed
		}
		words[i-2], words[i-1] = 0, 0 // nothing is left to draw: the next draw makes a new block of the seed
		return true
	}
	return false
}
