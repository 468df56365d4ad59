package process

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"tidemark/internal/api"
	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/random"
	"tidemark/internal/tracing"
)

// dialTimeout bounds how long a server tries to reach etcd at its start: an election and some.
const dialTimeout = 15 * time.Second

// ServerFlags are what both kinds of server take.
type ServerFlags struct {
	RootFlags
	EtcdFlags
	LeaseFlags
	LogFlags
	HTTPFlags
	TraceFlags
	Listen string `help:"Address of the HTTP server: /healthz, /readyz, /status, /metrics, and of a master also /api/v1 and the page. Port 0 picks a free one." default:"${listen}" env:"TIDEMARK_LISTEN" placeholder:"HOST:PORT"`
	ID     string `name:"id" help:"Name of this process, unique in the cluster; made from host and process id if not given." env:"TIDEMARK_ID" placeholder:"NAME"`
}

// Server is what both kinds of server work with.
type Server struct {
	ID      string
	Store   objstore.Store
	Client  *clientv3.Client
	Keys    etcd.Keys
	Clock   clock.Clock
	Random  random.Source
	Log     hclog.Logger
	Metrics *prometheus.Registry
	HTTP    *api.Server // bound, and serving from Serve on
	Traces  *tracing.Provider
	tokens  *api.Tokens
}

// NewRegistry is a registry with the metrics that every process has.
func NewRegistry() *prometheus.Registry {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidemark_build_info", Help: "1, labelled with the version of this process.",
			ConstLabels: prometheus.Labels{"version": Version},
		}, func() float64 { return 1 }),
	)
	return metrics
}

// Open binds the address, opens the root and reaches etcd. The caller calls Close.
func (f ServerFlags) Open(ctx context.Context, kind string, logs io.Writer) (_ *Server, err error) {
	s := &Server{ID: f.ID, Keys: f.Keys(), Clock: clock.System(), Random: random.New(), Log: f.Logger(kind, logs), Metrics: NewRegistry()}
	if s.ID == "" {
		s.ID = DefaultID(kind)
	}
	if len(f.Etcd) == 0 {
		return nil, Usagef("give --etcd, the endpoints of the cluster's etcd; to try Tidemark without one, run `tidemark dev`")
	}
	if s.HTTP, s.tokens, err = f.Bind(f.Listen, nil, s.Metrics); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.Traces, err = f.Traces(ctx, "tidemark-"+kind, s.ID, s.Random, s.Log); err != nil {
		return nil, err
	}
	if s.Store, err = f.RootFlags.Serve(ctx, s.Log, s.Clock, s.Random, s.Metrics, false); err != nil {
		return nil, err
	}
	if s.Client, err = f.Dial(ctx, f.Etcd, dialTimeout); err != nil {
		return nil, err
	}
	return s, nil
}

// Close gives up what Open took, and sends the last traces.
func (s *Server) Close() {
	s.HTTP.Close()
	if s.Client != nil {
		_ = s.Client.Close()
	}
	s.Traces.Close(context.Background())
}

// Work is the job of a server. It ends when drain is closed and what runs is finished, or when its context ends.
type Work interface {
	api.Subject
	Run(ctx context.Context, drain <-chan struct{}) error
}

// Serve does the work beside an HTTP server until the work ends. With face, the server also shows the cluster: /api/v1 and
// the page. It says where it listens on out.
func (f ServerFlags) Serve(ctx context.Context, work Work, s *Server, face bool, drain <-chan struct{}, out io.Writer, name string) error {
	server := s.HTTP
	server.Speak(work)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	if face {
		shown, err := NewFace(FaceConfig{Client: s.Client, Keys: s.Keys, Store: s.Store, Clock: s.Clock, Random: s.Random, Log: s.Log.Named("page"), Tokens: s.tokens})
		if err != nil {
			return err
		}
		shown.Mount(server)
		group.Go(func() error { return shown.Run(serving) })
	}
	fmt.Fprintf(out, "%s serves its state on %s\n", name, server.URL())
	group.Go(func() error { return server.Run(serving) })
	err := work.Run(ctx, drain)
	stop()
	if served := group.Wait(); err == nil {
		err = served
	}
	return err
}
