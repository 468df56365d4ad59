package objstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"tidemark/internal/clock"
	"tidemark/internal/objstore"
	"tidemark/internal/objstore/faultstore"
	"tidemark/internal/random"
)

// TestUnknownOutcomesAreSettled runs the scripts under testdata/once. Commands:
//
//	new                        an empty store
//	faults                     adds the rules of the input
//	rival KEY=BODY             somebody else creates or overwrites an object, past all faults
//	put-once KEY=BODY          PutOnce
//	replace KEY=BODY           Replace of the version that is there, with stale of one that is not
//	  dies=5s                  … in a context that ends then
//	  rival=BODY after=500ms   … while somebody else overwrites the object then, or deletes it if BODY is "-"
//	land                       everything in flight arrives
//	show                       the objects there are
//
// The output is the transcript of the requests, then the outcome.
func TestUnknownOutcomesAreSettled(t *testing.T) {
	datadriven.Walk(t, "testdata/once", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			var b onceBench
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				return b.run(t, d)
			})
		})
	})
}

type onceBench struct {
	memory *objstore.Memory
	faults *faultstore.Store
	retry  objstore.Retry
	shown  int // lines of the transcript
}

func (b *onceBench) run(t *testing.T, d *datadriven.TestData) string {
	ctx := t.Context()
	if d.HasArg("dies") {
		var after string
		d.ScanArgs(t, "dies", &after)
		delay, err := time.ParseDuration(after)
		if err != nil {
			t.Fatal(err)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, delay)
		defer cancel()
	}
	if d.HasArg("rival") {
		defer b.meanwhile(t, d)()
	}
	switch d.Cmd {
	case "new":
		c := clock.System()
		b.memory = objstore.NewMemory(c)
		b.faults, _ = faultstore.Wrap(b.memory, c, "")
		b.retry = objstore.Retry{Clock: c, Random: random.Seeded(1)}
		b.shown = 0
		return ""
	case "faults":
		if err := b.faults.Add(d.Input); err != nil {
			return err.Error()
		}
		return ""
	case "rival":
		return b.rival(t, d.CmdArgs[0].Key, d.CmdArgs[0].Vals[0])
	case "put-once":
		key, body := b.object(d)
		return b.transcript(objstore.PutOnce(ctx, b.faults, key, []byte(body), b.retry))
	case "replace":
		key, body := b.object(d)
		etag := "stale"
		if info, err := b.memory.Head(t.Context(), key); err == nil && !d.HasArg("stale") {
			etag = info.ETag
		}
		return b.transcript(objstore.Replace(ctx, b.faults, key, []byte(body), etag, b.retry))
	case "land":
		b.faults.Land()
		return b.lines()
	case "show":
		var out strings.Builder
		for info, err := range objstore.ListAll(ctx, b.memory, "") {
			if err != nil {
				return err.Error()
			}
			body, _, _ := b.memory.Get(ctx, info.Key)
			fmt.Fprintf(&out, "%s=%s\n", info.Key, body)
		}
		return out.String()
	}
	return "unknown command"
}

func (b *onceBench) rival(t *testing.T, key, body string) string {
	if err := b.memory.Delete(t.Context(), key); err != nil {
		return err.Error()
	}
	if body == "-" {
		return "deleted"
	}
	return b.memory.PutIfAbsent(t.Context(), key, []byte(body)).Outcome.String()
}

// meanwhile starts the rival of a command and returns a wait for it.
func (b *onceBench) meanwhile(t *testing.T, d *datadriven.TestData) (wait func()) {
	var body, after string
	d.ScanArgs(t, "rival", &body)
	d.ScanArgs(t, "after", &after)
	delay, err := time.ParseDuration(after)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(delay)
		b.rival(t, d.CmdArgs[0].Key, body)
	}()
	return func() { <-done }
}

func (b *onceBench) object(d *datadriven.TestData) (key, body string) {
	return d.CmdArgs[0].Key, d.CmdArgs[0].Vals[0]
}

func (b *onceBench) lines() string {
	trace := b.faults.Trace()
	fresh := trace[b.shown:]
	b.shown = len(trace)
	var out strings.Builder
	for _, line := range fresh {
		fmt.Fprintln(&out, line)
	}
	return out.String()
}

func (b *onceBench) transcript(r objstore.Result) string {
	end := "=> " + r.Outcome.String()
	if r.Err != nil {
		end += fmt.Sprintf(" (%s)", objstore.CodeOf(r.Err))
	}
	return b.lines() + end + "\n"
}

// TestAResultSaysWhyExactlyWhenItIsNotApplied pins the shape of results over every fault.
func TestAResultSaysWhyExactlyWhenItIsNotApplied(t *testing.T) {
	for _, fault := range []string{
		"slow 1s", "fail before send", "refuse", "throttle", "unknown, applied", "unknown, never lands",
		"unknown, lands after 1 ops", "unknown, lands after 3 ops", "unknown, lands after 10 ops", "hang, applied", "hang, lands when told",
	} {
		for _, there := range []string{"", "another's"} {
			synctest.Test(t, func(t *testing.T) {
				c := clock.System()
				memory := objstore.NewMemory(c)
				s, err := faultstore.Wrap(memory, c, "put-if-absent * #1: "+fault+"\nreplace-if-match * #1: "+fault)
				if err != nil {
					t.Fatal(err)
				}
				etag := "none"
				if there != "" {
					etag = memory.PutIfAbsent(t.Context(), "k", []byte(there)).Info.ETag
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				retry := objstore.Retry{Clock: c, Random: random.Seeded(1)}
				for op, r := range map[string]objstore.Result{
					"put": objstore.PutOnce(ctx, s, "k", []byte("ours"), retry), "replace": objstore.Replace(ctx, s, "k", []byte("ours too"), etag, retry),
				} {
					var e *objstore.Error
					if applied := r.Outcome == objstore.Applied; applied != (r.Err == nil) || applied != (r.Info.ETag != "") {
						t.Errorf("%s with %q: %+v", op, fault, r)
					} else if !applied && (!errors.As(r.Err, &e) || e.Key != "k") {
						t.Errorf("%s with %q: the error does not name the key: %v", op, fault, r.Err)
					}
				}
				// Whatever happened, the next operation works once all that was in flight has arrived.
				s.Land()
				if r := objstore.PutOnce(t.Context(), s, "next", []byte("x"), retry); r.Outcome != objstore.Applied {
					t.Errorf("after %q: %+v", fault, r)
				}
			})
		}
	}
}
