package simetcd

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// opsMax is etcd's default limit of operations in one txn.
const opsMax = 128

// Server is one etcd cluster in memory. All methods are safe for concurrent use.
type Server struct {
	after func(time.Duration, func())

	mu        sync.Mutex // guards all below
	cluster   uint64
	revision  int64
	compacted int64
	keys      []string // that stand now, sorted
	history   map[string][]*mvccpb.KeyValue
	leases    map[int64]*lease
	watches   []*watchStream // open streams, in order of opening
	full      bool           // the alarm for space is raised
	outbox    []func()
	observe   func(events []*mvccpb.Event, revision int64)
}

// NewServer returns an empty etcd at a revision, 1 for a new one. after runs a function once a time has passed, such as time.AfterFunc: leases end by it.
func NewServer(cluster uint64, revision int64, after func(time.Duration, func())) *Server {
	s := &Server{after: after}
	s.begin(cluster, revision)
	return s
}

func (s *Server) begin(cluster uint64, revision int64) {
	s.cluster, s.revision, s.compacted, s.full = cluster, revision, 0, false
	s.keys, s.history = nil, map[string][]*mvccpb.KeyValue{}
	s.leases, s.watches = map[int64]*lease{}, nil
}

// Observe registers who is told of every revision, in order: a checker. It may read with Standing.
func (s *Server) Observe(f func(events []*mvccpb.Event, revision int64)) {
	s.do(func() { s.observe = f })
}

// do runs f with the lock and then sends what it left in the outbox.
func (s *Server) do(f func()) {
	s.mu.Lock()
	f()
	outbox := s.outbox
	s.outbox = nil
	s.mu.Unlock()
	for _, send := range outbox {
		send()
	}
}

// Wipe replaces everything by an empty etcd of another cluster id at a revision; watches break.
func (s *Server) Wipe(cluster uint64, revision int64) {
	s.do(func() {
		s.stop()
		s.begin(cluster, revision)
	})
}

// Cluster is the id of the cluster.
func (s *Server) Cluster() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster
}

// Close breaks all watches.
func (s *Server) Close() { s.do(s.stop) }

func (s *Server) stop() {
	s.breakWatches()
	clear(s.leases)
}

// Fill raises or clears the alarm for space: while it is raised only reads, deletes and keepalives pass.
func (s *Server) Fill(full bool) { s.do(func() { s.full = full }) }

// Compact forgets what was overwritten before a revision, at most the present one; 0 means the present one.
func (s *Server) Compact(revision int64) error {
	var err error
	s.do(func() {
		if revision == 0 {
			revision = s.revision
		}
		err = s.compact(revision)
	})
	return err
}

func (s *Server) compact(revision int64) error {
	switch {
	case revision <= s.compacted:
		return rpctypes.ErrGRPCCompacted
	case revision > s.revision:
		return rpctypes.ErrGRPCFutureRev
	}
	s.compacted = revision
	for key, versions := range s.history {
		// What stood at the revision is kept, and all that is newer.
		first := sort.Search(len(versions), func(i int) bool { return versions[i].ModRevision > revision }) - 1
		if first < 0 {
			first = 0
		} else if versions[first].Version == 0 {
			first++
		}
		if first == len(versions) {
			delete(s.history, key)
		} else {
			s.history[key] = versions[first:]
		}
	}
	return nil
}

// Standing is a copy of the keys under a prefix as they stand now, without passing through a transport: for checkers.
func (s *Server) Standing(prefix string) (kvs []*mvccpb.KeyValue, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, _ := slices.BinarySearch(s.keys, prefix)
	for ; at < len(s.keys) && strings.HasPrefix(s.keys[at], prefix); at++ {
		kvs = append(kvs, s.now(s.keys[at]))
	}
	return kvs, s.revision
}

func (s *Server) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: s.cluster, MemberId: 1, Revision: s.revision, RaftTerm: 2}
}

