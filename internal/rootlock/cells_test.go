package rootlock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"tidemark/internal/objstore"
)

// Every way in which the request that writes the lock can fail, times every thing that its sender may find afterwards.
// In each the server serves only under a lock that stands, and when it is gone the next one gets the root.

// lockFaults are those of the first request that writes root.json.
var lockFaults = []string{
	"fail before send", "refuse", "throttle", "unknown, applied", "unknown, lands after 1 ops", "unknown, lands after 3 ops",
	"unknown, lands after 10 ops", "unknown, never lands", senderDies,
}

// senderDies is a request that lands only when its sender is gone.
const senderDies = "hang, lands when told"

// meanwhileStore does something right after the first request to write root.json.
type meanwhileStore struct {
	objstore.Store
	once      sync.Once
	meanwhile func()
}

func (s *meanwhileStore) after(key string, r objstore.Result) objstore.Result {
	if key == RootKey {
		s.once.Do(s.meanwhile)
	}
	return r
}

func (s *meanwhileStore) PutIfAbsent(ctx context.Context, key string, body []byte) objstore.Result {
	return s.after(key, s.Store.PutIfAbsent(ctx, key, body))
}

func (s *meanwhileStore) ReplaceIfMatch(ctx context.Context, key string, body []byte, etag string) objstore.Result {
	return s.after(key, s.Store.ReplaceIfMatch(ctx, key, body, etag))
}

func TestEveryFaultOfTheRequestThatWritesTheLock(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, fault := range lockFaults {
			for _, finds := range []string{"its own bytes", "another's", "nothing"} {
				if fault == "unknown, applied" && finds == "nothing" {
					continue // what was applied is found
				}
				before := map[bool]string{false: "no lock", true: "a silent lock"}[silent]
				t.Run(fmt.Sprintf("%s, %s, then it finds %s", before, fault, finds), func(t *testing.T) {
					bubble(t, func(t *testing.T) { lockCell(t, silent, fault, finds) })
				})
			}
		}
	}
}

func lockCell(t *testing.T, silent bool, fault, finds string) {
	shared := memory()
	op := objstore.OpPutIfAbsent
	if silent {
		op = objstore.OpReplaceIfMatch
		dead(t, shared, 2)
	}
	faults := faulty(t, shared, op+" *root.json #1: "+fault)
	o := named(&meanwhileStore{Store: faults, meanwhile: func() {
		switch finds {
		case "its own bytes":
			faults.Land() // if it has not landed, the retry is what writes them
		case "another's":
			putRival(t, shared)
		}
	}}, "a", 1)
	o.Wait = true
	standing := func(s *server) { // asked while the server serves
		if r := root(t, shared); r.ID != s.id() {
			t.Errorf("it serves under %s, and the lock is %+v", s.id(), r)
		}
	}
	s := start(t, o, standing)
	if fault == senderDies {
		after(lease*3/2 + pollMax/2)
		s.stop()
		<-s.ended
	} else {
		after(4 * time.Minute)
		if !s.admits() {
			t.Error("it is not admitted after four minutes")
		}
	}
	faults.Land()
	after(time.Second)
	if s.admits() {
		standing(s)
	}
	s.stop()
	<-s.ended

	// The next operation on the same root works, whatever was left there.
	next := named(shared, "b", 2)
	next.Wait = true
	b := start(t, next, nil)
	after(lease*3/2 + pollMax)
	if !b.admits() || root(t, shared).ID != b.id() {
		t.Errorf("the next server is not admitted; the lock is %+v", root(t, shared))
	}
	if unused := faults.Unused(); len(unused) > 0 {
		t.Error(unused)
	}
}

// putRival writes another server's lock, one that never gives a sign of life.
func putRival(t *testing.T, s objstore.Store) {
	record := Record{Nonce: "r", Kind: Standalone, ID: "rival", Holder: "rival", LeaseMS: lease.Milliseconds()}
	_, etag, err := Read(context.Background(), s)
	if err != nil {
		t.Error(err)
	}
	if etag == "" {
		s.PutIfAbsent(context.Background(), RootKey, record.Encode())
	} else {
		s.ReplaceIfMatch(context.Background(), RootKey, record.Encode(), etag)
	}
}
