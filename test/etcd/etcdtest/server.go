package etcdtest

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"
)

const (
	heartbeat     = 10 * time.Millisecond
	election      = 100 * time.Millisecond // at least five heartbeats, or etcd refuses to start
	startTimeout  = 30 * time.Second       // a loaded machine, not a slow etcd
	dialTimeout   = 5 * time.Second
	keepaliveTime = 2 * time.Second // a client notices a dead connection within this and its timeout
)

func init() {
	// gRPC reports every connection that a stopped server closes; in tests that is the point, not news.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}

// Options changes how a server runs. The zero value is what Start uses.
type Options struct {
	// QuotaBytes is the backend quota; 0 is etcd's default of 2 GiB. A small one lets a test raise NOSPACE.
	QuotaBytes int64
	// SameClusterID keeps the cluster id when the server is wiped, as a real member with an unchanged command line
	// does: only its revision tells that it is another one.
	SameClusterID bool
}

// Start starts a server for this test alone and returns a client for it.
func Start(t testing.TB) *clientv3.Client {
	t.Helper()
	return New(t, Options{}).Client(t)
}

// Server is one etcd member. Its methods end the test when etcd does not do what they say. It is not safe for
// concurrent use, but its clients are.
type Server struct {
	dir     string // one data directory per life, see Wipe
	life    int
	options Options
	address string // host:port, the same for every life
	running *embed.Etcd
}

// New starts a server that is stopped when the test ends.
func New(t testing.TB, options Options) *Server {
	t.Helper()
	s := &Server{dir: t.TempDir(), options: options, address: "127.0.0.1:0"}
	t.Cleanup(func() { s.Stop(t) })
	s.Restart(t)
	return s
}

// Address is the host:port at which clients reach the server.
func (s *Server) Address() string { return s.address }

// Client dials the server; the client is closed when the test ends.
func (s *Server) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	return Dial(t, s.address)
}

// Dial makes a client for some endpoints, which is closed when the test ends.
func Dial(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTime,
		Logger:               zap.NewNop(),
	})
	if err != nil {
		t.Fatalf("dialling etcd at %v: %v", endpoints, err)
	}
	// The test may have closed it already; closing again says so and changes nothing.
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Stop stops the server and keeps its data. Stopping a stopped server does nothing.
func (s *Server) Stop(testing.TB) {
	if s.running == nil {
		return
	}
	s.running.Close()
	s.running = nil
}

// Restart stops the server if it runs and starts it with the data it had.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	e, err := embed.StartEtcd(s.config())
	if err != nil {
		t.Fatalf("starting etcd: %v", err)
	}
	s.running = e
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(startTimeout):
		t.Fatalf("etcd at %s was not ready after %v", s.address, startTimeout)
	}
	s.address = e.Clients[0].Addr().String()
}

// Wipe replaces the server by an empty one at the same address: another cluster id, and a lower revision.
func (s *Server) Wipe(t testing.TB) {
	t.Helper()
	s.Stop(t)
	if err := os.RemoveAll(s.data()); err != nil {
		t.Fatalf("removing etcd's data: %v", err)
	}
	s.life++
	s.Restart(t)
}

func (s *Server) data() string { return filepath.Join(s.dir, fmt.Sprintf("life-%d", s.life)) }

func (s *Server) config() *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "member"
	cfg.Dir = s.data()
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: s.address}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	// A single member never talks to a peer, so any free port does.
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// The cluster id is a hash of the token: with it, a new life is another cluster.
	cfg.InitialClusterToken = "test"
	if !s.options.SameClusterID {
		cfg.InitialClusterToken = fmt.Sprintf("test-%d", s.life)
	}
	cfg.TickMs = uint(heartbeat.Milliseconds())
	cfg.ElectionMs = uint(election.Milliseconds())
	cfg.QuotaBackendBytes = s.options.QuotaBytes
	cfg.UnsafeNoFsync = true
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return cfg
}
