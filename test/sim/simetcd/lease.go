package simetcd

import (
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// LeaseGrant answers a grant. Leases without an id of the client's get the next free one.
func (s *Server) LeaseGrant(r *pb.LeaseGrantRequest) (reply *pb.LeaseGrantResponse, err error) {
	s.do(func() {
		id := r.ID
		switch {
		case s.full:
			err = rpctypes.ErrGRPCNoSpace
			return
		case s.leases[id] != nil:
			err = rpctypes.ErrGRPCLeaseExist
			return
		}
		if id == 0 {
			for id = s.revision<<20 + 1; s.leases[id] != nil; id++ {
			}
		}
		l := &lease{ttl: time.Duration(max(r.TTL, 1)) * time.Second, keys: map[string]struct{}{}}
		s.leases[id] = l
		s.extend(id, l)
		reply = &pb.LeaseGrantResponse{Header: s.header(), ID: id, TTL: int64(l.ttl / time.Second)}
	})
	return reply, err
}

// extend starts the lease's time anew. The caller holds the lock.
func (s *Server) extend(id int64, l *lease) {
	l.grants++
	grant := l.grants
	l.until = time.Now().Add(l.ttl)
	s.after(l.ttl, func() {
		s.do(func() {
			if s.leases[id] == l && l.grants == grant {
				s.end(id, l)
			}
		})
	})
}

// end removes a lease and all that stands under it, in one revision. The caller holds the lock.
func (s *Server) end(id int64, l *lease) {
	w := &write{s: s}
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		w.remove(s.now(key))
		i, _ := slices.BinarySearch(s.keys, key)
		s.keys = slices.Delete(s.keys, i, i+1)
	}
	w.end()
	delete(s.leases, id)
}

// LeaseRevoke answers a revocation.
func (s *Server) LeaseRevoke(r *pb.LeaseRevokeRequest) (reply *pb.LeaseRevokeResponse, err error) {
	s.do(func() {
		l := s.leases[r.ID]
		if l == nil {
			err = rpctypes.ErrGRPCLeaseNotFound
			return
		}
		s.end(r.ID, l)
		reply = &pb.LeaseRevokeResponse{Header: s.header()}
	})
	return reply, err
}

// LeaseKeepAlive answers one message of a keepalive stream; a lease that does not exist has a TTL of 0.
func (s *Server) LeaseKeepAlive(r *pb.LeaseKeepAliveRequest) (reply *pb.LeaseKeepAliveResponse) {
	s.do(func() {
		reply = &pb.LeaseKeepAliveResponse{Header: s.header(), ID: r.ID}
		if l := s.leases[r.ID]; l != nil {
			s.extend(r.ID, l)
			reply.TTL = int64(l.ttl / time.Second)
		}
	})
	return reply
}

// LeaseTimeToLive answers how long a lease has to live, -1 if it does not exist.
func (s *Server) LeaseTimeToLive(r *pb.LeaseTimeToLiveRequest) (reply *pb.LeaseTimeToLiveResponse) {
	s.do(func() {
		reply = &pb.LeaseTimeToLiveResponse{Header: s.header(), ID: r.ID, TTL: -1}
		l := s.leases[r.ID]
		if l == nil {
			return
		}
		reply.TTL, reply.GrantedTTL = int64(time.Until(l.until)/time.Second), int64(l.ttl/time.Second)
		if r.Keys {
			for _, key := range slices.Sorted(maps.Keys(l.keys)) {
				reply.Keys = append(reply.Keys, []byte(key))
			}
		}
	})
	return reply
}
