// Package random is the only source of randomness in Tidemark: identifiers, nonces and jitter are drawn from an
// injected Source, so that a simulation with a fixed seed repeats itself exactly.
package random

import (
	crand "crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"sync"
	"time"
)

// Source yields uniformly distributed 64-bit values. Sources made by this package are safe for concurrent use.
type Source = rand.Source

// New returns a source seeded from the operating system.
func New() Source {
	var seed [32]byte
	// crypto/rand.Read never fails: the runtime ends the process when the system has no entropy.
	_, _ = crand.Read(seed[:])
	return &locked{src: rand.NewChaCha8(seed)}
}

// Seeded returns a source that always yields the same sequence for the same seed.
func Seeded(seed uint64) Source {
	return &locked{src: rand.NewPCG(seed, 0x9e3779b97f4a7c15)}
}

type locked struct {
	mu  sync.Mutex // guards src
	src rand.Source
}

func (l *locked) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.src.Uint64()
}

// ID returns 128 random bits as 32 lower-case hexadecimal digits.
func ID(src Source) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], src.Uint64())
	binary.BigEndian.PutUint64(b[8:], src.Uint64())
	return hex.EncodeToString(b[:])
}

// Jitter returns a duration drawn uniformly from [d/2, d]. A d of zero or less is returned unchanged.
func Jitter(src Source, d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	return d/2 + time.Duration(rand.New(src).Int64N(int64(d/2)+1))
}
