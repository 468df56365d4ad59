package simetcd

import (
	"bytes"
	"cmp"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Txn answers a txn.
func (s *Server) Txn(r *pb.TxnRequest) (reply *pb.TxnResponse, err error) {
	s.do(func() {
		if err = checkTxn(r); err != nil {
			return
		}
		if s.full && (puts(r.Success) || puts(r.Failure)) {
			err = rpctypes.ErrGRPCNoSpace
			return
		}
		reply, err = s.txn(r)
	})
	return reply, err
}

func (s *Server) txn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	reply := &pb.TxnResponse{Succeeded: true}
	for _, c := range r.Compare {
		held, err := s.holds(c)
		if err != nil {
			return nil, err
		}
		reply.Succeeded = reply.Succeeded && held
	}
	ops := r.Success
	if !reply.Succeeded {
		ops = r.Failure
	}
	// Nothing is written unless everything can be.
	for _, op := range ops {
		if put := op.GetRequestPut(); put != nil && put.Lease != 0 && s.leases[put.Lease] == nil {
			return nil, rpctypes.ErrGRPCLeaseNotFound
		}
		if read := op.GetRequestRange(); read != nil {
			if _, err := s.rangeOf(read, s.revision); err != nil {
				return nil, err
			}
		}
	}
	w := &write{s: s}
	for _, op := range ops {
		answer, err := w.op(op)
		if err != nil {
			return nil, err
		}
		reply.Responses = append(reply.Responses, answer)
	}
	w.end()
	reply.Header = s.header()
	return reply, nil
}

func (w *write) op(op *pb.RequestOp) (*pb.ResponseOp, error) {
	switch o := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		reply, err := w.s.rangeOf(o.RequestRange, w.reading())
		if err != nil {
			return nil, err
		}
		reply.Header = &pb.ResponseHeader{Revision: w.reading()}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: reply}}, nil
	case *pb.RequestOp_RequestPut:
		reply, err := w.put(o.RequestPut)
		if err != nil {
			return nil, err
		}
		reply.Header = &pb.ResponseHeader{Revision: w.reading()}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: reply}}, nil
	case *pb.RequestOp_RequestDeleteRange:
		reply, err := w.delete(o.RequestDeleteRange)
		if err != nil {
			return nil, err
		}
		reply.Header = &pb.ResponseHeader{Revision: w.reading()}
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: reply}}, nil
	}
	return nil, status.Error(codes.Unimplemented, "simetcd: nested txns")
}

// checkTxn refuses what etcd refuses before it looks at any key.
func checkTxn(r *pb.TxnRequest) error {
	if max(len(r.Compare), len(r.Success), len(r.Failure)) > opsMax {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if len(c.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		if err := checkOps(ops); err != nil {
			return err
		}
	}
	return nil
}

// checkOps refuses two writes of one key.
func checkOps(ops []*pb.RequestOp) error {
	put := map[string]bool{}
	for _, op := range ops {
		p := op.GetRequestPut()
		if p == nil {
			continue
		}
		if len(p.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
		if put[string(p.Key)] {
			return rpctypes.ErrGRPCDuplicateKey
		}
		put[string(p.Key)] = true
	}
	for _, op := range ops {
		d := op.GetRequestDeleteRange()
		if d == nil {
			continue
		}
		for key := range put {
			if inRange(key, d.Key, d.RangeEnd) {
				return rpctypes.ErrGRPCDuplicateKey
			}
		}
	}
	return nil
}

func puts(ops []*pb.RequestOp) bool {
	for _, op := range ops {
		if op.GetRequestPut() != nil {
			return true
		}
	}
	return false
}

// holds evaluates one compare.
func (s *Server) holds(c *pb.Compare) (bool, error) {
	if len(c.RangeEnd) > 0 {
		return false, status.Error(codes.Unimplemented, "simetcd: compares of ranges")
	}
	kv := s.now(string(c.Key))
	if kv == nil {
		if c.Target == pb.Compare_VALUE {
			return false, nil // nothing has no value to compare
		}
		kv = &mvccpb.KeyValue{}
	}
	var order int
	switch c.Target {
	case pb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_VERSION:
		order = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_CREATE:
		order = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_LEASE:
		order = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0, nil
	case pb.Compare_NOT_EQUAL:
		return order != 0, nil
	case pb.Compare_GREATER:
		return order > 0, nil
	}
	return order < 0, nil
}
