package etcdtest

import "testing"

// Proxy is a switchable TCP proxy before one etcd member. It is safe for concurrent use.
type Proxy struct {
	network *network
	address string
}

// NewProxy starts a proxy before a target, which is a host:port. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{network: newNetwork(t)}
	p.address = p.network.proxy(t, "etcd", target, func([]byte) string { return clients })
	return p
}

// Address is the host:port to dial instead of the target.
func (p *Proxy) Address() string { return p.address }

// Set lets bytes pass towards etcd (up) and back (down), or holds them where they are.
func (p *Proxy) Set(up, down bool) {
	p.network.set(!up, link{clients, "etcd"})
	p.network.set(!down, link{"etcd", clients})
}

// Reset closes every connection; new ones are accepted.
func (p *Proxy) Reset() { p.network.reset() }
