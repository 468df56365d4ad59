// Command tidemark-master runs one master: it owns slots of tables, scans storage, and decides what is merged next.
package main

import (
	"context"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"tidemark/internal/master"
	"tidemark/internal/objstore"
	"tidemark/internal/process"
	"tidemark/internal/rootlock"
)

const description = `A master of Tidemark: it owns a share of the tables, keeps their demand, scans them against storage, and queues what is due.
Start two or three; when one ends, the others take its share over.

SIGTERM gives its share back at once and ends with status 0.`

// cli is every flag of the binary.
type cli struct {
	Version kong.VersionFlag `help:"Print the version and exit."`
	process.ServerFlags
	ClusterSlots int           `help:"Number of slots that tables are spread over; it counts only when the cluster is created." default:"64" env:"TIDEMARK_CLUSTER_SLOTS" placeholder:"N"`
	IdleTimeout  time.Duration `help:"Take an execution's turns away when it has completed no work for this long and 60 s more; as that of the executors." default:"10m" env:"TIDEMARK_IDLE_TIMEOUT" placeholder:"DURATION"`
}

func main() {
	os.Exit(process.Main(
		process.Command{Name: "tidemark-master", Description: description, Listen: "127.0.0.1:7078"},
		&cli{}, os.Args[1:],
		process.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr},
	))
}

// Run runs the master until it is told to stop.
func (c *cli) Run(ctx context.Context, streams process.Streams, signals *process.Signals) error {
	lease, err := c.LeaseFlags.Config()
	if err != nil {
		return err
	}
	server, err := c.Open(ctx, "master", streams.Err)
	if err != nil {
		return err
	}
	defer server.Close()
	if dir, local := objstore.LocalDir(c.Root); local {
		lock, err := rootlock.Lock(ctx, server.Store, dir, false)
		if err != nil {
			return err
		}
		defer lock.Unlock()
	}
	work, err := master.New(master.Config{
		ID: server.ID, Address: server.HTTP.Reach(), URL: server.HTTP.URL(), Version: process.Version, Cluster: c.Cluster, Slots: c.ClusterSlots,
		Keys: server.Keys, Client: server.Client, Store: server.Store, Clock: server.Clock, Random: server.Random,
		Log: server.Log, Lease: lease, IdleTimeout: c.IdleTimeout,
	})
	if err != nil {
		return process.Usagef("%v", err)
	}
	server.Metrics.MustRegister(work)
	return c.Serve(ctx, drained{work}, server, true, signals.Drain, streams.Out, "master "+server.ID)
}

// drained is a master that gives its share back when it is told to drain: it has nothing else to finish.
type drained struct{ *master.Master }

// Run runs the master until drain is closed.
func (d drained) Run(ctx context.Context, drain <-chan struct{}) error {
	ctx, stop := process.UntilDrained(ctx, drain)
	defer stop()
	return d.Master.Run(ctx)
}
