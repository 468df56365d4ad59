package process

import (
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"strings"
)

// CapacityFlags say how much an executor may do at once.
type CapacityFlags struct {
	Slots  int    `help:"Executions at once." default:"2" env:"TIDEMARK_SLOTS" placeholder:"N"`
	Memory string `help:"Memory for all executions together, as 512MiB or 4GiB. The Go runtime is told to stay within it." default:"1GiB" env:"TIDEMARK_MEMORY" placeholder:"SIZE"`
}

// limitShare is the part of the process's memory limit that merges may plan with. The rest is for the runtime, the
// clients and what is between two collections.
const limitShare = 0.8

// Budget is the memory for merges in bytes. It also sets the runtime's soft limit to the memory given.
func (f CapacityFlags) Budget() (int64, error) {
	limit, err := ParseSize(f.Memory)
	if err != nil {
		return 0, Usagef("--memory: %v", err)
	}
	debug.SetMemoryLimit(limit)
	return int64(float64(limit) * limitShare), nil
}

// ParseSize reads a number of bytes with an optional unit: B, KiB, MiB, GiB, TiB.
func ParseSize(text string) (int64, error) {
	number, shift := text, 0
	for i, unit := range []string{"B", "KiB", "MiB", "GiB", "TiB"} {
		if n, ok := strings.CutSuffix(text, unit); ok && (i > 0 || !strings.HasSuffix(n, "i")) {
			number, shift = n, 10*i
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is not a size: want a positive whole number with B, KiB, MiB, GiB or TiB, such as 512MiB", text)
	}
	return n << shift, nil
}
