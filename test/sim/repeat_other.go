//go:build !amd64 || !go1.26 || go1.27

package sim

// reseed cannot reach the runtime's randomness here: histories of a seed may differ a little from run to run.
func reseed(uint64) bool { return false }

// calm cannot keep the runtime from preempting goroutines here.
func calm() (end func()) { return func() {} }
