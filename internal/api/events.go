package api

import (
	"fmt"
	"net/http"
	"time"
)

const (
	// streamsMax bounds the streams of events, one per open page.
	streamsMax = 512
	// eventEvery is how often an event is sent at most: people read no faster, and a page that is told asks again.
	eventEvery = time.Second
	// eventLeast is how often one is sent though nothing changed: ages grow all the same.
	eventLeast = 5 * time.Second
	// eventTimeout is how long a client may take to read one.
	eventTimeout = 10 * time.Second
)

// events is a stream of server-sent events, one "change" for any number of changes within a second. What has changed a
// client asks for: most look at one table or one page of a list.
func (v *V1) events(w http.ResponseWriter, r *http.Request) {
	select {
	case v.streams <- struct{}{}:
		defer func() { <-v.streams }()
	default:
		problem(http.StatusServiceUnavailable, "too_many_streams", fmt.Sprintf("%d pages are open already", streamsMax)).write(w)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies pass events on at once
	answer, clock := http.NewResponseController(w), v.see.Clock()
	for {
		changed := v.see.Changed()
		// A server without deadlines, as in tests, cannot set one, and needs none.
		_ = answer.SetWriteDeadline(clock.Now().Add(eventLeast + eventTimeout))
		if _, err := fmt.Fprintf(w, "event: change\ndata: {\"now_ms\":%d,\"fresh\":%t}\n\n", v.see.NowMS(), v.see.Fresh()); err != nil {
			return
		}
		if err := answer.Flush(); err != nil {
			return
		}
		if !v.rest(r, nil, eventEvery) || !v.rest(r, changed, eventLeast-eventEvery) {
			return
		}
	}
}

// rest waits for d or until something changed; false says that the stream ends.
func (v *V1) rest(r *http.Request, changed <-chan struct{}, d time.Duration) bool {
	fired, stop := v.see.Clock().After(d)
	defer stop()
	select {
	case <-fired:
	case <-changed:
	case <-r.Context().Done():
		return false
	case <-ending(r.Context()):
		return false
	}
	return true
}
