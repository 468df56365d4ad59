package ownership

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"tidemark/internal/clock"
	"tidemark/internal/random"
)

const testTTL = 3 * time.Second

// tenant is a keeper running against a server, with what it said and did.
type tenant struct {
	*Keeper
	server *leaseServer
	log    *lockedBuffer
	stop   context.CancelFunc
	ended  chan error

	mu     sync.Mutex // guards fenced
	fenced []time.Duration
	start  time.Time
}

type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func exclusive(ttl time.Duration) Config {
	c := DefaultConfig(ttl)
	c.RivalIsError = true
	return c
}

// let starts a keeper in the current bubble. It is stopped, and waited for, when the test ends.
func let(t *testing.T, server *leaseServer, config Config) *tenant {
	t.Helper()
	log := &lockedBuffer{}
	k, err := NewKeeper(server, config, clock.System(), random.Seeded(7), hclog.New(&hclog.LoggerOptions{Output: log}))
	if err != nil {
		t.Fatal(err)
	}
	x := &tenant{Keeper: k, server: server, log: log, ended: make(chan error, 1), start: time.Now()}
	k.OnFence(func(error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.fenced = append(x.fenced, time.Since(x.start))
	})
	ctx, stop := context.WithCancel(t.Context())
	x.stop = stop
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		x.ended <- k.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-returned
	})
	return x
}

func (x *tenant) fences() []time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.fenced)
}

func (x *tenant) state() State { return x.Status().State }

// after lets virtual time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestALeaseIsRenewedEveryThirdOfATTLAndHeldForGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		x := let(t, server, DefaultConfig(testTTL))
		grant, err := x.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if grant.Err() != nil || x.state() != Held || len(x.fences()) != 0 {
			t.Fatalf("after a minute: %+v, fenced at %v", x.Status(), x.fences())
		}
		server.set(func(s *leaseServer) {
			if renewals := len(s.log) - 1; renewals != 60 {
				t.Errorf("%d renewals in a minute, want one a second", renewals)
			}
		})
		x.stop()
		if err := <-x.ended; err != nil {
			t.Fatal(err)
		}
		if server.set(func(s *leaseServer) {
			if s.token != "" {
				t.Error("the lease was not given back")
			}
		}); !errors.Is(context.Cause(grant.Context), ErrReleased) {
			t.Errorf("the grant ended with %v", context.Cause(grant.Context))
		}
	})
}

func TestTheFenceFallsTwoThirdsOfATTLAfterTheSendOfTheLastAcknowledgedRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		server.delay = 400 * time.Millisecond // answers come late, but sends count
		x := let(t, server, DefaultConfig(testTTL))
		after(1900 * time.Millisecond) // renewed at 1 s, acknowledged at 1.4 s
		server.set(func(s *leaseServer) { s.cut = true })
		after(5 * time.Second)
		if got := x.fences(); !slices.Equal(got, []time.Duration{3 * time.Second}) {
			t.Fatalf("fenced at %v, want 3s: 2 s after the renewal sent at 1 s", got)
		}
	})
}

func TestEverythingIsClosedBeforeTheLossIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		x := let(t, server, DefaultConfig(testTTL))
		grant, err := x.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x.OnFence(func(cause error) {
			if !errors.Is(cause, ErrDeadline) || context.Cause(grant.Context) != nil || x.state() != Held {
				t.Errorf("when the fence falls for %v: grant ended with %v, state %v", cause, context.Cause(grant.Context), x.state())
			}
			time.Sleep(time.Second) // however long closing takes
		})
		server.set(func(s *leaseServer) { s.cut = true })
		<-grant.Context.Done()
		if at := time.Since(x.start); at != 3*time.Second || !errors.Is(context.Cause(grant.Context), ErrDeadline) {
			t.Errorf("the loss was reported at %v with %v, want 3s: fenced at 2 s, closed a second later", at, context.Cause(grant.Context))
		}
	})
}

func TestARenewalThatHangsPastTheDeadlineDoesNotDelayTheFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		config := DefaultConfig(testTTL)
		config.RequestTimeout = time.Minute
		x := let(t, server, config)
		after(900 * time.Millisecond)
		server.set(func(s *leaseServer) { s.deaf[Renew] = 1 })
		after(2 * time.Second)
		if got := x.fences(); !slices.Equal(got, []time.Duration{2 * time.Second}) {
			t.Fatalf("fenced at %v", got)
		}
	})
}

