package simetcd

import (
	"context"
	"fmt"
	"io"
	"sync"
	_ "unsafe" // for go:linkname

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Transport is the way between one client and the server. Its methods are called by the client's goroutines.
type Transport interface {
	// Call carries a request: it calls apply, which runs it on the server, never, once or later, and returns what
	// the client shall see.
	Call(ctx context.Context, request Request, apply func() (proto.Message, error)) (proto.Message, error)
	// Open opens a stream of watches. fail breaks it; it may be called at any time, also after it was closed. The
	// stream's messages are given to deliver, in order, whenever the transport likes; closed ends that.
	Open(ctx context.Context, fail func(error)) (Stream, error)
}

// Stream orders the messages of one stream of watches.
type Stream interface {
	// Send carries a message to the server by calling arrive, or never.
	Send(arrive func())
	// Deliver carries a message to the client by calling arrive, or never.
	Deliver(arrive func())
	// Close says that the client's end is gone.
	Close()
}

// Request describes a call.
type Request struct {
	Method string // Range, Put, DeleteRange, Txn, Compact, LeaseGrant, LeaseRevoke, LeaseKeepAlive, LeaseTimeToLive
	Body   proto.Message
}

// valCtxCh is a channel that is never closed, which the client makes when the program starts. Within a bubble it would
// count as something that the world outside may do at any time, and the bubble would never be idle.
//
//go:linkname valCtxCh go.etcd.io/etcd/client/v3.valCtxCh
var valCtxCh chan struct{}

// EnterBubble must be called at the start of every synctest bubble that dials, and leave at its end; no two of them may
// run at once.
func EnterBubble() (leave func()) {
	outside := valCtxCh
	valCtxCh = make(chan struct{})
	return func() { valCtxCh = outside }
}

// Dial makes a client of a server. Close it as any other.
func Dial(s *Server, via Transport) (*clientv3.Client, error) {
	c := &conn{server: s, via: via}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"simulated:2379"}, Logger: zap.NewNop(),
		// The client's jitter is not ours to seed, so there is as good as none.
		BackoffJitterFraction: 1e-300,
		DialOptions:           []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.unary), grpc.WithChainStreamInterceptor(c.stream)},
	})
	if err != nil {
		return nil, fmt.Errorf("simetcd: %w", err)
	}
	return client, nil
}

type conn struct {
	server *Server
	via    Transport
}

// run applies a request.
func (c *conn) run(request proto.Message) (reply proto.Message, err error) {
	switch r := request.(type) {
	case *pb.RangeRequest:
		return answer(c.server.Range(r))
	case *pb.PutRequest:
		return answer(c.server.Put(r))
	case *pb.DeleteRangeRequest:
		return answer(c.server.DeleteRange(r))
	case *pb.TxnRequest:
		return answer(c.server.Txn(r))
	case *pb.CompactionRequest:
		return answer(c.server.CompactKV(r))
	case *pb.LeaseGrantRequest:
		return answer(c.server.LeaseGrant(r))
	case *pb.LeaseRevokeRequest:
		return answer(c.server.LeaseRevoke(r))
	case *pb.LeaseTimeToLiveRequest:
		return c.server.LeaseTimeToLive(r), nil
	case *pb.LeaseKeepAliveRequest:
		return c.server.LeaseKeepAlive(r), nil
	}
	return nil, status.Errorf(codes.Unimplemented, "simetcd: %T", request)
}

func answer[M proto.Message](reply M, err error) (proto.Message, error) { return reply, err }

// unary stands where the real client would send a request.
func (c *conn) unary(ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
	request := req.(proto.Message)
	got, err := c.via.Call(ctx, Request{methodOf(method), request}, func() (proto.Message, error) { return c.run(request) })
	if err != nil {
		return err
	}
	proto.Merge(reply.(proto.Message), got)
	return nil
}