// now is what stands at a key, nil if nothing does.
func (s *Server) now(key string) *mvccpb.KeyValue {
	versions := s.history[key]
	if n := len(versions); n > 0 && versions[n-1].Version != 0 {
		return versions[n-1]
	}
	return nil
}

// at is what stood at a key at a revision; a tombstone has version 0.
func at(versions []*mvccpb.KeyValue, revision int64) *mvccpb.KeyValue {
	i := sort.Search(len(versions), func(i int) bool { return versions[i].ModRevision > revision })
	if i == 0 || versions[i-1].Version == 0 {
		return nil
	}
	return versions[i-1]
}

// inRange says whether a key is in a range as requests give them.
func inRange(key string, from, end []byte) bool {
	switch {
	case len(end) == 0:
		return key == string(from)
	case len(end) == 1 && end[0] == 0:
		return key >= string(from)
	}
	return key >= string(from) && key < string(end)
}

// Range answers a range request.
func (s *Server) Range(r *pb.RangeRequest) (reply *pb.RangeResponse, err error) {
	s.do(func() {
		if reply, err = s.rangeOf(r, s.revision); err == nil {
			reply.Header = s.header()
		}
	})
	return reply, err
}

func (s *Server) rangeOf(r *pb.RangeRequest, current int64) (*pb.RangeResponse, error) {
	revision := r.Revision
	switch {
	case len(r.Key) == 0:
		return nil, rpctypes.ErrGRPCEmptyKey
	case revision > current:
		return nil, rpctypes.ErrGRPCFutureRev
	case revision > 0 && revision < s.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	case r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0:
		return nil, status.Error(codes.Unimplemented, "simetcd: ranges filtered by revision")
	}
	var kvs []*mvccpb.KeyValue
	if revision <= 0 || revision == current {
		from, _ := slices.BinarySearch(s.keys, string(r.Key))
		for ; from < len(s.keys) && inRange(s.keys[from], r.Key, r.RangeEnd); from++ {
			kvs = append(kvs, s.now(s.keys[from]))
		}
	} else {
		for key, versions := range s.history {
			if kv := at(versions, revision); kv != nil && inRange(key, r.Key, r.RangeEnd) {
				kvs = append(kvs, kv)
			}
		}
		slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	}
	reply := &pb.RangeResponse{Count: int64(len(kvs))}
	if r.CountOnly {
		return reply, nil
	}
	sortKVs(kvs, r)
	if r.Limit > 0 && int64(len(kvs)) > r.Limit {
		kvs, reply.More = kvs[:r.Limit], true
	}
	for _, kv := range kvs {
		if r.KeysOnly {
			kv = &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
		}
		reply.Kvs = append(reply.Kvs, kv)
	}
	return reply, nil
}

func sortKVs(kvs []*mvccpb.KeyValue, r *pb.RangeRequest) {
	order := r.SortOrder
	if r.SortTarget != pb.RangeRequest_KEY && order == pb.RangeRequest_NONE {
		order = pb.RangeRequest_ASCEND
	}
	if order == pb.RangeRequest_NONE {
		return
	}
	slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) int {
		var c int
		switch r.SortTarget {
		case pb.RangeRequest_KEY:
			c = bytes.Compare(a.Key, b.Key)
		case pb.RangeRequest_VERSION:
			c = cmp.Compare(a.Version, b.Version)
		case pb.RangeRequest_CREATE:
			c = cmp.Compare(a.CreateRevision, b.CreateRevision)
		case pb.RangeRequest_MOD:
			c = cmp.Compare(a.ModRevision, b.ModRevision)
		case pb.RangeRequest_VALUE:
			c = bytes.Compare(a.Value, b.Value)
		}
		if order == pb.RangeRequest_DESCEND {
			return -c
		}
		return c
	})
}

// write is one revision in the making.
type write struct {
	s      *Server
	events []*mvccpb.Event
}

func (w *write) revision() int64 { return w.s.revision + 1 }

