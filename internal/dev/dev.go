package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/api"
	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/executor"
	"tidemark/internal/master"
	"tidemark/internal/objstore"
	"tidemark/internal/ownership"
	"tidemark/internal/process"
	"tidemark/internal/random"
	"tidemark/internal/rootlock"
	"tidemark/internal/tracing"
)

// etcdAddress is where an embedded etcd listens: on loopback only, on any free port; the beacon tells which.
const etcdAddress = "127.0.0.1:0"

// beatWatch is how long a root whose etcd was lost is watched for another server. A development root is a directory of
// this machine, and its etcd's directory is locked, so there is nobody else.
const beatWatch = time.Second

// Options are what an all-in-one server runs with.
type Options struct {
	process.RootFlags
	Etcd      []string // none embeds one
	EtcdLogin process.EtcdLoginFlags
	Cluster   string
	Keys      etcd.Keys
	Executors int
	Slots     int   // of each executor
	Memory    int64 // bytes, of all executors together
	Listen    string
	HTTP      process.HTTPFlags
	Version   string
	Lease     ownership.Config
	Out       io.Writer // where it says what it does
	Log       hclog.Logger
	Metrics   *prometheus.Registry
	Traces    process.TraceFlags

	// Standalone claims the root for this process alone, under a lease where the root is an object store. Everything else
	// that it keeps is disposable: it can be killed and started again on another machine.
	Standalone  bool
	Holder      string        // with Standalone: host and process, for people
	RootLease   time.Duration // with Standalone; 0 is rootlock.LeaseDefault
	WaitForRoot bool          // with Standalone: while another server holds the root
}

// role is what the server calls itself and its parts.
func (o Options) role() string {
	if o.Standalone {
		return "standalone"
	}
	return "dev"
}

// Server is a running all-in-one server.
type Server struct {
	options Options
	clock   clock.Clock
	random  random.Source
	store   objstore.Store
	client  *clientv3.Client

	claimed   atomic.Pointer[rootlock.Claim] // of a standalone server, once it has the root
	built     atomic.Bool                    // master and executors are there, and stay as they are
	http      *api.Server
	traces    *tracing.Provider
	master    *master.Master
	executors []*executor.Executor
	publisher *demand.Publisher // of the demo's writers, once the cluster is up
}

