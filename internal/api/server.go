package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits of the server, generous for people and monitoring, tight for the rest.
const (
	headerTimeoutMax = 5 * time.Second  // a client that takes longer to send its header is not one of ours
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

// Server is bound to an address and serves until Run's context ends.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen binds the address (host:port; port 0 picks a free one). An address in use or not ours is an error that names it.
func Listen(address string, subject Subject, metrics *prometheus.Registry) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; choose another address with --listen", address, rootCause(err))
	}
	return &Server{listener: listener, http: &http.Server{
		Handler:           handler(subject, metrics),
		ReadHeaderTimeout: headerTimeoutMax,
		WriteTimeout:      writeTimeoutMax,
		IdleTimeout:       idleTimeoutMax,
		MaxHeaderBytes:    headerBytesMax,
	}}, nil
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
	go func() { failed <- s.http.Serve(s.listener) }()
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

func handler(subject Subject, metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", probe(subject.Healthy))
	mux.HandleFunc("GET /readyz", probe(subject.Ready))
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{Registry: metrics}))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		body, err := json.MarshalIndent(subject.Status(), "", "  ")
		if err != nil {
			http.Error(w, "status cannot be encoded: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n'))
	})
	return mux
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
