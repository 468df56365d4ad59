package writer

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/demand"
	"tidemark/internal/etcd"
	"tidemark/internal/random"
)

// etcdPublisher publishes to the cluster of a prefix. The cluster's record, which a master creates, is read when it is
// first needed: a writer may well start before the first master.
type etcdPublisher struct {
	client *clientv3.Client
	keys   etcd.Keys
	clock  clock.Clock
	random random.Source

	mu     sync.Mutex // guards joined
	joined *demand.Publisher
}

// dialPublisher connects to etcd. An etcd that does not answer is an error that names the endpoints.
func dialPublisher(ctx context.Context, c Config, d Deps) (*etcdPublisher, error) {
	client, err := etcd.Dial(ctx, etcd.DialOptions{Endpoints: c.Etcd, TLS: c.EtcdTLS, Username: c.EtcdUser, Password: c.EtcdPassword})
	if err != nil {
		return nil, err
	}
	keys := etcd.KeysOf(etcd.DefaultCluster)
	if c.Prefix != "" {
		keys = etcd.Keys{Prefix: c.Prefix}
	}
	return &etcdPublisher{client: client, keys: keys, clock: d.Clock, random: d.Random}, nil
}

// PublishSealed implements Publisher.
func (p *etcdPublisher) PublishSealed(ctx context.Context, ev demand.SealedEvent) (demand.Record, error) {
	joined, err := p.join(ctx)
	if err != nil {
		return demand.Record{}, err
	}
	return joined.PublishSealed(ctx, ev)
}

// join learns how many slots the cluster has, which never changes.
func (p *etcdPublisher) join(ctx context.Context) (*demand.Publisher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.joined != nil {
		return p.joined, nil
	}
	ctx, cancel := context.WithTimeout(ctx, demand.PublishTimeout)
	defer cancel()
	cluster, err := etcd.ReadCluster(ctx, p.client, p.keys)
	if err != nil {
		return nil, err
	}
	p.joined = demand.NewPublisher(p.client, p.keys, cluster.Slots, p.clock, p.random)
	return p.joined, nil
}

func (p *etcdPublisher) close() error { return p.client.Close() }
