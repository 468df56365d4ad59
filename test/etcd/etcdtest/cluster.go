package etcdtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Members share one loaded machine, so they are as patient with each other as etcd is by default: an election takes one
// to two seconds. poll is how often a state is asked for that etcd does not announce.
const (
	clusterHeartbeat = 100 * time.Millisecond
	clusterElection  = time.Second
	poll             = 20 * time.Millisecond
)

// clients is the end of a link that is not a member.
const clients = "clients"

// Cluster is several etcd members, each a process of its own, on a network between them and their clients that the test
// can cut link by link. Its methods end the test when etcd does not do what they say. It is not safe for concurrent use,
// but its clients are.
type Cluster struct {
	dir     string
	binary  string
	quota   int64
	life    int
	network *network
	members []*member
	admin   *clientv3.Client // past the network
}

type member struct {
	name         string
	peer, client string // host:port where it listens
	peerProxy    string // host:port where others reach it
	clientProxy  string
	running      *process
}

// NewCluster starts n members with a backend quota, 0 being etcd's default. They end with the test.
func NewCluster(t testing.TB, n int, quotaBytes int64) *Cluster {
	t.Helper()
	c := &Cluster{dir: t.TempDir(), quota: quotaBytes, network: newNetwork(t)}
	c.binary = build(t, c.dir)
	var direct []string
	for i := range n {
		m := &member{name: fmt.Sprintf("member-%d", i), peer: freeAddress(t), client: freeAddress(t)}
		m.peerProxy = c.network.proxy(t, m.name, m.peer, c.callerOf)
		m.clientProxy = c.network.proxy(t, m.name, m.client, func([]byte) string { return clients })
		c.members = append(c.members, m)
		direct = append(direct, m.client)
	}
	t.Cleanup(func() {
		for i := range c.members {
			c.Kill(i)
		}
	})
	c.startAll(t)
	c.admin = Dial(t, direct...)
	c.Ready(t)
	return c
}

// callerOf tells members apart: each says in its first request to another where it is reached itself.
func (c *Cluster) callerOf(first []byte) string {
	for line := range bytes.Lines(first) {
		name, value, _ := bytes.Cut(line, []byte(": "))
		if !bytes.EqualFold(name, []byte("X-PeerURLs")) {
			continue
		}
		for _, m := range c.members {
			if string(bytes.TrimSpace(value)) == "http://"+m.peerProxy {
				return m.name
			}
		}
	}
	return ""
}

// Endpoints are where clients reach the members through the network.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.clientProxy)
	}
	return all
}

// Admin is a client that does not pass through the network.
func (c *Cluster) Admin() *clientv3.Client { return c.admin }

// Leader is the member that leads now.
func (c *Cluster) Leader(t testing.TB) int {
	t.Helper()
	leader := -1
	c.await(t, "a leader", func(ctx context.Context) bool {
		for i, m := range c.members {
			if m.running == nil {
				continue
			}
			if s, err := c.admin.Status(ctx, m.client); err == nil && s.Leader == s.Header.MemberId {
				leader = i
				return true
			}
		}
		return false
	})
	return leader
}

// Ready waits until every member that runs knows a leader and etcd answers.
func (c *Cluster) Ready(t testing.TB) {
	t.Helper()
	c.await(t, "every member to follow a leader", func(ctx context.Context) bool {
		for _, m := range c.members {
			if m.running == nil {
				continue
			}
			if s, err := c.admin.Status(ctx, m.client); err != nil || s.Leader == 0 {
				return false
			}
		}
		_, err := c.admin.Get(ctx, "/")
		return err == nil
	})
}

// Kill kills a member and keeps its data.
func (c *Cluster) Kill(i int) {
	if m := c.members[i]; m.running != nil {
		m.running.kill()
		m.running = nil
	}
}

// Restart starts the members that were killed with the data they had.
func (c *Cluster) Restart(t testing.TB) {
	t.Helper()
	c.startAll(t)
	c.Ready(t)
}

