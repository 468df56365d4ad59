package objstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/test/s3/s3test"
)

// TestAFencedUploadToS3SendsNoFurtherPartAndNoEnd fences while a part hangs in the network.
func TestAFencedUploadToS3SendsNoFurtherPartAndNoEnd(t *testing.T) {
	server := s3test.Start(t)
	b := newBench(t, server)
	scope := objstore.NewScope(b.store, clock.System())
	u, err := scope.Create(t.Context(), "up")
	if err != nil {
		t.Fatal(err)
	}
	hanging, cancelled := make(chan struct{}), make(chan struct{})
	b.on(isPart, nil, func(_ http.ResponseWriter, r *http.Request, _ func() (*http.Response, error)) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(hanging)
		<-r.Context().Done() // the client has closed the connection
		close(cancelled)
		panic(http.ErrAbortHandler)
	})
	part := make([]byte, objstore.PartBytes)
	for range 2 {
		if _, err := u.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := u.Write([]byte("x")); err != nil { // sends the second part
		t.Fatal(err)
	}
	<-hanging
	before := len(b.proxy.Requests())
	scope.Fence(errLost)
	<-cancelled
	_, writeErr := u.Write(part)
	_, completeErr := u.Complete(t.Context())
	for _, err := range []error{writeErr, completeErr, u.Abort(t.Context())} {
		if !errors.Is(err, errLost) || objstore.CodeOf(err) != objstore.CodeFenced {
			t.Errorf("%v, want fenced", err)
		}
	}
	if sent := b.proxy.Requests()[before:]; len(sent) != 0 {
		t.Errorf("sent after the fence: %v", sent)
	}
	if keys := unfinished(t, server); len(keys) != 1 {
		t.Errorf("unfinished: %q, want the one that nobody may abort", keys)
	}
}

// TestTheS3ClientStopsRetryingAtTheFence fences while the client waits between two attempts.
func TestTheS3ClientStopsRetryingAtTheFence(t *testing.T) {
	server := s3test.Start(t)
	proxy := s3test.NewProxy(t, server)
	scope := objstore.NewScope(openS3(t, proxy.Endpoint, server.Root()), clock.System())
	answered := make(chan struct{}, 100)
	proxy.Rule(func(*http.Request) s3test.Action {
		return func(w http.ResponseWriter, r *http.Request, forward func() (*http.Response, error)) {
			s3test.Answer(503, "SlowDown")(w, r, forward)
			answered <- struct{}{}
		}
	})
	done := make(chan error)
	go func() {
		_, _, err := scope.Get(t.Context(), "k")
		done <- err
	}()
	<-answered
	<-answered
	scope.Fence(errLost)
	if err := <-done; !errors.Is(err, errLost) || objstore.CodeOf(err) != objstore.CodeFenced {
		t.Errorf("%v, want fenced", err)
	}
	sent := len(proxy.Requests())
	if _, _, err := scope.Get(t.Context(), "k"); !errors.Is(err, errLost) || len(proxy.Requests()) != sent {
		t.Errorf("%v, and %d requests more", err, len(proxy.Requests())-sent)
	}
}

func TestAFencedPutToS3EndsAsUnknown(t *testing.T) {
	b := newBench(t, s3test.Start(t))
	scope := objstore.NewScope(b.store, clock.System())
	b.onPut(func(w http.ResponseWriter, r *http.Request, forward func() (*http.Response, error)) {
		scope.Fence(errLost)
		s3test.Hang(w, r, forward)
	})
	if r := objstore.PutOnce(t.Context(), scope, "k", []byte("x"), b.retry); r.Outcome != objstore.Unknown || !errors.Is(r.Err, errLost) {
		t.Errorf("%+v", r)
	}
}

// graceAttempts is how often each side of a fenced process tries on while it shuts down.
const graceAttempts = 500

