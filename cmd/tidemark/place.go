package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/dev"
	"tidemark/internal/etcd"
	"tidemark/internal/objstore"
	"tidemark/internal/process"
	"tidemark/internal/random"
	"tidemark/internal/rootlock"
	"tidemark/internal/table"
)

// dialTimeout bounds how long a command tries to reach etcd: long enough for an election, short enough for a person.
const dialTimeout = 5 * time.Second

// foundTimeout bounds how long a writer tries to reach an etcd whose address it has found in the root.
const foundTimeout = 2 * time.Second

// placeFlags say where a command works: the root, and the etcd of the cluster that serves it.
type placeFlags struct {
	process.RootFlags
	process.EtcdFlags
}

// place is an opened root, with what the packages below need.
type place struct {
	flags  placeFlags
	store  objstore.Store
	clock  clock.Clock
	random random.Source
}

func (f placeFlags) open(ctx context.Context) (*place, error) {
	p := &place{flags: f, clock: clock.System(), random: random.New()}
	var err error
	p.store, err = f.RootFlags.Open(ctx, hclog.NewNullLogger(), p.clock, p.random, false)
	return p, err
}

func (p *place) tableDeps() table.Deps { return table.Deps{Clock: p.clock, Random: p.random} }

// cluster is a connection to the etcd of the cluster.
type cluster struct {
	client *clientv3.Client
	keys   etcd.Keys
	slots  int
}

func (c *cluster) Close() { _ = c.client.Close() }

// errNoEtcd: neither a flag nor a running development server says where etcd is.
var errNoEtcd = errors.New("no etcd is known: give --etcd, or start `tidemark dev` or `tidemark standalone` on this root")

// endpoints of etcd: those of the flags, else those of a server that runs on the root, `tidemark dev` or `tidemark
// standalone`, else none.
func (f placeFlags) endpoints(ctx context.Context) []string {
	if len(f.Etcd) > 0 {
		return f.Etcd
	}
	if beacon, ok := dev.ReadBeacon(f.Root); ok {
		return beacon.Etcd
	}
	p, err := f.open(ctx)
	if err != nil {
		return nil
	}
	if record, _, err := rootlock.Read(ctx, p.store); err == nil && record != nil {
		return record.Etcd
	}
	return nil
}

// publishTo are the endpoints of etcd that a writer tells of what it seals: those of the flags, else those of a server
// that runs on the root, if it does. A writer needs neither.
func (f placeFlags) publishTo(ctx context.Context) []string {
	endpoints := f.endpoints(ctx)
	if len(f.Etcd) > 0 || len(endpoints) == 0 {
		return endpoints
	}
	client, err := f.Dial(ctx, endpoints, foundTimeout)
	if err != nil {
		return nil // left behind by a server that is gone
	}
	_ = client.Close()
	return endpoints
}

// dial reaches etcd; without any endpoint it is errNoEtcd.
func (f placeFlags) dial(ctx context.Context) (*clientv3.Client, error) {
	endpoints := f.endpoints(ctx)
	if len(endpoints) == 0 {
		return nil, errNoEtcd
	}
	client, err := f.Dial(ctx, endpoints, dialTimeout)
	if err != nil && len(f.Etcd) == 0 {
		return nil, fmt.Errorf("%w (a server left this address in the root; if it does not run on this machine, start it or give --etcd)", err)
	}
	return client, err
}

// connect reaches etcd and reads the record of the cluster.
func (f placeFlags) connect(ctx context.Context) (*cluster, error) {
	client, err := f.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &cluster{client: client, keys: f.Keys()}
	record, err := etcd.ReadCluster(ctx, client, c.keys)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.slots = record.Slots
	return c, nil
}

// openCluster opens the root and reaches the cluster that serves it.
func (f placeFlags) openCluster(ctx context.Context) (*place, *cluster, error) {
	p, err := f.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := f.connect(ctx)
	return p, c, err
}
