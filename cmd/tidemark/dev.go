package main

import (
	"context"
	"os"
	"time"

	"golang.org/x/term"

	"tidemark/internal/dev"
	"tidemark/internal/objstore"
	"tidemark/internal/process"
)

type devCommand struct {
	placeFlags
	process.CapacityFlags
	process.HTTPFlags
	process.TraceFlags
	LogLevel  string        `help:"Least severe level that is logged on standard error." enum:"trace,debug,info,warn,error" default:"warn" env:"TIDEMARK_LOG_LEVEL" placeholder:"LEVEL"`
	LogFormat string        `help:"How log lines look: text for people, json for programs." enum:"text,json" default:"text" env:"TIDEMARK_LOG_FORMAT" placeholder:"FORMAT"`
	Executors int           `help:"Executors in the process, 1 to 64." default:"2" env:"TIDEMARK_EXECUTORS" placeholder:"N"`
	Listen    string        `help:"Address of the HTTP server; port 0 picks a free one." default:"127.0.0.1:7077" env:"TIDEMARK_LISTEN" placeholder:"HOST:PORT"`
	LeaseTTL  time.Duration `name:"lease-ttl" help:"Time to live of the leases in the process." default:"15s" env:"TIDEMARK_LEASE_TTL" placeholder:"DURATION"`

	Demo     bool     `help:"Run four writers: order events to demo/events (append) and order states to demo/orders (upsert, with deletes)."`
	DemoData []string `help:"Replay these files into a table instead of generating rows." type:"path" placeholder:"FILE,…"`
	DemoRows int64    `help:"Rows that the demo writes with --exit." default:"1000000" placeholder:"N"`
	DemoRate float64  `help:"Rows a second that the demo writes without --exit." default:"20000" placeholder:"N"`
	Exit     bool     `help:"End with status 0 once all of the demo is merged, and verified by count and checksum."`
}

// Help says more than one line about the command.
func (c *devCommand) Help() string {
	return `Everything in one process: an embedded etcd (unless --etcd is given), a master, executors, and an HTTP server. The root is
made if it is not there; one on S3 is claimed as "tidemark standalone" claims it, and after a kill it is free in 45 s. Other
commands on the same root find the server by themselves:

  tidemark dev &
  tidemark table create flights --like flights.parquet
  tidemark ingest flights flights.parquet
  tidemark wait flights
  tidemark cat flights --limit 10`
}

func (c *devCommand) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	if c.Executors < 1 || c.Executors > 64 {
		return process.Usagef("--executors %d: want 1 to 64", c.Executors)
	}
	if c.Exit && !c.Demo && len(c.DemoData) == 0 {
		return process.Usagef("--exit ends a demo: give --demo or --demo-data too")
	}
	budget, err := c.Budget()
	if err != nil {
		return err
	}
	lease, err := process.LeaseFlags{LeaseTTL: c.LeaseTTL}.Config()
	if err != nil {
		return err
	}
	logs := process.LogFlags{LogLevel: c.LogLevel, LogFormat: c.LogFormat}
	options := dev.Options{
		RootFlags: c.RootFlags, Etcd: c.Etcd, EtcdLogin: c.Login, Cluster: c.Cluster, Keys: c.Keys(), Executors: c.Executors, Slots: c.Slots, Memory: budget,
		Listen: c.Listen, HTTP: c.HTTPFlags, Version: process.Version, Lease: lease, Out: streams.Out,
		Log: logs.Logger("dev", streams.Err), Metrics: process.NewRegistry(), Traces: c.TraceFlags, Holder: process.DefaultID("dev"),
	}
	if _, local := objstore.LocalDir(c.Root); !local && len(c.Etcd) == 0 {
		options.Standalone = true // the embedded etcd ends with this process, and so must its claim
	}
	demo := dev.Demo{Files: c.DemoData, Rows: c.DemoRows, Rate: c.DemoRate, Exit: c.Exit}
	if out, ok := streams.Out.(*os.File); ok {
		demo.Redraw = term.IsTerminal(int(out.Fd()))
	}
	return dev.Run(ctx, options, signals.Drain, func(ctx context.Context, s *dev.Server) error {
		if c.Demo || len(c.DemoData) > 0 {
			return s.RunDemo(ctx, demo)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}