// TestAFencedProcessStartsNoRequestHoweverLongItTakesToExit keeps a busy owner going after its fence, as a 25 s grace of
// shutting down would, and counts at a proxy.
func TestAFencedProcessStartsNoRequestHoweverLongItTakesToExit(t *testing.T) {
	server := s3test.Start(t)
	proxy := s3test.NewProxy(t, server)
	scope := objstore.NewScope(openS3(t, proxy.Endpoint, server.Root()), clock.System())
	const sides = 4
	var busy, stopped, grace sync.WaitGroup
	leave := make(chan struct{})
	for side := range sides {
		busy.Add(1)
		stopped.Add(1)
		grace.Go(func() {
			for n := 0; ; n++ {
				r := scope.PutIfAbsent(context.Background(), fmt.Sprintf("k/%d/%d", side, n), []byte("x"))
				if n == 10 {
					busy.Done()
				}
				if r.Outcome != objstore.Applied {
					break // fenced
				}
			}
			stopped.Done()
			<-leave
			for n := range graceAttempts {
				if r := scope.PutIfAbsent(context.Background(), fmt.Sprintf("late/%d/%d", side, n), nil); r.Outcome != objstore.Refused {
					t.Errorf("after the fence: %+v", r)
				}
			}
		})
	}
	busy.Wait()
	scope.Fence(errLost)
	fenced := time.Now()
	stopped.Wait()
	close(leave)
	grace.Wait()
	requests := proxy.Requests()
	for _, r := range requests {
		if strings.Contains(r.Path, "/late/") {
			t.Errorf("sent after the fence: %v", r)
		}
	}
	t.Logf("of %d requests the last reached the proxy %v after the fence", len(requests), requests[len(requests)-1].At.Sub(fenced))
}

// TestAProcessStoppedPastItsDeadlineSendsNothingWhenItWakes stops a real process by SIGSTOP.
func TestAProcessStoppedPastItsDeadlineSendsNothingWhenItWakes(t *testing.T) {
	if root := os.Getenv("OBJSTORE_TEST_SLEEPER"); root != "" {
		sleeper(t, root, os.Getenv("OBJSTORE_TEST_ENDPOINT"))
		return
	}
	server := s3test.Start(t)
	proxy := s3test.NewProxy(t, server)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "OBJSTORE_TEST_SLEEPER="+server.Root(), "OBJSTORE_TEST_ENDPOINT="+proxy.Endpoint)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	busy := make(chan struct{})
	puts := 0
	proxy.Rule(func(r *http.Request) s3test.Action {
		if r.Method == http.MethodPut {
			if puts++; puts == 10 {
				close(busy)
			}
		}
		return nil
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	<-busy
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * sleeperLease) // the deadline passes while the process stands
	before := len(proxy.Requests())
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	woken := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == sleeperDone {
			woken = true
		} else {
			t.Log("process:", lines.Text())
		}
	}
	if err := cmd.Wait(); err != nil || !woken {
		t.Fatalf("the process did not come to its end: %v", err)
	}
	if after := proxy.Requests(); len(after) != before {
		t.Errorf("sent after waking: %v", after[before:])
	}
}

const (
	sleeperLease = time.Second
	sleeperDone  = "refused to the end"
)

// sleeper is the process that is stopped: a holder that is never renewed, so that its deadline is
// a lease after its start. It has no timer. Once refused it tries on, then says so.
func sleeper(t *testing.T, root, endpoint string) {
	c := clock.System()
	scope := objstore.NewScope(openS3(t, endpoint, root), c)
	scope.SetDeadline(c.Mono() + sleeperLease)
	for n := 0; ; n++ {
		r := scope.PutIfAbsent(t.Context(), fmt.Sprintf("k/%d", n), []byte("x"))
		if errors.Is(r.Err, objstore.ErrFenced) {
			break
		}
		if r.Outcome != objstore.Applied {
			t.Fatal(r)
		}
	}
	for n := range graceAttempts {
		if r := scope.PutIfAbsent(t.Context(), fmt.Sprintf("late/%d", n), nil); r.Outcome != objstore.Refused {
			t.Fatal(r)
		}
	}
	fmt.Println(sleeperDone)
}
