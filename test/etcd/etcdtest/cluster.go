package etcdtest

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.uber.org/zap"
)

// Elections of a cluster take longer than those of a single member, for its members share one loaded machine.
const (
	clusterHeartbeat = 50 * time.Millisecond
	clusterElection  = 500 * time.Millisecond
)

// Cluster is several etcd members, each with a proxy between it and its clients. Its methods end the test when etcd
// does not do what they say. It is not safe for concurrent use, but its clients are.
type Cluster struct {
	members []*member
	life    int
	dir     string
}

type member struct {
	name    string
	peer    string // host:port
	client  string
	running *embed.Etcd
	proxy   *Proxy
}

// NewCluster starts n members. They are stopped when the test ends.
func NewCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{dir: t.TempDir()}
	for i := range n {
		m := &member{name: fmt.Sprintf("member-%d", i), peer: freeAddress(t), client: freeAddress(t)}
		m.proxy = NewProxy(t, m.client)
		c.members = append(c.members, m)
	}
	t.Cleanup(func() {
		for i := range c.members {
			c.Stop(i)
		}
	})
	c.startAll(t)
	return c
}

// Client dials every member through its proxy; the client is closed when the test ends.
func (c *Cluster) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	var endpoints []string
	for _, m := range c.members {
		endpoints = append(endpoints, m.proxy.Address())
	}
	return Dial(t, endpoints...)
}

// Proxy is what stands between a member and its clients.
func (c *Cluster) Proxy(i int) *Proxy { return c.members[i].proxy }

// Leader is the member that leads now.
func (c *Cluster) Leader(t testing.TB) int {
	t.Helper()
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for i, m := range c.members {
			if m.running != nil && m.running.Server.Leader() == m.running.Server.MemberID() {
				return i
			}
		}
	}
	t.Fatal("no member leads")
	return 0
}

// Running says whether a member runs.
func (c *Cluster) Running(i int) bool { return c.members[i].running != nil }

// Stop stops a member and keeps its data.
func (c *Cluster) Stop(i int) {
	if m := c.members[i]; m.running != nil {
		m.running.Close()
		m.running = nil
	}
}

// Restart starts a stopped member with the data it had.
func (c *Cluster) Restart(t testing.TB, i int) {
	t.Helper()
	c.start(t, i)
	c.ready(t, i)
}

// Isolate cuts a member off from the others, in both directions. Its clients still reach it.
func (c *Cluster) Isolate(i int) { c.peers(i, (*etcdserver.EtcdServer).CutPeer) }

// Heal undoes Isolate.
func (c *Cluster) Heal(i int) { c.peers(i, (*etcdserver.EtcdServer).MendPeer) }

// Wipe replaces all members by empty ones at the same addresses.
func (c *Cluster) Wipe(t testing.TB) {
	t.Helper()
	for i := range c.members {
		c.Stop(i)
	}
	c.life++
	c.startAll(t)
}

func (c *Cluster) peers(i int, do func(*etcdserver.EtcdServer, types.ID)) {
	one := c.members[i].running
	for j, m := range c.members {
		if j != i && m.running != nil && one != nil {
			do(one.Server, m.running.Server.MemberID())
			do(m.running.Server, one.Server.MemberID())
		}
	}
}

func (c *Cluster) startAll(t testing.TB) {
	t.Helper()
	for i := range c.members {
		c.start(t, i)
	}
	for i := range c.members {
		c.ready(t, i)
	}
}

func (c *Cluster) start(t testing.TB, i int) {
	t.Helper()
	e, err := embed.StartEtcd(c.config(i))
	if err != nil {
		t.Fatalf("starting etcd member %d: %v", i, err)
	}
	c.members[i].running = e
}

func (c *Cluster) ready(t testing.TB, i int) {
	t.Helper()
	select {
	case <-c.members[i].running.Server.ReadyNotify():
	case <-time.After(startTimeout):
		t.Fatalf("etcd member %d was not ready after %v", i, startTimeout)
	}
}

func (c *Cluster) config(i int) *embed.Config {
	m := c.members[i]
	cfg := embed.NewConfig()
	cfg.Name = m.name
	cfg.Dir = filepath.Join(c.dir, fmt.Sprintf("%s-life-%d", m.name, c.life))
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: m.client}}
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: m.proxy.Address()}}
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: m.peer}}
	cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
	var all []string
	for _, m := range c.members {
		all = append(all, m.name+"=http://"+m.peer)
	}
	cfg.InitialCluster = strings.Join(all, ",")
	cfg.InitialClusterToken = fmt.Sprintf("test-%d", c.life)
	cfg.TickMs = uint(clusterHeartbeat.Milliseconds())
	cfg.ElectionMs = uint(clusterElection.Milliseconds())
	cfg.UnsafeNoFsync = true
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return cfg
}

// freeAddress names a loopback port that was free a moment ago: members must know each other's before they start.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("finding a free port: %v", err)
	}
	defer l.Close()
	return l.Addr().String()
}
