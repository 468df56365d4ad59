package main

import (
	"context"
	"time"

	"tidemark/internal/dev"
	"tidemark/internal/etcd"
	"tidemark/internal/ownership"
	"tidemark/internal/process"
	"tidemark/internal/rootlock"
)

type standaloneCommand struct {
	process.RootFlags
	process.CapacityFlags
	process.HTTPFlags
	process.TraceFlags
	process.LogFlags
	Cluster     string        `help:"Name that the server gives the cluster that it is." default:"default" env:"TIDEMARK_CLUSTER" placeholder:"NAME"`
	Executors   int           `help:"Executors in the process, 1 to 64." default:"2" env:"TIDEMARK_EXECUTORS" placeholder:"N"`
	Listen      string        `help:"Address of the HTTP server; port 0 picks a free one." default:"127.0.0.1:7077" env:"TIDEMARK_LISTEN" placeholder:"HOST:PORT"`
	RootLease   time.Duration `help:"How long this server may be silent, half as long again, before another may take the root: 2s to 600s. Two thirds of it is how long it serves on while it cannot reach the store." default:"30s" env:"TIDEMARK_ROOT_LEASE" placeholder:"DURATION"`
	WaitForRoot bool          `help:"Wait while another server is alive on the root, ready to take over, instead of failing." env:"TIDEMARK_WAIT_FOR_ROOT"`
}

// Help says more than one line about the command.
func (c *standaloneCommand) Help() string {
	return `The whole of Tidemark in one process, for production on one machine: a master, executors and an embedded etcd whose state
may be lost at any time. All durable state is in the root, so the server can be killed and started on another machine.

A root is served by one deployment. On S3 the server holds it under a lease, and ends with status 2 when it cannot prove
in time that it is alive. A server that finds a dead one's lease waits a lease and a half before it takes over; to take a
root from a cluster, see "tidemark root". A local directory is held by a file lock: no other machine may serve it.

SIGTERM drains: what runs is finished, the root is given back, and the status is 0.`
}

func (c *standaloneCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	if c.Executors < 1 || c.Executors > 64 {
		return process.Usagef("--executors %d: want 1 to 64", c.Executors)
	}
	if c.RootLease < rootlock.LeaseMin || c.RootLease > rootlock.LeaseMax {
		return process.Usagef("--root-lease %v: want %v to %v", c.RootLease, rootlock.LeaseMin, rootlock.LeaseMax)
	}
	budget, err := c.Budget()
	if err != nil {
		return err
	}
	return dev.Run(ctx, dev.Options{
		RootFlags: c.RootFlags, Cluster: c.Cluster, Keys: etcd.KeysOf(c.Cluster), Executors: c.Executors, Slots: c.Slots, Memory: budget,
		Listen: c.Listen, HTTP: c.HTTPFlags, Version: process.Version, Lease: ownership.DefaultConfig(ownership.DefaultTTL), Out: streams.Out,
		Log: c.Logger("standalone", streams.Err), Metrics: process.NewRegistry(), Traces: c.TraceFlags,
		Standalone: true, Holder: process.DefaultID("standalone"), RootLease: c.RootLease, WaitForRoot: c.WaitForRoot,
	}, signals.Drain, func(ctx context.Context, _ *dev.Server) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
}