// Run runs everything until drain is closed or ctx is done. ready is called once the server can be used; when it
// returns, with an error or without, the server drains and ends.
func Run(ctx context.Context, o Options, drain <-chan struct{}, ready func(ctx context.Context, s *Server) error) (err error) {
	s := &Server{options: o, clock: clock.System(), random: random.New()}
	listener, tokens, err := o.HTTP.Bind(o.Listen, s, o.Metrics)
	if err != nil {
		return err
	}
	s.http = listener
	stopServing := s.serve(ctx, listener)
	defer func() { err = errors.Join(err, stopServing()) }()
	if s.traces, err = o.Traces.Traces(ctx, "tidemark-"+o.role(), o.Holder, s.random, o.Log); err != nil {
		return err
	}
	defer s.traces.Close(ctx)
	if s.store, err = o.RootFlags.Serve(ctx, o.Log, s.clock, s.random, o.Metrics, true); err != nil {
		return err
	}
	unlock, err := s.lockDir(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	endpoints, stopEtcd, err := s.startEtcd(ctx)
	if err != nil {
		return err
	}
	defer stopEtcd()
	if s.client, err = (process.EtcdFlags{Login: o.EtcdLogin}).Dial(ctx, endpoints, etcdStartTimeout); err != nil {
		return err
	}
	defer s.client.Close()
	return s.claim(ctx, endpoints, drain, func(ctx context.Context) error {
		if dir, ok := objstore.LocalDir(o.Root); ok {
			remove, err := writeBeacon(dir, Beacon{Etcd: endpoints, Cluster: o.Cluster, Listen: listener.Addr(), PID: os.Getpid()})
			if err != nil {
				return err
			}
			defer remove()
		}
		face, err := process.NewFace(process.FaceConfig{
			Client: s.client, Keys: o.Keys, Store: s.store, Clock: s.clock, Random: s.random, Log: o.Log.Named("page"), Tokens: tokens,
		})
		if err != nil {
			return err
		}
		face.Mount(listener)
		fmt.Fprintf(o.Out, "serving root %s, page on %s, state on %s/status\n", o.Root, listener.URL(), listener.URL())
		return s.run(ctx, face, drain, ready)
	})
}

// startEtcd starts an embedded etcd, or takes the one that was given.
func (s *Server) startEtcd(ctx context.Context) (endpoints []string, stop func(), err error) {
	if len(s.options.Etcd) > 0 {
		return s.options.Etcd, func() {}, nil
	}
	dir, remove := "", func() {}
	if root, ok := objstore.LocalDir(s.options.Root); ok && !s.options.Standalone {
		dir = filepath.Join(root, "_tidemark", "etcd")
	} else {
		if dir, err = os.MkdirTemp("", "tidemark-etcd-"); err != nil {
			return nil, nil, fmt.Errorf("cannot make a directory for the embedded etcd: %w", err)
		}
		remove = func() { _ = os.RemoveAll(dir) }
	}
	start := StartEtcd
	if s.options.Standalone {
		start = startDisposableEtcd
	}
	embedded, err := start(ctx, dir, etcdAddress)
	if err != nil {
		remove()
		return nil, nil, err
	}
	return []string{embedded.Endpoint()}, func() { embedded.Close(); remove() }, nil
}

// serve serves HTTP from now on, also while the root is waited for, until the function it returns is called.
func (s *Server) serve(ctx context.Context, listener *api.Server) (stop func() error) {
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var server errgroup.Group
	server.Go(func() error { return listener.Run(serving) })
	return func() error {
		cancel()
		return server.Wait()
	}
}

// run runs master, executors and the page until the end, and stops them in the order in which they need each other.
func (s *Server) run(ctx context.Context, face *process.Face, drain <-chan struct{}, ready func(context.Context, *Server) error) error {
	if err := s.build(); err != nil {
		return err
	}
	seeing, stopSeeing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSeeing()
	var page errgroup.Group
	page.Go(func() error { return face.Run(seeing) })

	// Whoever ends first, for whatever reason, ends all.
	group, working := errgroup.WithContext(ctx)
	draining, startDrain := context.WithCancel(context.Background())
	defer startDrain()
	deciding, stopDeciding := context.WithCancel(working)
	defer stopDeciding()
	group.Go(func() error {
		defer context.AfterFunc(draining, stopDeciding)()
		return s.master.Run(deciding)
	})
	for _, e := range s.executors {
		group.Go(func() error { return e.Run(working, draining.Done()) })
	}
	group.Go(func() error {
		defer startDrain()
		usable, stop := process.UntilDrained(working, drain)
		defer stop()
		err := ready(usable, s)
		if errors.Is(err, process.ErrDrained) {
			return nil
		}
		return err
	})
	err := group.Wait()
	stopSeeing()
	return errors.Join(err, page.Wait())
}

func (s *Server) build() error {
	o := s.options
	var watch time.Duration // the default
	if _, local := objstore.LocalDir(o.Root); local && len(o.Etcd) == 0 {
		watch = beatWatch
	}
	var err error
	s.master, err = master.New(master.Config{
		ID: o.role() + "-master", Address: s.http.Reach(), URL: s.http.URL(), Version: o.Version, Cluster: o.Cluster, Keys: o.Keys, Client: s.client, Store: s.store,
		Clock: s.clock, Random: s.random, Log: o.Log.Named("master"), Lease: o.Lease, BeatWatch: watch, Standalone: o.Standalone,
	})
	if err != nil {
		return err
	}
	o.Metrics.MustRegister(s.master)
	for i := range o.Executors {
		id := fmt.Sprintf("%s-executor-%d", o.role(), i+1)
		e, err := executor.New(executor.Config{
			ID: id, Address: s.http.Reach(), Version: o.Version, Slots: o.Slots, Memory: o.Memory / int64(o.Executors), Lease: o.Lease,
		}, executor.Deps{
			Client: s.client, Keys: o.Keys, Store: s.store, Clock: s.clock, Random: s.random, Mem: memory.DefaultAllocator,
			Log: o.Log.Named(id), Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"process": id}, o.Metrics),
			Traces: s.traces,
		})
		if err != nil {
			return err
		}
		s.executors = append(s.executors, e)
	}
	s.built.Store(true)
	return nil
}
