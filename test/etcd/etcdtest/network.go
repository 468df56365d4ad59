package etcdtest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// link is one direction between two ends, which are members or the clients.
type link struct{ from, to string }

// network is the TCP connections of a cluster, each through a proxy that knows who speaks to whom. What is cut holds its
// bytes where they are: nothing is lost, nothing is refused, nobody is told. It is what a network that drops packets
// looks like. It is safe for concurrent use.
type network struct {
	wait sync.WaitGroup

	mu     sync.Mutex // guards the following
	change *sync.Cond // of cut or closed
	cut    map[link]bool
	delay  map[link]time.Duration
	conns  map[net.Conn]struct{}
	closed bool
}

// newNetwork makes a network that ends with the test.
func newNetwork(t testing.TB) *network {
	n := &network{cut: map[link]bool{}, delay: map[link]time.Duration{}, conns: map[net.Conn]struct{}{}}
	n.change = sync.NewCond(&n.mu)
	t.Cleanup(n.close)
	return n
}

// proxy starts a proxy before a target, which is the host:port of one end, and returns its own. caller says from the
// first bytes of a connection who makes it.
func (n *network) proxy(t testing.TB, end, target string, caller func(first []byte) string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("starting a proxy: %v", err)
	}
	n.wait.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n.wait.Go(func() { n.serve(conn, end, target, caller) })
		}
	})
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// set cuts links, or mends them.
func (n *network) set(cut bool, links ...link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range links {
		n.cut[l] = cut
	}
	n.change.Broadcast()
}

// slow holds every chunk of bytes on some links for a while.
func (n *network) slow(d time.Duration, links ...link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range links {
		n.delay[l] = d
	}
}

// mend undoes set and slow everywhere.
func (n *network) mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	clear(n.delay)
	n.change.Broadcast()
}

// reset closes every connection; new ones are accepted.
func (n *network) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		_ = c.Close()
	}
}

func (n *network) close() {
	n.mu.Lock()
	n.closed = true
	n.change.Broadcast()
	n.mu.Unlock()
	n.reset()
	n.wait.Wait()
}

// serve carries one connection until either end closes it.
func (n *network) serve(client net.Conn, end, target string, caller func(first []byte) string) {
	defer client.Close()
	if !n.add(client) {
		return
	}
	defer n.remove(client)
	first := make([]byte, 64<<10)
	read, err := client.Read(first)
	if err != nil {
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	if !n.add(server) {
		return
	}
	defer n.remove(server)
	up := link{from: caller(first[:read]), to: end}
	var back sync.WaitGroup
	back.Go(func() { n.pipe(client, server, nil, link{from: up.to, to: up.from}) })
	n.pipe(server, client, first[:read], up)
	back.Wait()
}

// pipe copies along a link, and closes both ends when either is closed.
func (n *network) pipe(to, from net.Conn, first []byte, along link) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for chunk := first; ; {
		if len(chunk) > 0 && !n.pass(to, chunk, along) {
			return
		}
		read, err := from.Read(buf)
		if err != nil {
			return
		}
		chunk = buf[:read]
	}
}

// pass holds a chunk for as long as its link says, and sends it on.
func (n *network) pass(to io.Writer, chunk []byte, along link) bool {
	n.mu.Lock()
	delay := n.delay[along]
	n.mu.Unlock()
	time.Sleep(delay)
	n.mu.Lock()
	for n.cut[along] && !n.closed {
		n.change.Wait()
	}
	n.mu.Unlock()
	_, err := to.Write(chunk)
	return err == nil
}

func (n *network) add(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = struct{}{}
	return !n.closed
}

func (n *network) remove(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}