// end makes the revision, if anything was written, and tells the watches.
func (w *write) end() {
	if len(w.events) == 0 {
		return
	}
	w.s.revision++
	w.s.notify(w.events)
}

// reading is the revision that reads see: the one in the making, once it has writes.
func (w *write) reading() int64 {
	if len(w.events) == 0 {
		return w.s.revision
	}
	return w.revision()
}

func (w *write) put(r *pb.PutRequest) (*pb.PutResponse, error) {
	s := w.s
	switch {
	case len(r.Key) == 0:
		return nil, rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue || r.IgnoreLease:
		return nil, status.Error(codes.Unimplemented, "simetcd: puts that keep value or lease")
	}
	if r.Lease != 0 && s.leases[r.Lease] == nil {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	key := string(r.Key)
	kv := &mvccpb.KeyValue{
		Key: r.Key, Value: r.Value, Lease: r.Lease, ModRevision: w.revision(), CreateRevision: w.revision(), Version: 1,
	}
	before := s.now(key)
	if before != nil {
		kv.CreateRevision, kv.Version = before.CreateRevision, before.Version+1
		if l := s.leases[before.Lease]; l != nil {
			delete(l.keys, key)
		}
	} else {
		i, _ := slices.BinarySearch(s.keys, key)
		s.keys = slices.Insert(s.keys, i, key)
	}
	if r.Lease != 0 {
		s.leases[r.Lease].keys[key] = struct{}{}
	}
	s.history[key] = append(s.history[key], kv)
	w.events = append(w.events, &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: kv, PrevKv: before})
	reply := &pb.PutResponse{}
	if r.PrevKv {
		reply.PrevKv = before
	}
	return reply, nil
}

func (w *write) delete(r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	s := w.s
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	reply := &pb.DeleteRangeResponse{}
	from, _ := slices.BinarySearch(s.keys, string(r.Key))
	end := from
	for end < len(s.keys) && inRange(s.keys[end], r.Key, r.RangeEnd) {
		before := s.now(s.keys[end])
		if r.PrevKv {
			reply.PrevKvs = append(reply.PrevKvs, before)
		}
		w.remove(before)
		end++
	}
	reply.Deleted = int64(end - from)
	s.keys = slices.Delete(s.keys, from, end)
	return reply, nil
}

// remove writes a tombstone; the caller takes the key out of keys.
func (w *write) remove(before *mvccpb.KeyValue) {
	s, key := w.s, string(before.Key)
	if l := s.leases[before.Lease]; l != nil {
		delete(l.keys, key)
	}
	tombstone := &mvccpb.KeyValue{Key: before.Key, ModRevision: w.revision()}
	s.history[key] = append(s.history[key], tombstone)
	w.events = append(w.events, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: tombstone, PrevKv: before})
}

// Put answers a put request.
func (s *Server) Put(r *pb.PutRequest) (reply *pb.PutResponse, err error) {
	s.do(func() {
		if s.full {
			err = rpctypes.ErrGRPCNoSpace
			return
		}
		w := &write{s: s}
		if reply, err = w.put(r); err == nil {
			w.end()
			reply.Header = s.header()
		}
	})
	return reply, err
}

// DeleteRange answers a delete request.
func (s *Server) DeleteRange(r *pb.DeleteRangeRequest) (reply *pb.DeleteRangeResponse, err error) {
	s.do(func() {
		w := &write{s: s}
		if reply, err = w.delete(r); err == nil {
			w.end()
			reply.Header = s.header()
		}
	})
	return reply, err
}

// CompactKV answers a compaction request.
func (s *Server) CompactKV(r *pb.CompactionRequest) (reply *pb.CompactionResponse, err error) {
	s.do(func() {
		if err = s.compact(r.Revision); err == nil {
			reply = &pb.CompactionResponse{Header: s.header()}
		}
	})
	return reply, err
}

// lease is one lease and what stands under it.
type lease struct {
	ttl    time.Duration
	until  time.Time
	keys   map[string]struct{}
	grants int // so that the time of an earlier renewal is recognised when it comes
}