func TestAProcessThatWakesAfterALongStopLearnsOfItBeforeAnyTimerRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stopped := &stoppedClock{Clock: clock.System()}
		k, err := NewKeeper(newLeaseServer(testTTL), DefaultConfig(testTTL), stopped, random.Seeded(1), hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.Run(ctx) }()
		grant, err := k.Wait(t.Context())
		if err != nil || grant.Err() != nil {
			t.Fatal(err, grant.Err())
		}
		stopped.jump(time.Hour)
		if err := grant.Err(); !errors.Is(err, ErrNotHeld) || !errors.Is(err, ErrDeadline) {
			t.Errorf("after an hour's stop: %v", err)
		}
		if _, held := k.Current(); held {
			t.Error("it is still the current grant")
		}
		stop()
		<-ended
	})
}

type stoppedClock struct {
	clock.Clock
	mu   sync.Mutex // guards lost
	lost time.Duration
}

func (c *stoppedClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost += d
}

func (c *stoppedClock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Clock.Mono() + c.lost
}

// The cut spans the renewal at 1 s and whatever was owed: held, quarantined, held again under a fresh token.
func TestACutLongerThanTheDeadlineQuarantinesForOneTTLAndThenReacquires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		x := let(t, server, exclusive(testTTL))
		first, err := x.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server.set(func(s *leaseServer) { s.cut = true })
		after(2500 * time.Millisecond)
		if x.state() != Quarantined || first.Err() == nil {
			t.Fatalf("during the cut: %+v", x.Status())
		}
		server.set(func(s *leaseServer) { s.cut = false })
		second, err := x.Wait(t.Context()) // a work loop that waits needs no nudge
		if err != nil {
			t.Fatal(err)
		}
		if at := time.Since(x.start); at != 5*time.Second {
			t.Errorf("held again at %v, want 5s: fenced at 2 s, quarantined for one TTL", at)
		}
		if second.Token == first.Token || x.Status().Reacquisitions != 1 {
			t.Errorf("tokens %s and %s, %+v", first.Token, second.Token, x.Status())
		}
	})
}

func TestAnAcquisitionWhoseAnswerWasLostIsAdoptedByItsToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		server.deaf[Acquire] = 1
		x := let(t, server, DefaultConfig(testTTL))
		grant, err := x.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server.set(func(s *leaseServer) {
			if s.tokens[grant.Token] != 1 || len(s.tokens) != 1 {
				t.Errorf("acquired %v", s.tokens)
			}
		})
		if grant.Deadline() != 2*time.Second {
			t.Errorf("deadline %v, want 2s: it runs from the send of the acquisition", grant.Deadline())
		}
	})
}

func TestNoAnswerToTheReadBackQuarantinesForOneTTLAndAFreshTokenIsUsed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		server.deaf[Acquire], server.deaf[ReadAcquire] = 1, 1
		x := let(t, server, exclusive(testTTL))
		after(1500 * time.Millisecond)
		if x.state() != Quarantined || x.Status().QuarantineEnd != 4*time.Second {
			t.Fatalf("%+v", x.Status())
		}
		if _, err := x.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		server.set(func(s *leaseServer) {
			if len(s.tokens) != 2 {
				t.Errorf("tokens used: %v", s.tokens)
			}
		})
	})
}

func TestOnesOwnFormerTokenIsNoRival(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(time.Hour) // the server forgets late
		server.deaf[Acquire], server.deaf[ReadAcquire] = 1, 1
		x := let(t, server, exclusive(testTTL))
		after(30 * time.Second)
		if x.state() != Reacquiring {
			t.Fatalf("its own former token, standing for long, made it %+v", x.Status())
		}
		server.set(func(s *leaseServer) { s.token = "" })
		if _, err := x.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAnAcquisitionAnsweredAfterItsDeadlineAdmitsNothingUntilItIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		server.delay = 2500 * time.Millisecond
		config := DefaultConfig(testTTL)
		config.RequestTimeout = time.Minute
		x := let(t, server, config)
		after(2600 * time.Millisecond)
		if x.state() != None {
			t.Fatalf("admitted after the deadline: %+v", x.Status())
		}
		server.set(func(s *leaseServer) { s.delay = 0 })
		grant, err := x.Wait(t.Context()) // the renewal sent at 2.5 s was slow too, the next one is not
		if err != nil || grant.Err() != nil {
			t.Fatal(err, grant.Err())
		}
	})
}

