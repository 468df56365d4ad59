package executor

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/ownership"
	"tidemark/internal/random"
	"tidemark/internal/tracing"
)

// Limits and defaults.
const (
	// MemoryMin is the least memory per slot with which any merge can go on: a row group being read of each of two
	// runs, one being written, and the batches between them.
	MemoryMin = 64 << 20
	slotsMax  = 256
	// DefaultIdleTimeout is how long completed work may stand still before an execution is given up.
	DefaultIdleTimeout = 10 * time.Minute
	// heartbeatEvery paces the progress records. Its owner confirms for 60 s before it revokes, twelve of these.
	heartbeatEvery = 5 * time.Second
	// firstBeat is when the first of them is written: most executions have ended by then, and leave none.
	firstBeat = time.Second
)

// Config describes one executor.
type Config struct {
	ID      string // unique in the cluster while it lives
	Address string // of its HTTP server, for people; may be empty
	Version string
	Slots   int   // executions at once, 1 to 256
	Memory  int64 // bytes that all executions share as they need it, at least MemoryMin per slot
	// IdleTimeout is the watchdog's; 0 is DefaultIdleTimeout.
	IdleTimeout time.Duration
	Lease       ownership.Config // the zero value is the default
}

// Deps are what an executor works with. All but Traces are needed.
type Deps struct {
	Client  *clientv3.Client
	Keys    etcd.Keys
	Store   objstore.Store
	Clock   clock.Clock
	Random  random.Source
	Mem     memory.Allocator
	Log     hclog.Logger
	Metrics prometheus.Registerer
	Traces  *tracing.Provider // nil: nothing is traced
}

func (c Config) checked() (Config, error) {
	var problems []error
	if c.ID == "" {
		problems = append(problems, errors.New("the executor needs an id"))
	}
	if c.Slots < 1 || c.Slots > slotsMax {
		problems = append(problems, fmt.Errorf("%d slots: want 1 to %d", c.Slots, slotsMax))
	} else if c.Memory < int64(c.Slots)*MemoryMin {
		problems = append(problems, fmt.Errorf("%d MiB of memory for %d slots: want at least %d MiB for each; lower the slots or raise the memory",
			c.Memory>>20, c.Slots, MemoryMin>>20))
	}
	if c.IdleTimeout < 0 {
		problems = append(problems, fmt.Errorf("idle timeout %v is negative", c.IdleTimeout))
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
	return c, errors.Join(problems...)
}