func methodOf(full string) string {
	for i := len(full) - 1; i >= 0; i-- {
		if full[i] == '/' {
			return full[i+1:]
		}
	}
	return full
}

func (c *conn) stream(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	switch methodOf(method) {
	case "Watch":
		return c.openWatch(ctx)
	case "LeaseKeepAlive":
		return &keepAlive{conn: c, ctx: ctx}, nil
	}
	return nil, status.Errorf(codes.Unimplemented, "simetcd: %s", method)
}

// base is what no stream here uses.
type base struct{}

func (base) Header() (metadata.MD, error) { return nil, nil }
func (base) Trailer() metadata.MD         { return nil }
func (base) CloseSend() error             { return nil }

// keepAlive is a stream on which every message has one answer, as KeepAliveOnce uses it.
type keepAlive struct {
	base
	conn *conn
	ctx  context.Context
	sent []proto.Message
}

func (k *keepAlive) Context() context.Context { return k.ctx }

func (k *keepAlive) SendMsg(m any) error {
	k.sent = append(k.sent, m.(proto.Message))
	return nil
}

func (k *keepAlive) RecvMsg(m any) error {
	if len(k.sent) == 0 {
		return io.EOF
	}
	request := k.sent[0]
	k.sent = k.sent[1:]
	return k.conn.unary(k.ctx, "LeaseKeepAlive", request, m, nil, nil)
}

// clientWatch is the client's end of a stream of watches.
type clientWatch struct {
	base
	ctx    context.Context
	server *watchStream
	stream Stream

	mu    sync.Mutex // guards the following
	inbox []*pb.WatchResponse
	err   error
	some  chan struct{} // holds one token when inbox or err may have changed
}

func (c *conn) openWatch(ctx context.Context) (grpc.ClientStream, error) {
	w := &clientWatch{ctx: ctx, some: make(chan struct{}, 1)}
	stream, err := c.via.Open(ctx, w.fail)
	if err != nil {
		return nil, err
	}
	w.stream = stream
	w.server = c.server.openWatch(func(r *pb.WatchResponse) {
		stream.Deliver(func() { w.arrive(r) })
	}, func(err error) { stream.Deliver(func() { w.fail(err) }) })
	context.AfterFunc(ctx, func() {
		w.server.close()
		stream.Close()
		w.fail(status.FromContextError(ctx.Err()).Err())
	})
	return w, nil
}

func (w *clientWatch) Context() context.Context { return w.ctx }

func (w *clientWatch) SendMsg(m any) error {
	request := m.(*pb.WatchRequest)
	w.stream.Send(func() { w.server.request(request) })
	return nil
}

func (w *clientWatch) arrive(r *pb.WatchResponse) {
	w.mu.Lock()
	w.inbox = append(w.inbox, r)
	w.mu.Unlock()
	w.wake()
}

func (w *clientWatch) fail(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	w.wake()
	if w.server != nil {
		w.server.close()
	}
}

func (w *clientWatch) wake() {
	select {
	case w.some <- struct{}{}:
	default:
	}
}

func (w *clientWatch) RecvMsg(m any) error {
	for {
		w.mu.Lock()
		if len(w.inbox) > 0 {
			r := w.inbox[0]
			w.inbox = w.inbox[1:]
			w.mu.Unlock()
			proto.Merge(m.(proto.Message), r)
			return nil
		}
		err := w.err
		w.mu.Unlock()
		if err != nil {
			return err
		}
		<-w.some
	}
}

// Direct is the transport without any delay or fault.
type Direct struct{}

// Call implements [Transport].
func (Direct) Call(ctx context.Context, _ Request, apply func() (proto.Message, error)) (proto.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return apply()
}

// Open implements [Transport].
func (Direct) Open(context.Context, func(error)) (Stream, error) { return directStream{}, nil }

type directStream struct{}

func (directStream) Send(arrive func())    { arrive() }
func (directStream) Deliver(arrive func()) { arrive() }
func (directStream) Close()                {}
