package simetcd

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// watchStream is the server's end of one stream of watches. Deliver and fail are the transport's.
type watchStream struct {
	server  *Server
	deliver func(*pb.WatchResponse)
	fail    func(error)
	watches []*watch // in order of creation; the server's lock guards it
	next    int64
}

type watch struct {
	id        int64
	key, end  []byte
	prev      bool
	noPut     bool
	noDelete  bool
	startFrom int64 // events below are not wanted
}

// openWatch opens a stream. What it sends goes to deliver, in order; fail ends it.
func (s *Server) openWatch(deliver func(*pb.WatchResponse), fail func(error)) *watchStream {
	w := &watchStream{server: s, deliver: deliver, fail: fail}
	s.do(func() { s.watches = append(s.watches, w) })
	return w
}

func (w *watchStream) close() {
	s := w.server
	s.do(func() { s.watches = slices.DeleteFunc(s.watches, func(o *watchStream) bool { return o == w }) })
}

// send queues a message; the caller holds the server's lock.
func (w *watchStream) send(r *pb.WatchResponse) {
	w.server.outbox = append(w.server.outbox, func() { w.deliver(r) })
}

// request handles one message of the client.
func (w *watchStream) request(r *pb.WatchRequest) {
	s := w.server
	s.do(func() {
		if !slices.Contains(s.watches, w) {
			return
		}
		switch u := r.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			w.create(u.CreateRequest)
		case *pb.WatchRequest_CancelRequest:
			id := u.CancelRequest.WatchId
			before := len(w.watches)
			w.watches = slices.DeleteFunc(w.watches, func(o *watch) bool { return o.id == id })
			if len(w.watches) < before {
				w.send(&pb.WatchResponse{Header: s.header(), WatchId: id, Canceled: true})
			}
		case *pb.WatchRequest_ProgressRequest:
			// One answer speaks for all watches, so there is none while one of them waits for its first revision to come.
			if !slices.ContainsFunc(w.watches, func(o *watch) bool { return o.startFrom > s.revision }) && len(w.watches) > 0 {
				w.send(&pb.WatchResponse{Header: s.header(), WatchId: -1})
			}
		}
	})
}

func (w *watchStream) create(r *pb.WatchCreateRequest) {
	s := w.server
	created := &watch{id: w.next, key: r.Key, end: r.RangeEnd, prev: r.PrevKv, startFrom: r.StartRevision}
	w.next++
	for _, f := range r.Filters {
		created.noPut = created.noPut || f == pb.WatchCreateRequest_NOPUT
		created.noDelete = created.noDelete || f == pb.WatchCreateRequest_NODELETE
	}
	w.send(&pb.WatchResponse{Header: s.header(), WatchId: created.id, Created: true})
	if r.StartRevision > 0 && r.StartRevision <= s.revision {
		if r.StartRevision < s.compacted {
			w.send(&pb.WatchResponse{Header: s.header(), WatchId: created.id, Canceled: true, CompactRevision: s.compacted})
			return
		}
		w.tell(created, s.since(r.StartRevision))
	}
	w.watches = append(w.watches, created)
}

// since rebuilds the events of all revisions from one on.
func (s *Server) since(revision int64) (events []*mvccpb.Event) {
	for _, versions := range s.history {
		for i, kv := range versions {
			if kv.ModRevision < revision {
				continue
			}
			ev := &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: kv}
			if kv.Version == 0 {
				ev.Type = mvccpb.Event_DELETE
			}
			if i > 0 && versions[i-1].Version != 0 {
				ev.PrevKv = versions[i-1]
			}
			events = append(events, ev)
		}
	}
	slices.SortFunc(events, func(a, b *mvccpb.Event) int {
		if a.Kv.ModRevision != b.Kv.ModRevision {
			return int(a.Kv.ModRevision - b.Kv.ModRevision)
		}
		return slices.Compare(a.Kv.Key, b.Kv.Key)
	})
	return events
}

// notify tells every watch of one revision's events. The caller holds the lock.
func (s *Server) notify(events []*mvccpb.Event) {
	if observe, revision := s.observe, s.revision; observe != nil {
		s.outbox = append(s.outbox, func() { observe(events, revision) })
	}
	for _, w := range s.watches {
		for _, o := range w.watches {
			w.tell(o, events)
		}
	}
}

// tell sends those events that a watch is about, as one message.
func (w *watchStream) tell(o *watch, events []*mvccpb.Event) {
	var wanted []*mvccpb.Event
	for _, ev := range events {
		put := ev.Type == mvccpb.Event_PUT
		if !inRange(string(ev.Kv.Key), o.key, o.end) || ev.Kv.ModRevision < o.startFrom || put && o.noPut || !put && o.noDelete {
			continue
		}
		if !o.prev {
			ev = &mvccpb.Event{Type: ev.Type, Kv: ev.Kv}
		}
		wanted = append(wanted, ev)
	}
	if len(wanted) > 0 {
		w.send(&pb.WatchResponse{Header: w.server.header(), WatchId: o.id, Events: wanted})
	}
}

// Break fails every watch stream, as a member that restarts does. The clients open new ones.
func (s *Server) Break() { s.do(s.breakWatches) }

func (s *Server) breakWatches() {
	for _, w := range s.watches {
		s.outbox = append(s.outbox, func() { w.fail(status.Error(codes.Unavailable, "simetcd: the connection is lost")) })
	}
	s.watches = nil
}
