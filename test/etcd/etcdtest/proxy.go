package etcdtest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a switchable TCP proxy before one etcd member. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	wait     sync.WaitGroup

	mu     sync.Mutex // guards the following
	change *sync.Cond // of anything below
	conns  map[net.Conn]struct{}
	up     bool // bytes towards etcd pass
	down   bool // bytes from etcd pass
	delay  time.Duration
	closed bool
}

// NewProxy starts a proxy before a target, which is a host:port. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("starting a proxy: %v", err)
	}
	p := &Proxy{listener: l, target: target, conns: map[net.Conn]struct{}{}, up: true, down: true}
	p.change = sync.NewCond(&p.mu)
	p.wait.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Address is the host:port to dial instead of the target.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Set lets bytes pass towards etcd (up) and back (down), or holds them where they are: nothing is lost, nothing is
// refused, nobody is told. It is what a network that drops packets looks like.
func (p *Proxy) Set(up, down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.down = up, down
	p.change.Broadcast()
}

// Delay holds every chunk of bytes for a while, in each direction.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Reset closes every connection; new ones are accepted.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.change.Broadcast()
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Reset()
	p.wait.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.add(client, server) {
			return
		}
		p.wait.Go(func() { p.pipe(server, client, func() bool { return p.up }) })
		p.wait.Go(func() { p.pipe(client, server, func() bool { return p.down }) })
	}
}

func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
		if p.closed {
			_ = c.Close()
		}
	}
	return !p.closed
}

// pipe copies while passing, and closes both ends when either is closed.
func (p *Proxy) pipe(to io.WriteCloser, from io.ReadCloser, passing func() bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			p.forget(from, to)
			return
		}
		p.mu.Lock()
		delay := p.delay
		p.mu.Unlock()
		time.Sleep(delay)
		p.mu.Lock()
		for !passing() && !p.closed {
			p.change.Wait()
		}
		p.mu.Unlock()
		if _, err := to.Write(buf[:n]); err != nil {
			p.forget(from, to)
			return
		}
	}
}

func (p *Proxy) forget(ends ...io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, end := range ends {
		if c, ok := end.(net.Conn); ok {
			delete(p.conns, c)
		}
	}
}