// Wipe replaces all members by empty ones with the same command line: only the revision tells that they are others.
func (c *Cluster) Wipe(t testing.TB) {
	t.Helper()
	for i := range c.members {
		c.Kill(i)
	}
	c.life++
	c.startAll(t)
	c.Ready(t)
}

// Isolate cuts a member off from the others, in both directions. Clients still reach it.
func (c *Cluster) Isolate(i int) {
	c.Mute(i)
	for _, m := range c.members {
		c.network.set(true, link{m.name, c.members[i].name})
	}
}

// Mute lets nothing that a member says reach the others, while it hears them.
func (c *Cluster) Mute(i int) {
	for _, m := range c.members {
		c.network.set(true, link{c.members[i].name, m.name})
	}
}

// CutRequests lets no request of a client reach a member, and CutAnswers no answer reach a client.
func (c *Cluster) CutRequests() { c.network.set(true, c.requests()...) }

// CutAnswers lets no answer reach a client; requests arrive.
func (c *Cluster) CutAnswers() { c.network.set(true, c.answers()...) }

// Delay makes every exchange between clients and members take so much longer.
func (c *Cluster) Delay(d time.Duration) {
	c.network.slow(d/2, c.requests()...)
	c.network.slow(d/2, c.answers()...)
}

// Reset closes every connection; new ones are accepted.
func (c *Cluster) Reset() { c.network.reset() }

// Mend undoes whatever was done to the network.
func (c *Cluster) Mend() { c.network.mend() }

func (c *Cluster) requests() (links []link) {
	for _, m := range c.members {
		links = append(links, link{clients, m.name})
	}
	return links
}

func (c *Cluster) answers() (links []link) {
	for _, m := range c.members {
		links = append(links, link{m.name, clients})
	}
	return links
}

// Compact forgets every revision but the newest.
func (c *Cluster) Compact(t testing.TB) {
	t.Helper()
	now, err := c.admin.Get(t.Context(), "/")
	if err == nil {
		_, err = c.admin.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatalf("compacting etcd: %v", err)
	}
}

// Defragment gives back what compaction freed, on every member.
func (c *Cluster) Defragment(t testing.TB) {
	t.Helper()
	for _, m := range c.members {
		if _, err := c.admin.Defragment(t.Context(), m.client); err != nil {
			t.Fatalf("defragmenting %s: %v", m.name, err)
		}
	}
}

func (c *Cluster) startAll(t testing.TB) {
	t.Helper()
	for _, m := range c.members {
		if m.running == nil {
			m.running = startProcess(t, c.binary, filepath.Join(c.dir, m.name+".log"), c.args(m)...)
		}
	}
}

func (c *Cluster) args(m *member) []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.name+"=http://"+m.peerProxy)
	}
	args := []string{
		"--name", m.name, "--data-dir", filepath.Join(c.dir, fmt.Sprintf("%s-life-%d", m.name, c.life)),
		"--listen-client-urls", "http://" + m.client, "--advertise-client-urls", "http://" + m.clientProxy,
		"--listen-peer-urls", "http://" + m.peer, "--initial-advertise-peer-urls", "http://" + m.peerProxy,
		"--initial-cluster", strings.Join(all, ","),
		"--heartbeat-interval", fmt.Sprint(clusterHeartbeat.Milliseconds()), "--election-timeout", fmt.Sprint(clusterElection.Milliseconds()),
		"--unsafe-no-fsync", "--log-level", "warn",
	}
	if c.quota > 0 {
		args = append(args, "--quota-backend-bytes", fmt.Sprint(c.quota))
	}
	return args
}

// await asks again and again until what is wanted is so.
func (c *Cluster) await(t testing.TB, what string, so func(context.Context) bool) {
	t.Helper()
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(poll) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		done := so(ctx)
		cancel()
		if done {
			return
		}
		if time.Now().After(deadline) {
			break
		}
	}
	for _, m := range c.members {
		if m.running != nil {
			t.Logf("%s: %s", m.name, m.running.tail())
		}
	}
	t.Fatalf("waited in vain for %s", what)
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
