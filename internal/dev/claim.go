package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/process"
	"tidemark/internal/rootlock"
)

// lockDir locks a local root for a development server: alone with an embedded etcd, else together with the other masters
// of its cluster. A standalone server's claim does so itself.
func (s *Server) lockDir(ctx context.Context) (unlock func(), err error) {
	dir, local := objstore.LocalDir(s.options.Root)
	if !local || s.options.Standalone {
		return func() {}, nil
	}
	lock, err := rootlock.Lock(ctx, s.store, dir, len(s.options.Etcd) == 0)
	if err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}

// claim serves once the root is ours. A development server's master claims it for its cluster; a standalone server claims
// it for itself, before anything else begins.
func (s *Server) claim(ctx context.Context, endpoints []string, drain <-chan struct{}, serve func(context.Context) error) error {
	if !s.options.Standalone {
		return serve(ctx)
	}
	o := s.options
	dir, _ := objstore.LocalDir(o.Root)
	o.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_root_lease_seconds",
		Help: "How long this server's claim of the root lasts without another sign of life; 0 without a claim or a lease.",
	}, func() float64 {
		left, _ := s.leaseLeft()
		return left.Seconds()
	}))
	waiting, admitted, stop := untilAdmitted(ctx, drain)
	defer stop()
	err := rootlock.Run(waiting, rootlock.Options{
		Store: s.store, Clock: s.clock, Random: s.random, Log: o.Log, Cluster: o.Cluster, Holder: o.Holder, Etcd: endpoints,
		Lease: o.RootLease, Dir: dir, Wait: o.WaitForRoot,
	}, func(ctx context.Context, c rootlock.Claim) error {
		admitted()
		s.store = c.Store
		s.claimed.Store(&c)
		if err := s.createCluster(ctx, c.ID); err != nil {
			return err
		}
		return serve(ctx)
	})
	if errors.Is(err, process.ErrDrained) {
		return nil
	}
	return err
}

// leaseLeft is how long the claim of the root lasts without another sign of life; false without a claim or a lease.
func (s *Server) leaseLeft() (time.Duration, bool) {
	claim := s.claimed.Load()
	if claim == nil {
		return 0, false
	}
	deadline, leased := claim.Store.Deadline()
	return max(deadline-s.clock.Mono(), 0), leased
}

// untilAdmitted returns a context that a drain ends as long as admitted has not been called.
func untilAdmitted(ctx context.Context, drain <-chan struct{}) (waiting context.Context, admitted, stop func()) {
	waiting, cancel := context.WithCancelCause(ctx)
	enough, admitted := context.WithCancel(waiting)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-drain:
			cancel(process.ErrDrained)
		case <-enough.Done():
		}
	}()
	return waiting, admitted, func() {
		admitted()
		<-done
		cancel(nil)
	}
}

// createCluster puts the cluster's record into the fresh etcd under the lock's id, so that the master finds root.json and
// etcd to agree.
func (s *Server) createCluster(ctx context.Context, id string) error {
	record := etcd.Cluster{V: 1, Name: s.options.Cluster, ID: id, Root: s.store.URL(), Slots: etcd.DefaultSlots}
	value, err := json.Marshal(record)
	if err == nil {
		_, err = s.client.Put(ctx, s.options.Keys.Cluster(), string(value))
	}
	if err != nil {
		return fmt.Errorf("writing the cluster's record into the embedded etcd: %w", err)
	}
	return nil
}
