package sim

import (
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"
)

// trace is what happened, in readable lines.
type trace struct {
	start time.Time
	mu    sync.Mutex // guards the following
	lines []string
	hash  uint64
}

func stamp(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

func (t *trace) say(who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := fmt.Sprintf("%9s %-9s %s", stamp(time.Since(t.start)), who, fmt.Sprintf(format, args...))
	t.lines = append(t.lines, line)
	h := fnv.New64a()
	fmt.Fprintf(h, "%x %s", t.hash, line)
	t.hash = h.Sum64()
}

// fault notes what became of one request.
func (t *trace) fault(p *process, format string, args ...any) { t.say(p.name, format, args...) }

func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
