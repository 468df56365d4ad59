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

// The runtime also takes a goroutine off the thread that has run for 10 ms of real time without a switch, which on a busy
// machine is whenever the operating system takes the thread away; everything after runs in another order. It finds the
// goroutine by way of the processor, whose record names its thread: one that names none, as during a system call, is left
// alone.

const (
	threadWords  = 256                // of the record are searched
	drawAdds     = 0xa0761d6478bd642f // to the counter
	chacha8Words = 304 / 8

	// Offsets in records of go1.26, as its DWARF says.
	processorOffset = 208 // in a thread's record, of the pointer to its processor
	threadOffset    = 48  // in a processor's record, of the pointer to its thread
	tickOffset      = 16  // in a processor's record, of how often it has switched
)

// counter is where the counter of cheaprand lies in the thread's record, once reseed has found it; 0 before.
var counter int

// reseed makes the runtime's randomness on this thread depend on the seed alone. It says whether it could. The runtime and
// whatever fills a cache draw from it too, for reasons that outlive a run, so it is called again at every step.
func reseed(seed uint64) bool {
	words := (*[threadWords]uint64)(thread())
	if counter == 0 && !find(words) {
		return false
	}
	words[counter] = seed * drawAdds
	for j := counter - 6; j < counter-2; j++ {
		seed = seed*6364136223846793005 + 1442695040888963407
		words[j] = seed
	}
	words[counter-2], words[counter-1] = 0, 0 // nothing is left to draw: the next draw makes a new block of the seed
	return true
}

func find(words *[threadWords]uint64) bool {
	before := *words
	cheaprand()
	for i := chacha8Words; i < threadWords; i++ {
		if words[i]-before[i] == drawAdds {
			counter = i
			return true
		}
	}
	return false
}

// calm keeps the runtime from preempting the goroutines of this thread until end is called. It also sets the counter by
// which the scheduler decides when to look at its global queue.
func calm() (end func()) {
	_, of, switches := processor()
	*switches = 0
	*of = nil
	return func() {
		// A system call has perhaps put it back, perhaps to another thread.
		record, of, _ := processor()
		*of = record
	}
}

// processor returns the thread that this runs on, and of the processor's record what says which thread that is and how
// often it has switched.
func processor() (record unsafe.Pointer, of *unsafe.Pointer, switches *uint32) {
	record = thread()
	p := *(*unsafe.Pointer)(unsafe.Add(record, processorOffset))
	of = (*unsafe.Pointer)(unsafe.Add(p, threadOffset))
	if *of != record && *of != nil {
		panic("sim: these are not the records of go1.26")
	}
	return record, of, (*uint32)(unsafe.Add(p, tickOffset))
}
