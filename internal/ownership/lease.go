package ownership

import (
	"errors"
	"fmt"
	"time"
)

// The life of a lease, in numbered steps:
//
//  1. Acquire under a fresh token. The first deadline runs from the send of this request.
//  2. Held: renew every third of a TTL; each acknowledged renewal moves the deadline to two thirds of a TTL after its
//     send. The deadline passes: fence, then quarantine.
//  3. An acquire or release that nobody answered is read back by its token: ours, adopt it; somebody else's, refused;
//     no answer, quarantine.
//  4. Quarantine lasts one TTL. Whatever was sent under the old token has run out by then. Then step 1, reacquiring.
//  5. The lease is known to be gone: fence, and go to step 1 at once, spread over a sixth of a TTL, for a slow etcd
//     leader revokes everybody's at once.
//  6. Refused: try again every sixth of a TTL. Where a rival is an error, latch failed once the refusals lasted two
//     TTLs, or at a start once they lasted as long as a predecessor's lease may.

// State is the state of a lease. States are bits, so that a row of the table can name several.
type State uint8

// The states of a lease.
const (
	None        State = 1 << iota // nothing held yet
	Held                          // held, deadline in the future
	Quarantined                   // nobody knows; hold nothing, claim nothing, publish nothing
	Reacquiring                   // held before, asking again
	Released                      // given back for good
	Failed                        // a rival has it for good
)

var stateNames = map[State]string{
	None: "none", Held: "held", Quarantined: "quarantined", Reacquiring: "reacquiring", Released: "released", Failed: "failed",
}

func (s State) String() string { return stateNames[s] }

// Request is what a machine sends. The reads settle a request that nobody answered.
type Request uint8

// The requests of a machine.
const (
	NoRequest Request = iota
	Acquire
	ReadAcquire
	Renew
	ReadRenew
	Release
	ReadRelease
)

var requestNames = [...]string{"none", "acquire", "read back acquire", "renew", "read back renew", "release", "read back release"}

func (r Request) String() string { return requestNames[r] }

// AnswerKind is how a request ended. Kinds are bits, so that a row of the table can name several.
type AnswerKind uint8

// The ends of a request.
const (
	Ours       AnswerKind = 1 << iota // done: the lease stands under our token
	Rival                             // somebody else's token stands there
	Gone                              // nothing stands there
	NotDone                           // it certainly did not happen
	Unanswered                        // nobody knows
)

// Answer is the end of a request.
type Answer struct {
	Kind   AnswerKind
	Holder string // of the rival, for people
	Token  string // of the rival
	Err    error  // why, unless Ours
}

// Config is the timing and character of a lease.
type Config struct {
	TTL time.Duration // at least a second
	// RequestTimeout bounds one request.
	RequestTimeout time.Duration
	// PublishTimeout bounds what a holder may still have in flight when it is fenced.
	PublishTimeout time.Duration
	// Skew is added where another process's clock could matter.
	Skew time.Duration
	// StartWait is how long a first acquisition waits for a predecessor's lease; 0 fails at once. A predecessor
	// with a longer TTL can outlast it. It matters only where a rival is an error.
	StartWait time.Duration
	// RivalIsError says that nobody else should ever hold this lease.
	RivalIsError bool
	// ConditionalRenewal says that a renewal is a conditional write: it is not repeated but read back.
	ConditionalRenewal bool
}

// DefaultConfig derives every duration from the TTL.
func DefaultConfig(ttl time.Duration) Config {
	publish := ttl / 3
	return Config{TTL: ttl, RequestTimeout: ttl / 6, PublishTimeout: publish, StartWait: ttl + publish}
}

// DefaultTTL is the TTL of sessions unless configured otherwise.
const DefaultTTL = 15 * time.Second

const (
	ttlMin = time.Second // the shortest lease etcd grants
	// ttlMargin is what must remain of a TTL after the publish timeout and the skew.
	ttlMargin = 100 * time.Millisecond
	// A start polls for its predecessor's lease every tenth of a TTL, within these bounds.
	startPollMin, startPollMax = 50 * time.Millisecond, 500 * time.Millisecond
	// formerTokensMax is how many of our own tokens are remembered; only the last one or two can still stand.
	formerTokensMax = 8
	// releasesMax bounds how often a release is sent; what it did not reach runs out within a TTL.
	releasesMax = 5
)

// ErrConfig: the durations of a lease contradict each other.
var ErrConfig = errors.New("lease configuration")

// Check refuses durations under which a fenced holder could still be publishing when its lease has run out.
func (c Config) Check() error {
	switch {
	case c.TTL < ttlMin:
		return fmt.Errorf("%w: TTL %v is under %v, the shortest that etcd grants", ErrConfig, c.TTL, ttlMin)
	case c.RequestTimeout <= 0:
		return fmt.Errorf("%w: request timeout %v: want a positive one, such as a sixth of the TTL", ErrConfig, c.RequestTimeout)
	case c.PublishTimeout < 0 || c.Skew < 0 || c.StartWait < 0:
		return fmt.Errorf("%w: publish timeout %v, skew %v and start wait %v must not be negative", ErrConfig, c.PublishTimeout, c.Skew, c.StartWait)
	case c.TTL < c.PublishTimeout+c.Skew+ttlMargin:
		return fmt.Errorf("%w: TTL %v must exceed publish timeout %v and clock skew %v by %v: raise the TTL or lower the others",
			ErrConfig, c.TTL, c.PublishTimeout, c.Skew, ttlMargin)
	}
	return nil
}

func (c Config) deadlineAfter() time.Duration { return c.TTL * 2 / 3 }
func (c Config) renewEvery() time.Duration    { return c.TTL / 3 }
func (c Config) retryEvery() time.Duration    { return c.TTL / 6 }
func (c Config) startPoll() time.Duration     { return min(max(c.TTL/10, startPollMin), startPollMax) }

// renewRetry paces renewals that failed at once; one that hung was paced by its timeout.
func (c Config) renewRetry() time.Duration { return c.TTL / 30 }

var (
	// ErrDeadline: no renewal was acknowledged in time, so the lease is held no longer.
	ErrDeadline = errors.New("lease not renewed in time")
	// ErrLeaseLost: the lease was revoked, expired, or taken.
	ErrLeaseLost = errors.New("lease lost")
	// ErrReleased: the lease was given back.
	ErrReleased = errors.New("lease released")
	// ErrNotHeld: nothing is held now.
	ErrNotHeld = errors.New("lease not held")
	// ErrRefused is what a RefusedError is.
	ErrRefused = errors.New("lease held by another")
)

// RefusedError names who holds what should be ours, and how long that was waited for.
type RefusedError struct {
	Holder string
	Waited time.Duration
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("lease is held by %s, still after waiting %v: stop it, or wait until its lease runs out", e.Holder, e.Waited)
}

// Is makes every RefusedError an ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Status is a lease as people see it.
type Status struct {
	State  State
	Reason string
	// RenewedAt is the monotonic send time of the last acknowledged request; zero when there was none.
	RenewedAt time.Duration
	// QuarantineEnd is a monotonic time, zero outside quarantine.
	QuarantineEnd  time.Duration
	Reacquisitions int
}