func TestALeaseKnownToBeGoneIsReacquiredWithinASixthOfATTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		x := let(t, server, exclusive(testTTL))
		first, _ := x.Wait(t.Context())
		server.set(func(s *leaseServer) { s.token = "" })
		<-first.Context.Done()
		fenced := time.Since(x.start)
		if !errors.Is(context.Cause(first.Context), ErrLeaseLost) {
			t.Errorf("ended with %v", context.Cause(first.Context))
		}
		if _, err := x.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if gap := time.Since(x.start) - fenced; gap <= 0 || gap > testTTL/6 {
			t.Errorf("reacquired after %v", gap)
		}
	})
}

func TestManyLeasesRevokedAtOnceComeBackSpreadOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var back []time.Duration
		var tenants []*tenant
		for seed := range 8 {
			server := newLeaseServer(testTTL)
			k, err := NewKeeper(server, DefaultConfig(testTTL), clock.System(), random.Seeded(uint64(seed)), hclog.NewNullLogger())
			if err != nil {
				t.Fatal(err)
			}
			x := &tenant{Keeper: k, server: server, ended: make(chan error, 1)}
			ctx, stop := context.WithCancel(t.Context())
			x.stop = stop
			go func() { x.ended <- k.Run(ctx) }()
			tenants = append(tenants, x)
		}
		synctest.Wait()
		start := time.Now()
		var grants []Grant
		for _, x := range tenants {
			x.server.set(func(s *leaseServer) { s.token = "" })
			g, _ := x.Current()
			grants = append(grants, g)
		}
		for _, g := range grants {
			<-g.Context.Done()
		}
		var mu sync.Mutex // guards back
		var wait sync.WaitGroup
		for _, x := range tenants {
			wait.Go(func() {
				if _, err := x.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				back = append(back, time.Since(start))
				mu.Unlock()
				x.stop()
				<-x.ended
			})
		}
		wait.Wait()
		slices.Sort(back)
		if distinct := slices.Compact(back); len(distinct) < 4 {
			t.Errorf("all came back at %v", distinct)
		}
	})
}

func TestARivalThatStopsWithinTwoTTLsLatchesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		x := let(t, server, exclusive(testTTL))
		first, _ := x.Wait(t.Context())
		server.rival("rival")
		<-first.Context.Done()
		after(2*testTTL - time.Second)
		server.set(func(s *leaseServer) { s.token = "" })
		if _, err := x.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestARivalThatStaysLatchesOnceWithOneLogLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		x := let(t, server, exclusive(testTTL))
		first, _ := x.Wait(t.Context())
		server.rival("rival")
		<-first.Context.Done()
		lost := time.Now()
		err := <-x.ended
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Holder != "holder of rival" || refused.Waited < 2*testTTL {
			t.Fatalf("ended with %v", err)
		}
		if waited := time.Since(lost); waited > 2*testTTL+testTTL/3 {
			t.Errorf("latched only after %v", waited)
		}
		if _, err := x.Wait(t.Context()); !errors.Is(err, ErrRefused) {
			t.Errorf("callers get %v", err)
		}
		if x.state() != Failed {
			t.Errorf("%+v", x.Status())
		}
		if n := strings.Count(x.log.String(), "refused for good"); n != 1 {
			t.Errorf("%d log lines of the refusal:\n%s", n, x.log)
		}
	})
}

func TestWhereARivalIsNormalOneJustWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		server.rival("rival")
		x := let(t, server, DefaultConfig(testTTL))
		after(time.Hour)
		if x.state() != None {
			t.Fatalf("%+v", x.Status())
		}
		server.set(func(s *leaseServer) { s.token = "" })
		if _, err := x.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAProcessRestartedWithinTheTTLWaitsForItsPredecessorsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		server.set(func(s *leaseServer) { s.token, s.expires = "predecessor", time.Now().Add(testTTL) })
		x := let(t, server, exclusive(testTTL))
		if _, err := x.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(x.start); waited < testTTL || waited > testTTL+startPollMax {
			t.Errorf("started after %v", waited)
		}
	})
}

