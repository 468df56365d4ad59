package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"tidemark/test/sim/simetcd"
)

var (
	errLost   = status.Error(codes.Unavailable, "sim: the connection is lost")
	errClosed = status.Error(codes.Canceled, "grpc: the client connection is closing")
)

// wire is a process's connection to etcd.
type wire struct {
	p    *process
	etcd *simetcd.Server
}

var _ simetcd.Transport = wire{}

func (t wire) Call(ctx context.Context, r simetcd.Request, apply func() (proto.Message, error)) (proto.Message, error) {
	type answer struct {
		reply proto.Message
		err   error
	}
	a, cluster := new(answer), t.etcd.Cluster()
	mutates := true
	if _, reads := r.Body.(*pb.RangeRequest); reads || r.Method == "LeaseTimeToLive" {
		mutates = false
	}
	switch t.p.perform(ctx, toEtcd, describe(r), mutates, func() {
		// What was sent to an etcd that is gone does not arrive at the one that has replaced it.
		if a.err = errLost; t.etcd.Cluster() == cluster {
			a.reply, a.err = apply()
		}
	}) {
	case answered:
		return a.reply, a.err
	case unsent, gone:
		return nil, t.ended(ctx)
	}
	return nil, errLost
}

// ended is what a client says whose call ended before its answer.
func (t wire) ended(ctx context.Context) error {
	if t.p.isDead() {
		return errClosed
	}
	return status.FromContextError(ctx.Err()).Err()
}

// describe names a request for the trace.
func describe(r simetcd.Request) string {
	switch b := r.Body.(type) {
	case *pb.RangeRequest:
		return "etcd get " + string(b.Key)
	case *pb.TxnRequest:
		what := "etcd txn"
		for i, op := range b.Success {
			switch {
			case i == 2:
				return what + " …"
			case op.GetRequestPut() != nil:
				what += " put " + string(op.GetRequestPut().Key)
			case op.GetRequestDeleteRange() != nil:
				what += " delete " + string(op.GetRequestDeleteRange().Key)
			}
		}
		return what
	case *pb.PutRequest:
		return "etcd put " + string(b.Key)
	}
	return "etcd " + r.Method
}

func (t wire) Open(ctx context.Context, fail func(error)) (simetcd.Stream, error) {
	switch t.p.perform(ctx, toEtcd, "etcd watch", false, func() {}) {
	case answered:
	case unsent, gone:
		return nil, t.ended(ctx)
	default:
		return nil, errLost
	}
	s := &wireStream{p: t.p, name: fmt.Sprintf("%s etcd watch %d", t.p.name, t.p.world.nth(t.p.name+" etcd watch"))}
	t.p.mu.Lock()
	t.p.broken = append(t.p.broken, fail)
	t.p.mu.Unlock()
	go func() {
		select {
		case <-t.p.dead:
			fail(errClosed)
		case <-ctx.Done():
		}
	}()
	return s, nil
}

// wireStream delays messages and keeps their order in each direction.
type wireStream struct {
	p       *process
	name    string
	out, in lane
}

// lane is one direction: whenever one of its events happens, the message that has waited longest arrives.
type lane struct {
	mu      sync.Mutex // guards the following
	last    time.Duration
	waiting []func()
}

func (s *wireStream) Send(arrive func())    { s.carry("request", &s.out, arrive) }
func (s *wireStream) Deliver(arrive func()) { s.carry("event", &s.in, arrive) }
func (s *wireStream) Close()                {}

func (s *wireStream) carry(what string, l *lane, arrive func()) {
	w, p := s.p.world, s.p
	id := s.name + " " + what
	latency := w.plan.latency(w.draw(fmt.Sprintf("%s #%d", id, w.nth(id))))
	l.mu.Lock()
	l.waiting = append(l.waiting, arrive)
	l.last = max(w.now()+latency, l.last+1)
	delay := l.last - w.now()
	l.mu.Unlock()
	var try func()
	try = func() {
		if p.isDead() {
			return
		}
		until, stopped := p.pausedUntil()
		if cut, off := p.cutOff(toEtcd); off {
			until, stopped = max(until, cut), true
		}
		if stopped {
			w.submit(id, until-w.now()+1, try)
			return
		}
		l.mu.Lock()
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.mu.Unlock()
		next()
	}
	w.submit(id, delay, try)
}
