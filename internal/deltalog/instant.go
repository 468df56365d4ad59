package deltalog

import (
	"time"

	"tidemark/internal/clock"
)

// instant is a moment on both clocks of this process. Monotonic time stands still while some machines sleep, and wall
// time may be set back, so an age is the larger of what the two say.
type instant struct {
	mono time.Duration
	wall time.Time
}

func now(c clock.Clock) instant { return instant{mono: c.Mono(), wall: c.Now()} }

func (i instant) age(c clock.Clock) time.Duration {
	return max(c.Mono()-i.mono, c.Now().Round(0).Sub(i.wall.Round(0)))
}
