package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// DefaultDialTimeout is how long a start waits for etcd.
	DefaultDialTimeout = 5 * time.Second
	// A client notices a dead connection within both together, well within the deadline of a session, as long as it
	// waits for something. Without that it must not ping: etcd closes connections that ping and ask nothing.
	keepaliveTime, keepaliveTimeout = 3 * time.Second, 2 * time.Second
)

// ErrUnreachable: no endpoint answered in time.
var ErrUnreachable = errors.New("etcd does not answer")

// DialOptions says where etcd is.
type DialOptions struct {
	Endpoints []string      // host:port or URLs
	Timeout   time.Duration // to get the first answer; 0 is DefaultDialTimeout
	TLS       *tls.Config   // nil for plain connections
	Username  string
	Password  string
}

// Dial connects to etcd and waits for a first answer. The error of an etcd that does not answer names its endpoints.
func Dial(ctx context.Context, o DialOptions) (*clientv3.Client, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("no etcd endpoints given: name at least one, such as 127.0.0.1:2379")
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultDialTimeout
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints, DialTimeout: o.Timeout, TLS: o.TLS, Username: o.Username, Password: o.Password,
		DialKeepAliveTime: keepaliveTime, DialKeepAliveTimeout: keepaliveTimeout,
		Logger: zap.NewNop(), // what matters is in the errors
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd at %s: %w", strings.Join(o.Endpoints, ", "), err)
	}
	first, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if _, err := client.Get(first, "/tidemark", clientv3.WithCountOnly()); err != nil {
		// The error of closing a client that never connected says nothing.
		_ = client.Close()
		if cause := context.Cause(ctx); cause != nil {
			return nil, fmt.Errorf("connecting to etcd at %s: %w", strings.Join(o.Endpoints, ", "), cause)
		}
		return nil, fmt.Errorf("%w at %s within %v: check that it runs and that the endpoints are right: %w",
			ErrUnreachable, strings.Join(o.Endpoints, ", "), o.Timeout, err)
	}
	return client, nil
}