func TestARestartAgainstALiveRivalIsRefusedAfterTheWaitNamingHolderAndTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		server.rival("rival")
		x := let(t, server, exclusive(testTTL))
		err := <-x.ended
		waited := time.Since(x.start)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Holder != "holder of rival" || refused.Waited != waited {
			t.Fatalf("ended with %v", err)
		}
		// TTL and publish timeout, to the next poll.
		if waited < 4*time.Second || waited > 4*time.Second+startPollMax {
			t.Errorf("refused after %v", waited)
		}
	})
}

func TestAStartThatShallNotWaitFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		server.rival("rival")
		config := exclusive(testTTL)
		config.StartWait = 0
		x := let(t, server, config)
		if err := <-x.ended; !errors.Is(err, ErrRefused) || time.Since(x.start) != 0 {
			t.Errorf("after %v: %v", time.Since(x.start), err)
		}
	})
}

func TestAReleaseWhoseAnswerWasLostIsReadBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		server.deaf[Release] = 1
		x := let(t, server, DefaultConfig(testTTL))
		if _, err := x.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.stop()
		if err := <-x.ended; err != nil {
			t.Fatal(err)
		}
		server.set(func(s *leaseServer) {
			want := []string{"acquire", "release", "read back acquire"}
			if s.token != "" || !slices.Equal(s.log, want) {
				t.Errorf("token %q after %v", s.token, s.log)
			}
		})
	})
}

func TestAReleaseThatNobodyAnswersEndsAllTheSame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := newLeaseServer(testTTL)
		x := let(t, server, DefaultConfig(testTTL))
		if _, err := x.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		server.set(func(s *leaseServer) { s.cut = true })
		x.stop()
		if err := <-x.ended; err != nil || x.state() != Released {
			t.Fatalf("%v, %+v", err, x.Status())
		}
	})
}

func TestAConditionalRenewalIsReadBackAndNeverRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := &beatServer{leaseServer: newLeaseServer(testTTL)}
		config := DefaultConfig(testTTL)
		config.ConditionalRenewal = true
		k, err := NewKeeper(server, config, clock.System(), random.Seeded(1), hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.Run(ctx) }()
		grant, err := k.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		server.set(func(s *leaseServer) { s.deaf[Renew] = 1 })
		after(1600 * time.Millisecond)
		server.set(func(s *leaseServer) {
			if want := []string{"acquire", "renew", "read back acquire"}; !slices.Equal(s.log, want) {
				t.Errorf("requests %v", s.log)
			}
		})
		if grant.Deadline() != 3*time.Second {
			t.Errorf("deadline %v, want 3s: the renewal sent at 1 s was applied", grant.Deadline())
		}
		stop()
		<-ended
	})
}

// beatServer takes a renewal as a write of a new token over the one before.
type beatServer struct {
	*leaseServer
	last string
}

func (s *beatServer) Acquire(ctx context.Context, token string) Answer {
	s.last = token
	return s.leaseServer.Acquire(ctx, token)
}

func (s *beatServer) Renew(ctx context.Context, token string) Answer {
	return s.ask(ctx, Renew, func() Answer {
		if s.token != s.last {
			return s.judge(s.last)
		}
		s.token, s.expires, s.last = token, time.Now().Add(s.ttl), token
		return Answer{Kind: Ours}
	})
}

func TestAConfigurationThatCouldPublishAfterItsLeaseRanOutIsRefused(t *testing.T) {
	ok := Config{TTL: 15 * time.Second, RequestTimeout: time.Second, PublishTimeout: 14900 * time.Millisecond}
	if err := ok.Check(); err != nil {
		t.Error(err)
	}
	bad := ok
	bad.Skew = time.Nanosecond
	if err := bad.Check(); !errors.Is(err, ErrConfig) {
		t.Errorf("a nanosecond over: %v", err)
	}
	if err := DefaultConfig(999 * time.Millisecond).Check(); !errors.Is(err, ErrConfig) {
		t.Errorf("a TTL under a second: %v", err)
	}
	if d := DefaultConfig(DefaultTTL); d.PublishTimeout != 5*time.Second || d.RequestTimeout != 2500*time.Millisecond ||
		d.StartWait != 20*time.Second || d.Check() != nil {
		t.Errorf("defaults: %+v", d)
	}
}
