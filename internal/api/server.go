package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits of the server, generous for people and monitoring, tight for the rest.
const (
	headerTimeoutMax = 5 * time.Second  // a client that takes longer to send its header is not one of ours
	readTimeoutMax   = 15 * time.Second // nor one that takes longer to send a body of a few kilobytes
	writeTimeoutMax  = 30 * time.Second // the largest answer, /metrics of a full fleet, takes well under a second
	idleTimeoutMax   = 2 * time.Minute  // longer than any usual scrape interval, so connections are reused
	headerBytesMax   = 16 << 10
	shutdownTimeout  = 5 * time.Second // answers in flight at the end
)

// Subject is the process that a server speaks for.
type Subject interface {
	// Healthy is nil, or why only a person can help.
	Healthy() error
	// Ready is nil, or why the process takes no work now.
	Ready() error
	// Status is what /status shows; it must encode to JSON.
	Status() any
}

// Options are what a server is made with. All but Metrics are optional.
type Options struct {
	Subject Subject // nil: Speak says later
	Metrics *prometheus.Registry
	Tokens  *Tokens // nil: none are asked for
	TLS     TLSFiles
	// Insecure allows a server without tokens beyond loopback.
	Insecure bool
}

// Server is bound to an address and serves until Run's context ends.
type Server struct {
	listener net.Listener
	http     *http.Server
	mux      *http.ServeMux
	scheme   string
}

// Listen binds the address (host:port; port 0 picks a free one). An address in use or not ours is an error that names it,
// and so is one beyond loopback that nothing protects.
func Listen(address string, o Options) (*Server, error) {
	loopback := Loopback(address)
	if !loopback && o.Tokens == nil && !o.Insecure {
		return nil, fmt.Errorf("refusing to listen on %s without tokens: it can be reached from other machines; give --tokens FILE, "+
			"or --insecure if something else protects it", address)
	}
	secure, staleTLS, err := o.TLS.config()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; choose another address with --listen", address, rootCause(err))
	}
	o.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_http_files_stale",
		Help: "1 while the tokens or a file of TLS have changed and cannot be read: what they said before holds.",
	}, func() float64 {
		if staleTLS() != nil || o.Tokens != nil && o.Tokens.stale() != nil {
			return 1
		}
		return 0
	}))
	s := &Server{listener: listener, mux: http.NewServeMux(), scheme: "http"}
	s.mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{Registry: o.Metrics}))
	if o.Subject != nil {
		s.Speak(o.Subject)
	}
	ending, end := context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           guarded(s.mux, o.Tokens, loopback),
		ReadHeaderTimeout: headerTimeoutMax,
		ReadTimeout:       readTimeoutMax,
		WriteTimeout:      writeTimeoutMax,
		IdleTimeout:       idleTimeoutMax,
		MaxHeaderBytes:    headerBytesMax,
		TLSConfig:         secure,
		ErrorLog:          log.New(io.Discard, "", 0), // bad handshakes and aborted requests are the clients' news
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), endingKey{}, ending.Done())
		},
	}
	s.http.RegisterOnShutdown(end)
	if secure != nil {
		s.scheme = "https"
	}
	return s, nil
}

// Mount serves more below a path, as http.ServeMux means it. It may be called while the server runs.
func (s *Server) Mount(path string, h http.Handler) { s.mux.Handle(path, h) }

// URL is where the server is reached.
func (s *Server) URL() string { return s.scheme + "://" + s.Reach() }

// Reach is the host and port at which others reach the server: of one that listens on every address, by the host's name.
func (s *Server) Reach() string {
	host, port, err := net.SplitHostPort(s.Addr())
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return s.Addr()
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		return s.Addr()
	}
	return net.JoinHostPort(name, port)
}

type endingKey struct{}

// ending is closed when the server that a request came to begins to end; answers that go on for ever end then.
func ending(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(endingKey{}).(<-chan struct{})
	return c
}

// rootCause drops the address that net puts before the reason, since the message names it already.
func rootCause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Close gives the address up without having served. After Run it does nothing.
func (s *Server) Close() { _ = s.listener.Close() }

// Addr is the address that was bound.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Run serves until ctx is done, then lets answers in flight finish.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() {
		if s.http.TLSConfig != nil {
			failed <- s.http.ServeTLS(s.listener, "", "")
			return
		}
		failed <- s.http.Serve(s.listener)
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serving HTTP on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := s.http.Shutdown(graceful)
	if err != nil {
		_ = s.http.Close() // answers that outlast the grace are cut
	}
	<-failed
	return nil
}

// Speak says whom the server speaks for: /healthz, /readyz and /status. It is called once, before Run or with the Options.
func (s *Server) Speak(subject Subject) {
	mux := s.mux
	mux.HandleFunc("GET /healthz", probe(subject.Healthy))
	mux.HandleFunc("GET /readyz", probe(subject.Ready))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.MarshalIndent(subject.Status(), "", "  ")
		if err != nil {
			http.Error(w, "status cannot be encoded: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n'))
	})
}

func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, err)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	}
}
